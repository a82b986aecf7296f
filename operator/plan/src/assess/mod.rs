//! The attempt state machine: from a job, its last status and what is observed, to the next status and what to do.
//!
//! A pure function. Nothing is remembered but the status, so that an operator that starts anew decides the same.
//! **A decision is written before it is acted on**: when attempt, membership or budgets change, the decision has
//! no actions, the caller publishes the status, and the next call acts. An operator that dies in between repeats at
//! most an action that has a name (create) or a UID (delete), never a decision.
//!
//! ```text
//!            invalid ──► Invalid           suspend ──► Stopping ──► Suspended
//!               ▲                                          ▲            │ resume
//!  new ──► Waiting ──plan──► Starting ──launch──► Running ──┘            │
//!               ▲                 │                  │ │  exit 0         │
//!               └── Restarting ◄──┴── fault ─────────┘ └──► Succeeded    │
//!               ▲         │ budget used up, deadline, configuration      │
//!               │         └──► Failed                                    │
//!               └────────────────────────────────────────────────────────┘
//! ```
//!
//! At most one attempt can commit (design rule 2): the next attempt is planned only when no process of the last one
//! can hold a valid lease, or when the worker that holds it will be told the higher number first; see `Machine::fence`.

mod between;
mod end;
mod fault;
mod live;
mod pods;

use dem_crds::{Attempt, DemJob, DemJobStatus, PlanStatus, State, reasons};

use crate::observed::{Observed, Seconds};
use crate::render::{Settings, WorkerPlace};
use crate::status::{condition, decided, seconds, set_condition, terminal};
use crate::validate::{Problem, ValidatedJob, Workload, managed_by_other};

/// Added to leases, for clocks that run at slightly different rates [s].
const LEASE_MARGIN: Seconds = 2;

/// Chooses nodes: given the names of nodes to avoid, a plan, or why there is none. It counts the job's own pods as
/// free, and must give the same answer for the same cluster.
pub type Planner<'a> = dyn Fn(&ValidatedJob, &[String]) -> Result<PlanStatus, String> + 'a;

/// What to do next. Every action may be repeated without harm.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create a worker pod; one of that name may exist already.
    CreateWorker(WorkerPlace),
    /// Create the launcher pod of an attempt; it may exist already.
    CreateLauncher {
        /// The attempt.
        attempt: i32,
    },
    /// Give the launcher the attempt: workers (`status.workers`, `status.plan`), files, command, leases.
    PushAttempt {
        /// The attempt.
        attempt: i32,
    },
    /// Renew the launcher's lease.
    RenewLauncher {
        /// The attempt.
        attempt: i32,
    },
    /// Ask the ranks to write a checkpoint and stop.
    StopLauncher {
        /// The attempt.
        attempt: i32,
        /// One of [`reasons`].
        reason: String,
    },
    /// Delete a pod, if it still has that UID.
    DeletePod {
        /// Name.
        name: String,
        /// UID, as a precondition.
        uid: String,
    },
    /// Delete the DemJob.
    DeleteJob,
}

/// An event to record once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// It tells of something wrong.
    pub warning: bool,
    /// One of [`reasons`].
    pub reason: String,
    /// One sentence.
    pub message: String,
}

/// What follows from an observation.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The status from now on. Publish it before the actions; see [`crate::status::change`].
    pub status: DemJobStatus,
    /// What to do.
    pub actions: Vec<Action>,
    /// What to tell.
    pub events: Vec<Event>,
    /// When to look again at the latest [s]; None: only when something changes.
    pub requeue: Option<Seconds>,
}

/// What an assessment rests on.
pub struct Input<'a> {
    /// The job with its last published status.
    pub job: &'a DemJob,
    /// The job validated, or what is wrong with it.
    pub validated: Result<&'a ValidatedJob, &'a [Problem]>,
    /// What was seen.
    pub observed: &'a Observed,
    /// What the installation decides.
    pub settings: &'a Settings,
    /// Chooses nodes.
    pub planner: &'a Planner<'a>,
}

/// Decides what a job needs next.
pub fn assess(input: &Input<'_>) -> Decision {
    let old = input.job.status.clone().unwrap_or_default();
    if managed_by_other(input.job) || input.job.metadata.deletion_timestamp.is_some() {
        return Decision { status: old, actions: Vec::new(), events: Vec::new(), requeue: None };
    }
    let mut machine = Machine {
        input,
        observed: input.observed,
        now: input.observed.now,
        name: input.job.metadata.name.as_deref().unwrap_or_default(),
        status: old.clone(),
        actions: Vec::new(),
        events: Vec::new(),
        requeue: None,
    };
    machine.status.observed_generation = input.job.metadata.generation;
    if terminal(&old) {
        machine.status.observed_generation = old.observed_generation;
        machine.after_end();
    } else {
        match machine.status.attempts.last().filter(|attempt| attempt.ended_at.is_none()).cloned() {
            Some(attempt) => machine.live(attempt),
            None => machine.between(),
        }
    }
    let Machine { status, mut actions, events, mut requeue, .. } = machine;
    if decided(&old, &status) {
        actions.clear();
        requeue = Some(0);
    }
    Decision { status, actions, events, requeue }
}

struct Machine<'a> {
    input: &'a Input<'a>,
    observed: &'a Observed,
    now: Seconds,
    name: &'a str,
    status: DemJobStatus,
    actions: Vec<Action>,
    events: Vec<Event>,
    requeue: Option<Seconds>,
}

impl Machine<'_> {
    fn fixed_part_problem(&self, job: &ValidatedJob) -> Option<String> {
        let started = self.status.simulation_hash.as_ref()?;
        let same = matches!(&job.workload, Workload::Simulation { hash, .. } if hash == started);
        (!same).then(|| {
            "domain, gravity, materials, contact model, particles, walls or time step differ from those that the job started with: put them back, or create a new DemJob".to_owned()
        })
    }

    fn start_deadline(&self) -> Seconds {
        i64::from(self.input.job.spec.start_deadline_seconds)
    }

    fn active_deadline_passed(&self) -> bool {
        let (Some(limit), Some(started)) =
            (self.input.job.spec.active_deadline_seconds, self.status.started_at.as_ref())
        else {
            return false;
        };
        self.now - seconds(started) - self.status.suspended_seconds >= limit
    }

    fn change_attempt(&mut self, change: impl FnOnce(&mut Attempt, Seconds)) {
        let now = self.now;
        if let Some(attempt) = self.status.attempts.last_mut() {
            change(attempt, now);
        }
    }

    fn condition(&mut self, type_: &str, holds: bool, reason: &str, message: &str) {
        self.condition_changed(type_, holds, reason, message);
    }

    fn condition_changed(&mut self, type_: &str, holds: bool, reason: &str, message: &str) -> bool {
        let generation = self.input.job.metadata.generation;
        // A waiting job's message may say how long; that alone is no reason to write.
        let counting = reason == reasons::BACKING_OFF
            && condition(&self.status, type_).is_some_and(|c| c.reason == reason && c.status == "False");
        if counting {
            return false;
        }
        set_condition(&mut self.status, type_, holds, reason, message, generation, self.now)
    }

    fn state(&mut self, state: State, reason: &str) {
        self.status.state = Some(state);
        self.status.reason = Some(reason.to_owned());
    }

    fn event(&mut self, warning: bool, reason: &str, message: &str) {
        self.events.push(Event { warning, reason: reason.to_owned(), message: message.to_owned() });
    }

    /// Looks again after at most so long.
    fn wake_in(&mut self, after: Seconds) {
        let after = after.max(0);
        self.requeue = Some(self.requeue.map_or(after, |old| old.min(after)));
    }
}

/// The shortest list of names that explains something: three, and how many more.
fn shortest(names: &[&str]) -> String {
    let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(3) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn list(problems: &[Problem]) -> String {
    let shown = problems.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match problems.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}
