//! What the launcher of an attempt is given to run.

use std::collections::BTreeMap;

use dem_crds::RestartFrom;

use super::{CHECKPOINTS, INPUT, OUTPUT, PAGES, RUN};
use crate::names;
use crate::validate::{ValidatedJob, Workload};

/// Program and arguments of every rank.
pub fn attempt_command(job: &ValidatedJob, attempt: i32) -> Vec<String> {
    let (folder, run) = (names::folder(&job.name, &job.uid), format!("{RUN}/attempt-{attempt}"));
    match &job.workload {
        Workload::Program { command, .. } => command.clone(),
        Workload::Simulation { .. } => {
            let input = if job.input_claim.is_some() { INPUT } else { OUTPUT };
            let mut command: Vec<String> = [
                "dem-solver",
                "run",
                "--simulation",
                &format!("{run}/simulation.yaml"),
                "--plan",
                &format!("{run}/plan.json"),
                "--attempt",
                &attempt.to_string(),
                "--output",
                &format!("{OUTPUT}/{folder}"),
                "--checkpoints",
                &format!("{CHECKPOINTS}/{folder}"),
                "--pages",
                &format!("{PAGES}/attempt-{attempt}"),
                "--input-dir",
                input,
            ]
            .map(str::to_owned)
            .into();
            // Said in every attempt: one that dies before its first checkpoint is followed by one that begins there too.
            if let Some(RestartFrom::Job(start) | RestartFrom::Path(start)) = &job.restart_from {
                command.extend(["--start-from".to_owned(), format!("{CHECKPOINTS}/{start}")]);
            }
            command
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
