//! One pass over one job: gather, assess, publish, apply.
//!
//! `gather` includes what became of the pods ([`crate::observe`]), and `assess` the plan of a new attempt
//! ([`crate::placement`]); both halves of `dem-plan` are pure. `publish` comes before `apply`: a decision is on record
//! before it is acted on, so an operator that dies in between repeats an action at most, never a decision.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dem_crds::DemJob;
use dem_plan::assess::{self, Decision, Input};
use dem_plan::status::terminal;
use dem_plan::validate::{Problem, ValidatedJob, validate};
use dem_plan::{ClusterView, Plan};
use kube::ResourceExt;
use kube::core::DeserializeGuard;
use kube::runtime::controller::Action;
use tokio::time::Instant;
use tracing::{Instrument, error, info_span, warn};

use crate::apply::apply;
use crate::context::Context;
use crate::error::{Class, Error, backoff, chain};
use crate::gather::{self, Gathered, gather};
use crate::placement;
use crate::publish::publish;

/// A job that needs nothing is still looked at now and then: watches can miss things.
const RESYNC: Duration = Duration::from_secs(600);

/// Longest pass. A plan of many millions of particles and a thousand new pods fit; something that hangs must not hold up
/// its job until the operator is restarted.
const PASS: Duration = Duration::from_secs(180);

/// What the controller calls for every job that may have changed.
///
/// # Errors
/// Those of the steps; [`error_policy`] says when to try again.
pub async fn reconcile(guard: Arc<DeserializeGuard<DemJob>>, context: Arc<Context>) -> Result<Action, Error> {
    let began = Instant::now();
    context.metrics.reconcile_begins();
    let span = info_span!("job", namespace = guard.namespace(), name = guard.name_any());
    let result = match &guard.0 {
        Ok(job) => {
            let pass = tokio::time::timeout(PASS, pass(&context, job));
            // What was not done is decided anew: every action may be repeated.
            pass.instrument(span).await.unwrap_or(Err(Error::Overdue(PASS)))
        }
        Err(invalid) => {
            span.in_scope(|| warn!(error = %invalid.error, "the stored job cannot be read; skipping it"));
            Ok(Action::await_change())
        }
    };
    context.metrics.reconcile_ends(result.as_ref().map_or_else(Error::reason, |_| "ok"), began.elapsed());
    if let (Ok(_), Some(uid)) = (&result, guard.uid()) {
        context.memory(&uid, |m| m.failures = 0);
    }
    result
}

/// The pass itself.
async fn pass(context: &Arc<Context>, job: &DemJob) -> Result<Action, Error> {
    let gathered = Arc::new(gather(context, job).await?);
    let placing = if may_plan(&gathered.job) { Some(context.placing.lock().await) } else { None };
    let assessed = decide(context, &gathered, placing.is_some()).await?;
    let held_back = publish(context, &gathered, &assessed).await?;
    drop(placing);
    apply(context, &gathered, &assessed).await?;
    Ok(next(&assessed.decision, held_back))
}

/// When to look again.
fn next(decision: &Decision, held_back: Option<Duration>) -> Action {
    let due = decision.requeue.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
    Action::requeue(due.into_iter().chain(held_back).min().unwrap_or(RESYNC))
}

/// A decision, and what it was made from that later steps need.
pub struct Assessed {
    /// What follows.
    pub decision: Decision,
    /// The job validated, or what is wrong with it.
    pub validated: Result<ValidatedJob, Vec<Problem>>,
    /// The plan of the attempt that begins with this decision.
    pub plan: Option<Arc<Plan>>,
}

/// Whether a decision about this job may choose nodes.
fn may_plan(job: &DemJob) -> bool {
    // Many suspended jobs must not queue for the lock.
    if job.spec.suspend {
        return false;
    }
    let Some(status) = &job.status else { return true };
    !terminal(status) && status.attempts.last().is_none_or(|attempt| attempt.ended_at.is_some())
}

/// Decides away from the asynchronous threads: planning a million particles takes seconds.
async fn decide(context: &Arc<Context>, gathered: &Arc<Gathered>, may_plan: bool) -> Result<Assessed, Error> {
    let cluster = if may_plan { gather::cluster(context, &gathered.uid).map(Some) } else { Ok(None) };
    let (context, gathered) = (context.clone(), gathered.clone());
    let task = tokio::task::spawn_blocking(move || {
        let settings = &context.settings;
        let validated = validate(&gathered.job, &gathered.references, settings);
        let made = Mutex::new(None);
        let planner = |job: &ValidatedJob, avoid: &[String]| {
            let mut cluster = match &cluster {
                Ok(Some(cluster)) => cluster.clone(),
                Ok(None) => return Err("the cluster was not looked at".to_owned()),
                Err(unreadable) => return Err(unreadable.to_string()),
            };
            cluster.retain(|node| !avoid.iter().any(|a| a == node));
            let plan = plan(&context, job, &cluster)?;
            let status = placement::plan_status(&plan);
            *made.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(plan));
            Ok(status)
        };
        let decision = assess::assess(&Input {
            job: &gathered.job,
            validated: validated.as_ref().map_err(Vec::as_slice),
            observed: &gathered.observed,
            settings,
            planner: &planner,
        });
        let before = gathered.job.status.as_ref().and_then(|s| s.attempt);
        let begins = decision.status.attempt != before;
        let plan = made.into_inner().unwrap_or_else(PoisonError::into_inner).filter(|_| begins);
        Assessed { decision, validated, plan }
    });
    Ok(task.await?)
}

/// Plans a job.
fn plan(context: &Context, job: &ValidatedJob, cluster: &ClusterView) -> Result<Plan, String> {
    let began = std::time::Instant::now();
    // A job that waits for nodes is looked at often: its particles are generated when they fit.
    placement::fits(job, cluster)?;
    let halo = placement::halo(job, &dem_config::Files::new())?;
    let plan = placement::place(job, halo, cluster);
    context.metrics.planned(began.elapsed());
    plan
}

/// When to try again after an error.
pub fn error_policy(guard: Arc<DeserializeGuard<DemJob>>, error: &Error, context: Arc<Context>) -> Action {
    let uid = guard.uid().unwrap_or_default();
    let failures = context.memory(&uid, |m| {
        m.failures = m.failures.saturating_add(1);
        m.failures
    });
    let class = error.class();
    let spread = f64::from(blake3::hash(uid.as_bytes()).as_bytes()[0]) / 255.0;
    let again = backoff(class, failures, spread);
    let (namespace, name) = (guard.namespace(), guard.name_any());
    let error = chain(error);
    match class {
        Class::Conflict => {
            tracing::debug!(namespace, name, error, "somebody else wrote; looking again")
        }
        Class::Transient => warn!(namespace, name, error, failures, ?again, "reconcile"),
        Class::Refused | Class::Forbidden | Class::Bug => {
            error!(namespace, name, error, failures, ?again, "reconcile");
        }
    }
    Action::requeue(again)
}
