//! Writing a status: conditions that keep their transition times, and what kind of change one status is to another.

use dem_crds::{DemJobStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::observed::Seconds;

/// Longest message of a condition [characters].
const MESSAGE: usize = 1024;

/// How a new status differs from the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Not at all: nothing is written.
    None,
    /// In figures and texts that may change all the time: written every few seconds at most.
    Figures,
    /// In what the next decision rests on, or in the state of a condition: written at once.
    State,
}

/// Compares a status with the published one.
pub fn change(published: &DemJobStatus, new: &DemJobStatus) -> Change {
    if published == new {
        return Change::None;
    }
    let bare = |status: &DemJobStatus| {
        let mut status = status.clone();
        status.progress = None;
        status.imbalance = None;
        status.workers.iter_mut().for_each(|worker| worker.ended = false);
        for condition in &mut status.conditions {
            condition.message.clear();
        }
        status
    };
    if bare(published) == bare(new) { Change::Figures } else { Change::State }
}

/// Whether decisions differ that must be on record before anything is done about them.
pub(crate) fn decided(old: &DemJobStatus, new: &DemJobStatus) -> bool {
    let members = |status: &DemJobStatus| {
        status.workers.iter().map(|w| (w.pod.clone(), w.uid.clone())).collect::<Vec<_>>()
    };
    old.attempt != new.attempt
        || old.attempts != new.attempts
        || members(old) != members(new)
        || old.finished_at != new.finished_at
        || old.suspended_at != new.suspended_at
        || (old.program_failures, old.infrastructure_losses)
            != (new.program_failures, new.infrastructure_losses)
}

/// Whether the job has ended, for good.
pub fn terminal(status: &DemJobStatus) -> bool {
    is_true(status, conditions::SUCCEEDED) || is_true(status, conditions::FAILED)
}

/// Whether a condition is True.
pub fn is_true(status: &DemJobStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition.status == "True")
}

/// The condition of a type.
pub fn condition<'a>(status: &'a DemJobStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition. Its transition time changes only with its state. Returns whether state or reason changed.
pub(crate) fn set_condition(
    status: &mut DemJobStatus,
    type_: &str,
    holds: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Seconds,
) -> bool {
    let value = if holds { "True" } else { "False" };
    let message: String = message.chars().take(MESSAGE).collect();
    let new = |transition: Time| Condition {
        type_: type_.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.clone(),
        observed_generation: generation,
        last_transition_time: transition,
    };
    match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(old) => {
            let turned = old.status != value;
            let changed = turned || old.reason != reason;
            let since = if turned { time(now) } else { old.last_transition_time.clone() };
            *old = new(since);
            changed
        }
        None => {
            status.conditions.push(new(time(now)));
            status.conditions.sort_by_key(|condition| order(&condition.type_));
            true
        }
    }
}

/// Conditions stand in the order of a job's life.
fn order(type_: &str) -> usize {
    [
        conditions::ADMITTED,
        conditions::PLANNED,
        conditions::PODS_SCHEDULED,
        conditions::WORKERS_REACHABLE,
        conditions::BINDING_VERIFIED,
        conditions::RUNNING,
        conditions::CHECKPOINTED,
        conditions::SUSPENDED,
        conditions::RESTARTING,
        conditions::SUCCEEDED,
        conditions::FAILED,
    ]
    .iter()
    .position(|known| *known == type_)
    .unwrap_or(usize::MAX)
}

/// Seconds since the epoch as an API time.
pub(crate) fn time(seconds: Seconds) -> Time {
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// An API time as seconds since the epoch.
pub(crate) fn seconds(time: &Time) -> Seconds {
    time.0.as_second()
}

/// The column Step: "step/steps", or the step alone where the end is not known.
pub fn step_label(step: i64, steps: Option<i64>) -> String {
    match steps {
        Some(steps) => format!("{step}/{steps}"),
        None => step.to_string(),
    }
}
