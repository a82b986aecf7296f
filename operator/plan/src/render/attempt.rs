//! What the launcher of an attempt is given to run.

use std::collections::BTreeMap;

use dem_crds::RestartFrom;

use super::{CHECKPOINTS, INPUT, OUTPUT, PAGES, RUN};
use crate::validate::{ValidatedJob, Workload};

/// Program and arguments of every rank.
pub fn attempt_command(job: &ValidatedJob, attempt: i32) -> Vec<String> {
    let (name, run) = (&job.name, format!("{RUN}/attempt-{attempt}"));
    match &job.workload {
        Workload::Program { command, .. } => command.clone(),
        Workload::Simulation { .. } => {
            let input = if job.input_claim.is_some() { INPUT } else { OUTPUT };
            // Only the first attempt starts from elsewhere; later ones go on from the job's own checkpoints.
            let restart = match &job.restart_from {
                Some(RestartFrom::Job(other)) if attempt == 1 => format!("{CHECKPOINTS}/{other}"),
                Some(RestartFrom::Path(path)) if attempt == 1 => format!("{CHECKPOINTS}/{path}"),
                _ => "auto".to_owned(),
            };
            [
                "dem-solver",
                "run",
                "--simulation",
                &format!("{run}/simulation.yaml"),
                "--plan",
                &format!("{run}/plan.json"),
                "--attempt",
                &attempt.to_string(),
                "--output",
                &format!("{OUTPUT}/{name}"),
                "--checkpoints",
                &format!("{CHECKPOINTS}/{name}"),
                "--pages",
                &format!("{PAGES}/attempt-{attempt}"),
                "--input-dir",
                input,
                "--restart",
                &restart,
            ]
            .map(str::to_owned)
            .into()
        }
    }
}

/// Files that every worker gets, by name: the simulation, and the plan as the caller wrote it.
pub fn attempt_files(job: &ValidatedJob, plan_json: &str) -> BTreeMap<String, String> {
    match &job.workload {
        Workload::Program { .. } => BTreeMap::new(),
        Workload::Simulation { simulation, .. } => [
            ("simulation.yaml".to_owned(), simulation.to_yaml()),
            ("plan.json".to_owned(), plan_json.to_owned()),
        ]
        .into(),
    }
}
