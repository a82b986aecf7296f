//! Writes what was decided: the status if it changed, one event per transition, figures.

use std::sync::Arc;
use std::time::Duration;

use dem_crds::{Cost, DemJob, DemJobStatus, State, reasons};
use dem_plan::Plan;
use dem_plan::assess;
use dem_plan::status::{Change, change};
use dem_plan::validate::ValidatedJob;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::apply::{apply_object, plan_record};
use crate::context::{Context, FIELD_MANAGER};
use crate::error::{Error, chain};
use crate::gather::Gathered;
use crate::metrics::{JobFigures, RunFigures};
use crate::reconcile::Assessed;

/// Publishes a decision. Returns how long to wait before figures that were held back may be written; `None` when
/// nothing is.
///
/// # Errors
/// When plan or status cannot be written. A lost event is only logged: the condition says the same.
pub async fn publish(
    context: &Context,
    gathered: &Gathered,
    assessed: &Assessed,
) -> Result<Option<Duration>, Error> {
    let (job, uid, status) = (&gathered.job, &gathered.uid, &assessed.decision.status);
    let namespace = job.namespace().unwrap_or_default();
    let old = job.status.clone().unwrap_or_default();
    context.metrics.set_job(&namespace, &job.name_any(), figures(status));
    let what = match change(&old, status) {
        Change::None => return Ok(None),
        Change::Figures => {
            let interval = context.args.progress_interval();
            let left = context.memory(uid, |m| m.progress_due(interval, Instant::now()));
            if left.is_some() {
                return Ok(left);
            }
            "figures"
        }
        Change::State => "state",
    };
    if let (Some(plan), Ok(validated)) = (&assessed.plan, &assessed.validated) {
        record_plan(context, validated, status, plan).await?;
    }
    write(context, job, &namespace, status).await?;
    context.metrics.status_written(what);
    context.memory(uid, |m| m.progress_at = Some(Instant::now()));
    count_attempts(context, &old, status);
    for event in &assessed.decision.events {
        info!(reason = event.reason, "{}", event.message);
        if let Err(error) = record(context, job, &namespace, uid, event).await {
            warn!(error = chain(&error), reason = event.reason, "record an event");
        }
    }
    Ok(None)
}

/// Keeps the plan of an attempt where an operator that starts anew finds it.
async fn record_plan(
    context: &Context,
    job: &ValidatedJob,
    status: &DemJobStatus,
    plan: &Plan,
) -> Result<(), Error> {
    let attempt = status.attempt.unwrap_or(0);
    let text = Arc::new(plan.file.to_json());
    context.memory(&job.uid, |m| m.plan = Some((attempt, text.clone())));
    apply_object(context, &job.namespace, &plan_record(job, attempt, &text)).await
}

fn count_attempts(context: &Context, old: &DemJobStatus, new: &DemJobStatus) {
    if new.attempt != old.attempt {
        context.metrics.attempt("begun");
    }
    let ended = |status: &DemJobStatus| {
        status.attempts.last().filter(|a| a.ended_at.is_some()).map(|a| (a.number, a.cost, a.reason.clone()))
    };
    if let Some(now) = ended(new).filter(|now| ended(old).as_ref() != Some(now)) {
        context.metrics.attempt(match now.1 {
            Some(Cost::ProgramFailure) => "failed",
            Some(Cost::InfrastructureLoss) => "lost",
            Some(Cost::Nothing) | None if now.2.as_deref() == Some(reasons::COMPLETED) => "succeeded",
            Some(Cost::Nothing) | None => "stopped",
        });
    }
}

async fn write(context: &Context, job: &DemJob, namespace: &str, status: &DemJobStatus) -> Result<(), Error> {
    let patch = json!({
        "apiVersion": DemJob::api_version(&()),
        "kind": DemJob::kind(&()),
        // Both are preconditions: another job of the same name, or a job that changed since it was read, is a
        // conflict, and the decision is made again.
        "metadata": { "name": job.name_any(), "uid": job.uid(), "resourceVersion": job.resource_version() },
        "status": status,
    });
    let api: Api<DemJob> = Api::namespaced(context.client.clone(), namespace);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let written =
        api.patch_status(&job.name_any(), &params, &Patch::Apply(&patch)).await.map_err(Error::Status)?;
    context.written(written);
    Ok(())
}

async fn record(
    context: &Context,
    job: &DemJob,
    namespace: &str,
    uid: &str,
    event: &assess::Event,
) -> Result<(), kube::Error> {
    // The same decision about the same version of the job has the same name: written again, it is refused.
    let version = job.resource_version().unwrap_or_default();
    let hash =
        blake3::hash(format!("{uid}/{version}/{}/{}", event.reason, event.message).as_bytes()).to_hex();
    let object = Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", job.name_any(), &hash.as_str()[..16])),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        reason: Some(event.reason.clone()),
        note: Some(note(&event.message)),
        type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        regarding: Some(job.object_ref(&())),
        reporting_controller: Some("granular.dev/dem-operator".to_owned()),
        reporting_instance: Some(context.identity.clone()),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(context.client.clone(), namespace);
    match events.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(|_| ()),
    }
}

/// At most 1,024 bytes, the API's limit.
fn note(message: &str) -> String {
    if message.len() <= 1024 {
        return message.to_owned();
    }
    let mut end = 1021;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &message[..end])
}

/// The figures of a status, for Prometheus.
pub fn figures(status: &DemJobStatus) -> JobFigures {
    let runs = matches!(status.state, Some(State::Running | State::Stopping));
    JobFigures {
        state: status.state.map_or_else(|| "Unknown".to_owned(), |s| format!("{s:?}")),
        attempt: status.attempt.unwrap_or(0).into(),
        conditions: status.conditions.iter().map(|c| (c.type_.clone(), c.status == "True")).collect(),
        run: status.progress.as_ref().filter(|_| runs).map(|p| RunFigures {
            step: p.step as f64,
            steps: p.steps.map(|s| s as f64),
            particles: p.particles.map(|n| n as f64),
            steps_per_second: p.steps_per_second,
            seconds_left: p.seconds_left.map(|s| s as f64),
            imbalance: status.imbalance.as_ref().map(|i| i.lambda / 100.0),
        }),
    }
}

#[cfg(test)]
mod tests {
    use dem_crds::{Attempt, Imbalance, Progress};

    use super::*;

    fn running(step: i64) -> DemJobStatus {
        DemJobStatus {
            state: Some(State::Running),
            attempts: vec![Attempt { number: 1, last_step: Some(step), ..Attempt::default() }],
            progress: Some(Progress { step, steps_per_second: Some(2.0), ..Progress::default() }),
            imbalance: Some(Imbalance { lambda: 25.0, ..Imbalance::default() }),
            ..DemJobStatus::default()
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let cut = note(&"é".repeat(1000));
        assert!(cut.len() <= 1024 && cut.ends_with('…'));
        assert_eq!(note("short"), "short");
    }

    #[test]
    fn figures_of_a_run_are_those_of_its_status_and_end_with_it() {
        let run = figures(&running(7)).run.unwrap();
        assert_eq!(
            (run.step, run.steps_per_second, run.imbalance, run.seconds_left),
            (7.0, Some(2.0), Some(0.25), None)
        );
        let ended = DemJobStatus { state: Some(State::Failed), ..running(7) };
        assert_eq!(figures(&ended).run, None);
    }
}
