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

use dem_crds::{
    Attempt, CleanPodPolicy, Cost, DemJob, DemJobStatus, Failure, PlanStatus, State, Worker, conditions,
    reasons,
};

use crate::names;
use crate::observed::{
    Conclusion, Fault, FaultKind, LauncherPhase, LauncherReport, Observed, Outcome, Pod, PodPhase, Seconds,
};
use crate::render::{Settings, WorkerPlace, shape_hash};
use crate::status::{condition, decided, seconds, set_condition, step_label, terminal, time};
use crate::validate::{Problem, ValidatedJob, Workload, managed_by_other};

/// A launcher that does not answer for so long is lost [s].
const LAUNCHER_SILENCE: Seconds = 60;
/// A node is avoided for so long after a loss on it [s].
const AVOID: Seconds = 600;
/// An image that cannot be pulled for so long ends the job [s].
const IMAGE_PATIENCE: Seconds = 120;
/// Longest pause between attempts [s].
const LONGEST_PAUSE: Seconds = 300;
/// Pods are kept through a pause of at most so long [s].
const KEEP_THROUGH: Seconds = 30;
/// Added to leases, for clocks that run at slightly different rates [s].
const LEASE_MARGIN: Seconds = 2;
/// Attempts kept in the status.
const ATTEMPTS: usize = 10;
/// Reasons with which a kubelet refuses a pod that the scheduler had bound.
const KUBELET_REFUSALS: [&str; 8] = [
    "TopologyAffinityError",
    "SMTAlignmentError",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "NodeAffinity",
    "NodeShutdown",
];

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
    // ---- an attempt that has not ended ----

    fn live(&mut self, attempt: Attempt) {
        self.wake_in(5);
        if let Ok(job) = self.input.validated {
            match self.fixed_part_problem(job) {
                Some(message) => {
                    self.condition(conditions::ADMITTED, false, reasons::FIXED_AFTER_START, &message)
                }
                None => {
                    self.condition(conditions::ADMITTED, true, reasons::VALID, "the specification is valid")
                }
            }
        } else if let Err(problems) = self.input.validated {
            let message = format!("the running attempt goes on as it is; {}", list(problems));
            self.condition(conditions::ADMITTED, false, reasons::INVALID_SPEC, &message);
        }
        let launched = attempt.launched_at.is_some();
        let launcher = self.observed.launchers.get(&names::launcher(self.name, attempt.number));
        let ours = |pod: &&Pod| attempt.launcher.as_deref().is_none_or(|uid| uid == pod.uid);
        let launcher = launcher.filter(ours);
        let report = self
            .observed
            .launcher
            .as_ref()
            .filter(|report| launched && attempt.launcher.as_deref() == Some(report.uid.as_str()));
        if let Some(report) = report {
            self.take_figures(report);
        }
        let outcome = report
            .and_then(|report| report.outcome.as_ref())
            .or_else(|| launcher.filter(|_| launched).and_then(|pod| pod.outcome.as_ref()));
        if let Some(outcome) = outcome {
            return self.conclude(&attempt, outcome, report);
        }
        if let Some(fault) = self.configuration_fault(&attempt, launched) {
            return self.end(&attempt, fault, None);
        }
        if let Some(fault) = self.lost_worker(&attempt, launched) {
            return self.end(&attempt, fault, None);
        }
        if let Some(fault) = self.lost_launcher(&attempt, launcher, launched) {
            return self.end(&attempt, fault, None);
        }
        if let (Some(since), Some(reason)) = (&attempt.stop_requested_at, &attempt.stop_reason) {
            let limit = seconds(since) + self.input.settings.grace + self.input.settings.worker_lease;
            if self.now >= limit {
                let reason = reason.clone();
                return self.stop_ended(&attempt, &reason, None);
            }
            self.wake_in(limit - self.now);
        }
        if attempt.stop_reason.is_none() {
            let wanted = if self.input.job.spec.suspend {
                Some(reasons::SUSPENDED)
            } else if self.active_deadline_passed() {
                Some(reasons::ACTIVE_DEADLINE)
            } else {
                None
            };
            if let Some(reason) = wanted {
                if !launched {
                    return self.stop_ended(&attempt, reason, None);
                }
                self.change_attempt(|attempt, now| {
                    attempt.stop_reason = Some(reason.to_owned());
                    attempt.stop_requested_at = Some(time(now));
                });
                self.state(State::Stopping, reason);
                return;
            }
        }
        let deadline = attempt.started_at.as_ref().map_or(self.now, seconds) + self.start_deadline();
        if attempt.running_at.is_none() && attempt.stop_reason.is_none() {
            if self.now >= deadline {
                let fault = self.start_fault(&attempt, report);
                return self.end(&attempt, fault, None);
            }
            self.wake_in(deadline - self.now);
        }
        if launched {
            self.run(&attempt, report);
        } else {
            self.start(&attempt, launcher);
        }
    }

    /// Creates what is missing; launches when all is there.
    fn start(&mut self, attempt: &Attempt, launcher: Option<&Pod>) {
        self.state(State::Starting, reasons::STARTING);
        self.condition(conditions::RUNNING, false, reasons::STARTING, "no rank runs yet");
        let strays = self.delete_strays(attempt.number);
        let members = self.status.workers.clone();
        let mut unbound = Vec::new();
        let mut not_running = Vec::new();
        let mut uids = Vec::new();
        for (index, worker) in members.iter().enumerate() {
            match self.observed.workers.get(&worker.pod) {
                None => {
                    self.actions.push(Action::CreateWorker(WorkerPlace {
                        pod: worker.pod.clone(),
                        index,
                        node: worker.node.clone(),
                        ranks: worker.ranks.unsigned_abs(),
                    }));
                    unbound.push(worker.pod.as_str());
                }
                Some(pod) => {
                    if pod.node.is_none() {
                        unbound.push(worker.pod.as_str());
                    }
                    if pod.phase != PodPhase::Running || pod.ip.is_none() {
                        not_running.push(worker.pod.as_str());
                    }
                    uids.push(pod.uid.clone());
                }
            }
        }
        if launcher.is_none() {
            self.actions.push(Action::CreateLauncher { attempt: attempt.number });
        }
        let launcher_runs = launcher.filter(|pod| pod.phase == PodPhase::Running && pod.ip.is_some());
        if launcher.is_some_and(|pod| pod.node.is_none()) {
            unbound.push("the launcher");
        }
        if unbound.is_empty() {
            self.condition(
                conditions::PODS_SCHEDULED,
                true,
                reasons::READY,
                "all pods are bound to their nodes",
            );
        } else {
            let message = format!("not bound to a node yet: {}", shortest(&unbound));
            self.condition(conditions::PODS_SCHEDULED, false, reasons::STARTING, &message);
        }
        let waiting = if !not_running.is_empty() {
            let why = not_running.iter().find_map(|name| {
                let (reason, text) = self.observed.workers.get(*name)?.waiting.as_ref()?;
                Some(format!(" ({reason}: {text})"))
            });
            format!("not running yet: {}{}", shortest(&not_running), why.unwrap_or_default())
        } else if launcher_runs.is_none() {
            "the launcher is not running yet".to_owned()
        } else {
            "workers are about to be reached".to_owned()
        };
        self.condition(conditions::WORKERS_REACHABLE, false, reasons::STARTING, &waiting);
        let ready = unbound.is_empty() && not_running.is_empty() && uids.len() == members.len() && !strays;
        if let Some(pod) = launcher_runs.filter(|_| ready) {
            let uid = pod.uid.clone();
            for (worker, uid) in self.status.workers.iter_mut().zip(uids) {
                worker.uid = Some(uid);
                worker.ended = false;
            }
            self.change_attempt(|attempt, now| {
                attempt.launcher = Some(uid);
                attempt.launched_at = Some(time(now));
            });
        }
    }

    /// Keeps a launched attempt going and reports it.
    fn run(&mut self, attempt: &Attempt, report: Option<&LauncherReport>) {
        let number = attempt.number;
        let phase = report.map(|report| report.phase);
        self.wake_in(2);
        match phase {
            None | Some(LauncherPhase::Waiting) => {
                self.actions.push(Action::PushAttempt { attempt: number });
                if attempt.running_at.is_none() {
                    self.state(State::Starting, reasons::STARTING);
                }
            }
            Some(LauncherPhase::Reaching) => {
                self.state(State::Starting, reasons::STARTING);
                let names: Vec<&str> =
                    report.map(|r| r.unreachable.iter().map(String::as_str).collect()).unwrap_or_default();
                let message = if names.is_empty() {
                    "workers are being reached".to_owned()
                } else {
                    format!("does not answer yet: {}", shortest(&names))
                };
                self.condition(conditions::WORKERS_REACHABLE, false, reasons::WORKER_UNREACHABLE, &message);
            }
            Some(LauncherPhase::Running) => {
                self.state(State::Running, reasons::RUNNING);
                self.condition(conditions::WORKERS_REACHABLE, true, reasons::READY, "every worker answers");
                let message = format!("attempt {number} runs on {} nodes", self.status.workers.len());
                self.condition(conditions::RUNNING, true, reasons::RUNNING, &message);
                if self.status.conditions.iter().any(|c| c.type_ == conditions::RESTARTING) {
                    self.condition(conditions::RESTARTING, false, reasons::RUNNING, &message);
                }
                match report.and_then(|report| report.binding.clone()) {
                    Some(Ok(())) => {
                        self.condition(
                            conditions::BINDING_VERIFIED,
                            true,
                            reasons::READY,
                            "ranks are bound as asked",
                        );
                    }
                    Some(Err(why)) => {
                        self.condition(conditions::BINDING_VERIFIED, false, reasons::CONFIG_ERROR, &why);
                    }
                    None => {}
                }
                let start = report.and_then(|report| report.start_step);
                if attempt.running_at.is_none() || (attempt.start_step.is_none() && start.is_some()) {
                    self.change_attempt(|attempt, now| {
                        attempt.running_at.get_or_insert(time(now));
                        attempt.start_step = attempt.start_step.or(start);
                    });
                }
            }
            Some(LauncherPhase::Stopping | LauncherPhase::Ended) => {
                self.state(State::Stopping, attempt.stop_reason.as_deref().unwrap_or(reasons::STOPPING));
            }
        }
        if let Some(reason) = &attempt.stop_reason {
            self.state(State::Stopping, reason);
            let message = format!("ranks write a checkpoint and stop: {reason}");
            self.condition(conditions::RUNNING, false, reasons::STOPPING, &message);
            self.actions.push(Action::StopLauncher { attempt: number, reason: reason.clone() });
        }
        let lease = self.input.settings.launcher_lease;
        let due = self.observed.last_renewed.is_none_or(|last| self.now - last >= lease / 4);
        if due && phase.is_some_and(|phase| phase != LauncherPhase::Waiting) {
            self.actions.push(Action::RenewLauncher { attempt: number });
        }
    }

    fn take_figures(&mut self, report: &LauncherReport) {
        if let Some(progress) = &report.progress {
            let mut progress = progress.clone();
            let known = self.status.progress.as_ref().and_then(|old| old.last_checkpoint_step);
            progress.last_checkpoint_step = progress.last_checkpoint_step.or(known);
            if let Some(step) = progress.last_checkpoint_step {
                if self.checkpoints_stay() {
                    let message = format!("the checkpoint of step {step} is complete");
                    self.condition(conditions::CHECKPOINTED, true, reasons::READY, &message);
                } else {
                    progress.last_checkpoint_step = None;
                    let message = "checkpoints end with the workers that wrote them; give checkpoint.volume";
                    self.condition(conditions::CHECKPOINTED, false, reasons::NO_VOLUME, message);
                }
            }
            self.status.progress = Some(progress);
        }
        if report.imbalance.is_some() {
            self.status.imbalance.clone_from(&report.imbalance);
        }
    }

    /// Whether a later attempt finds the checkpoints of this one.
    fn checkpoints_stay(&self) -> bool {
        self.input.job.spec.checkpoint.as_ref().is_some_and(|c| c.volume.is_some())
    }

    // ---- faults ----

    /// What can never work, seen on the job's pods before the launch.
    fn configuration_fault(&self, attempt: &Attempt, launched: bool) -> Option<Fault> {
        if launched {
            return None;
        }
        let launcher = names::launcher(self.name, attempt.number);
        let workers =
            self.status.workers.iter().filter_map(|w| Some((&w.pod, self.observed.workers.get(&w.pod)?)));
        let launchers = self.observed.launchers.get_key_value(&launcher).into_iter();
        workers.chain(launchers).find_map(|(name, pod)| {
            let (reason, text) = pod.waiting.as_ref()?;
            let kind = match reason.as_str() {
                "InvalidImageName" | "ErrImageNeverPull" => reasons::IMAGE_ERROR,
                "ImagePullBackOff" | "ErrImagePull" if self.now - pod.created >= IMAGE_PATIENCE => {
                    reasons::IMAGE_ERROR
                }
                "CreateContainerConfigError" if self.now - pod.created >= IMAGE_PATIENCE => {
                    reasons::CONFIG_ERROR
                }
                "RunContainerError" | "CreateContainerError" => reasons::COMMAND_ERROR,
                _ => return None,
            };
            let node = pod.node.clone().unwrap_or_default();
            Some(Fault::of_pod(
                FaultKind::Configuration,
                kind,
                format!("{name}: {reason}: {text}"),
                name,
                &node,
            ))
        })
    }

    /// The first worker that is lost, in the plan's order.
    fn lost_worker(&self, attempt: &Attempt, launched: bool) -> Option<Fault> {
        self.status.workers.iter().find_map(|worker| self.worker_fault(attempt, worker, launched))
    }

    fn worker_fault(&self, attempt: &Attempt, worker: &Worker, launched: bool) -> Option<Fault> {
        let lost = |reason: &str, what: String| {
            Some(Fault::of_pod(
                FaultKind::Infrastructure,
                reason,
                format!("worker {}: {what}", worker.pod),
                &worker.pod,
                &worker.node,
            ))
        };
        match self.observed.nodes.get(&worker.node) {
            None => return lost(reasons::NODE_LOST, format!("node {} is gone", worker.node)),
            Some(node) if !node.ready => {
                return lost(reasons::NODE_LOST, format!("node {} is not ready", worker.node));
            }
            Some(_) => {}
        }
        let Some(pod) = self.observed.workers.get(&worker.pod) else {
            // A worker kept from an earlier attempt has a UID before the launch, and is not made anew.
            let expected = launched || worker.uid.is_some();
            return if expected { lost(reasons::WORKER_LOST, "its pod is gone".to_owned()) } else { None };
        };
        if worker.uid.as_ref().is_some_and(|uid| *uid != pod.uid) {
            return lost(reasons::WORKER_LOST, "its pod was replaced by another of the same name".to_owned());
        }
        let refused = pod.reason.as_deref().is_some_and(|r| KUBELET_REFUSALS.contains(&r));
        match pod.phase {
            PodPhase::Failed if refused && attempt.running_at.is_none() => lost(
                reasons::NODE_REFUSED_POD,
                format!("the kubelet refused it: {}", pod.reason.as_deref().unwrap_or_default()),
            ),
            PodPhase::Failed if pod.out_of_memory => Some(Fault::of_pod(
                FaultKind::Program,
                reasons::OUT_OF_MEMORY,
                format!("worker {}: its memory limit was reached; raise resources.memoryPerRank", worker.pod),
                &worker.pod,
                &worker.node,
            )),
            PodPhase::Failed | PodPhase::Succeeded => {
                let why = pod.reason.clone().unwrap_or_else(|| "its agent ended".to_owned());
                lost(reasons::WORKER_LOST, why)
            }
            // Ranks of a worker that is being deleted write a checkpoint first; the launcher tells how that went.
            _ if pod.deleting && (!launched || pod.terminated) => {
                lost(reasons::WORKER_LOST, "its pod is being deleted".to_owned())
            }
            _ => None,
        }
    }

    fn lost_launcher(&self, attempt: &Attempt, pod: Option<&Pod>, launched: bool) -> Option<Fault> {
        let name = names::launcher(self.name, attempt.number);
        let lost = |reason: &str, what: &str, node: Option<&String>| {
            Some(Fault {
                kind: FaultKind::Infrastructure,
                reason: reason.to_owned(),
                message: format!("launcher {name}: {what}"),
                rank: None,
                pods: vec![name.clone()],
                nodes: node.cloned().into_iter().collect(),
                exit_code: None,
                signal: None,
                last_lines: Vec::new(),
            })
        };
        let Some(pod) = pod else {
            return if launched { lost(reasons::LAUNCHER_LOST, "its pod is gone", None) } else { None };
        };
        let node = pod.node.as_ref();
        if let Some(on) = node
            && self.observed.nodes.get(on).is_none_or(|node| !node.ready)
        {
            return lost(reasons::NODE_LOST, "its node is gone or not ready", node);
        }
        match pod.phase {
            PodPhase::Failed | PodPhase::Succeeded => {
                lost(reasons::LAUNCHER_LOST, "it ended without a report", None)
            }
            _ if pod.deleting && !launched => lost(reasons::LAUNCHER_LOST, "its pod is being deleted", None),
            _ if launched && self.observed.launcher_silent >= LAUNCHER_SILENCE => {
                lost(reasons::LAUNCHER_UNREACHABLE, "it does not answer", node)
            }
            _ => None,
        }
    }

    /// Why an attempt did not start in time.
    fn start_fault(&self, attempt: &Attempt, report: Option<&LauncherReport>) -> Fault {
        let members = || self.status.workers.iter();
        let pod = |worker: &Worker| self.observed.workers.get(&worker.pod).cloned();
        let unbound: Vec<&str> = members()
            .filter(|worker| pod(worker).is_none_or(|pod| pod.node.is_none()))
            .map(|worker| worker.pod.as_str())
            .collect();
        let stuck: Vec<(&str, &str)> = members()
            .filter(|worker| {
                pod(worker).is_some_and(|pod| pod.node.is_some() && pod.phase != PodPhase::Running)
            })
            .map(|worker| (worker.pod.as_str(), worker.node.as_str()))
            .collect();
        let unreachable = report.map(|report| report.unreachable.clone()).unwrap_or_default();
        let limit = self.start_deadline();
        let (what, pods): (String, Vec<String>) = if attempt.launched_at.is_some() {
            let names: Vec<&str> = unreachable.iter().map(String::as_str).collect();
            let who = if names.is_empty() { "the launcher".to_owned() } else { shortest(&names) };
            (format!("did not answer within {limit} s: {who}"), unreachable.clone())
        } else if !unbound.is_empty() {
            (
                format!("not bound to a node within {limit} s: {}", shortest(&unbound)),
                unbound.iter().map(|name| (*name).to_owned()).collect(),
            )
        } else if !stuck.is_empty() {
            let names: Vec<&str> = stuck.iter().map(|(pod, _)| *pod).collect();
            (
                format!("did not run within {limit} s: {}", shortest(&names)),
                names.iter().map(|name| (*name).to_owned()).collect(),
            )
        } else {
            (format!("the launcher did not run within {limit} s"), Vec::new())
        };
        let nodes =
            members().filter(|worker| pods.contains(&worker.pod)).map(|worker| worker.node.clone()).collect();
        Fault {
            kind: FaultKind::Infrastructure,
            reason: reasons::START_DEADLINE.to_owned(),
            message: what,
            rank: None,
            pods,
            nodes,
            exit_code: None,
            signal: None,
            last_lines: Vec::new(),
        }
    }

    // ---- the end of an attempt ----

    fn conclude(&mut self, attempt: &Attempt, outcome: &Outcome, report: Option<&LauncherReport>) {
        for worker in &mut self.status.workers {
            worker.ended |= outcome.ended.contains(&worker.pod);
        }
        match &outcome.conclusion {
            Conclusion::Succeeded => self.succeed(attempt, outcome),
            Conclusion::Stopped => match &attempt.stop_reason {
                Some(reason) => self.stop_ended(attempt, &reason.clone(), Some(outcome)),
                None => {
                    let leaving: Vec<Worker> = self
                        .status
                        .workers
                        .iter()
                        .filter(|worker| {
                            self.observed
                                .workers
                                .get(&worker.pod)
                                .is_none_or(|pod| pod.deleting || pod.terminated)
                        })
                        .cloned()
                        .collect();
                    let names: Vec<&str> = leaving.iter().map(|worker| worker.pod.as_str()).collect();
                    let message = if names.is_empty() {
                        "ranks were asked to stop from outside, and wrote a checkpoint".to_owned()
                    } else {
                        format!("ranks wrote a checkpoint before these pods went: {}", shortest(&names))
                    };
                    let fault = Fault {
                        kind: FaultKind::Infrastructure,
                        reason: reasons::DRAINED.to_owned(),
                        message,
                        rank: None,
                        pods: names.iter().map(|name| (*name).to_owned()).collect(),
                        nodes: leaving.iter().map(|worker| worker.node.clone()).collect(),
                        exit_code: None,
                        signal: None,
                        last_lines: Vec::new(),
                    };
                    self.end(attempt, fault, Some(outcome));
                }
            },
            Conclusion::Failed(fault) => match (&attempt.stop_reason, fault.kind) {
                // Ranks that were asked to stop and did not do it well have stopped all the same.
                (Some(reason), FaultKind::Program | FaultKind::Infrastructure) => {
                    self.stop_ended(attempt, &reason.clone(), Some(outcome));
                }
                (_, FaultKind::Program) => self.program_failed(attempt, fault, outcome, report),
                (_, FaultKind::Infrastructure | FaultKind::Configuration) => {
                    self.end(attempt, fault.clone(), Some(outcome));
                }
            },
        }
    }

    /// The first cause counts: an exit or signal within the lease time of a lost worker is the worker's loss.
    fn program_failed(
        &mut self,
        attempt: &Attempt,
        fault: &Fault,
        outcome: &Outcome,
        report: Option<&LauncherReport>,
    ) {
        let mut fault = fault.clone();
        let killed = fault.signal == Some(9) || fault.exit_code == Some(137);
        let out_of_memory = self.status.workers.iter().find(|worker| {
            self.observed.workers.get(&worker.pod).is_some_and(|pod| pod.out_of_memory)
                && (fault.pods.is_empty() || fault.pods.contains(&worker.pod))
        });
        if let Some(worker) = out_of_memory.filter(|_| killed) {
            fault.reason = reasons::OUT_OF_MEMORY.to_owned();
            fault.message = format!(
                "{}; {} reached its memory limit: raise resources.memoryPerRank",
                fault.message, worker.pod
            );
            return self.end(attempt, fault, Some(outcome));
        }
        if fault.reason == reasons::GUARD_VIOLATION {
            return self.end(attempt, fault, Some(outcome));
        }
        if let Some(lost) =
            self.lost_worker(attempt, true).filter(|lost| lost.kind == FaultKind::Infrastructure)
        {
            return self.end(attempt, lost, Some(outcome));
        }
        let leaving =
            |worker: &&Worker| self.observed.workers.get(&worker.pod).is_some_and(|pod| pod.deleting);
        if let Some(worker) = self.status.workers.iter().find(leaving) {
            let lost = Fault::of_pod(
                FaultKind::Infrastructure,
                reasons::WORKER_LOST,
                format!("worker {}: its pod is being deleted", worker.pod),
                &worker.pod,
                &worker.node,
            );
            return self.end(attempt, lost, Some(outcome));
        }
        // Workers whose agents answered after the failure were not lost before it, whatever an older report says.
        let answered = |worker: &str| outcome.ended.iter().any(|name| name == worker);
        let silent = report.and_then(|report| report.unreachable.iter().find(|worker| !answered(worker)));
        if let Some(worker) = silent.and_then(|name| self.status.workers.iter().find(|w| w.pod == *name)) {
            let lost = Fault::of_pod(
                FaultKind::Infrastructure,
                reasons::WORKER_UNREACHABLE,
                format!("worker {} does not answer", worker.pod),
                &worker.pod,
                &worker.node,
            );
            return self.end(attempt, lost, Some(outcome));
        }
        let all_answered = self.status.workers.iter().all(|worker| answered(&worker.pod));
        let since = attempt.failed_at.as_ref().map(seconds);
        let settled = since.map(|since| since + self.input.settings.worker_lease + LEASE_MARGIN);
        let what = fault.clone();
        match settled {
            _ if all_answered => self.end(attempt, fault, Some(outcome)),
            Some(settled) if self.now >= settled => self.end(attempt, fault, Some(outcome)),
            Some(settled) => self.wake_in(settled - self.now),
            None => self.change_attempt(|attempt, now| attempt.failed_at = Some(time(now))),
        }
        if self.status.attempts.last().is_some_and(|attempt| attempt.ended_at.is_none()) {
            self.state(State::Stopping, &what.reason);
            let message = format!("{}; whether a worker was lost is being looked at", what.message);
            self.condition(conditions::RUNNING, false, reasons::ENDED, &message);
        }
    }

    fn succeed(&mut self, attempt: &Attempt, outcome: &Outcome) {
        self.close(attempt, reasons::COMPLETED, Cost::Nothing, Some(outcome), Vec::new());
        if let (Some(progress), Some(step)) = (&mut self.status.progress, outcome.last_step) {
            // The launcher's last word is newer than the last report that was polled.
            progress.step = step;
            progress.label = step_label(step, progress.steps);
            progress.seconds_left = None;
            progress.time_left = None;
        }
        let message = format!("the program ended with exit code 0 in attempt {}", attempt.number);
        self.condition(conditions::RUNNING, false, reasons::COMPLETED, "the program has ended");
        self.finish(State::Succeeded, conditions::SUCCEEDED, reasons::COMPLETED, &message);
    }

    /// An attempt that was stopped on request: a suspension or a deadline.
    fn stop_ended(&mut self, attempt: &Attempt, reason: &str, outcome: Option<&Outcome>) {
        self.close(attempt, reason, Cost::Nothing, outcome, Vec::new());
        self.condition(conditions::RUNNING, false, reason, "ranks have stopped");
        if reason == reasons::ACTIVE_DEADLINE {
            self.fail_deadline();
        } else {
            self.state(State::Stopping, reason);
        }
    }

    /// An attempt that ended by a fault: uses a budget, and the job with it if that was the last.
    fn end(&mut self, attempt: &Attempt, fault: Fault, outcome: Option<&Outcome>) {
        // Capacity that another job took first is nobody's loss; the next try waits for a new plan.
        let unbound = fault.reason == reasons::START_DEADLINE
            && attempt.launched_at.is_none()
            && fault
                .pods
                .iter()
                .any(|pod| self.observed.workers.get(pod).is_none_or(|pod| pod.node.is_none()));
        let cost = match fault.kind {
            FaultKind::Configuration => Cost::Nothing,
            FaultKind::Infrastructure if unbound => Cost::Nothing,
            FaultKind::Program => Cost::ProgramFailure,
            FaultKind::Infrastructure => Cost::InfrastructureLoss,
        };
        let avoid = if fault.kind == FaultKind::Infrastructure { fault.nodes.clone() } else { Vec::new() };
        self.close(attempt, &fault.reason, cost, outcome, avoid);
        self.status.failure = Some(Failure {
            reason: fault.reason.clone(),
            message: Some(fault.message.chars().take(1024).collect()),
            attempt: Some(attempt.number),
            rank: fault.rank,
            pod: fault.pods.first().cloned(),
            node: fault.nodes.first().cloned(),
            exit_code: fault.exit_code,
            signal: fault.signal,
            last_lines: fault
                .last_lines
                .iter()
                .rev()
                .take(20)
                .rev()
                .map(|line| line.chars().take(512).collect())
                .collect(),
        });
        self.condition(conditions::RUNNING, false, &fault.reason, &fault.message);
        let policy = self.input.job.spec.failure_policy;
        let (used, allowed, what) = match cost {
            Cost::Nothing => (0, 0, ""),
            Cost::ProgramFailure => {
                self.status.program_failures += 1;
                (self.status.program_failures, policy.max_program_failures, "program failures")
            }
            Cost::InfrastructureLoss => {
                self.status.infrastructure_losses += 1;
                (self.status.infrastructure_losses, policy.max_infrastructure_losses, "infrastructure losses")
            }
        };
        if fault.kind == FaultKind::Configuration {
            self.finish(State::Failed, conditions::FAILED, &fault.reason, &fault.message);
        } else if used > allowed {
            let message = format!("{} ({what}: {used}, allowed: {allowed})", fault.message);
            self.finish(State::Failed, conditions::FAILED, &fault.reason, &message);
        } else {
            self.state(State::Restarting, &fault.reason);
            let message = format!("attempt {} ended: {}", attempt.number, fault.message);
            self.condition(conditions::RESTARTING, true, &fault.reason, &message);
            self.event(true, &fault.reason, &message);
        }
    }

    /// Writes the end of an attempt into its record.
    fn close(
        &mut self,
        attempt: &Attempt,
        reason: &str,
        cost: Cost,
        outcome: Option<&Outcome>,
        avoid: Vec<String>,
    ) {
        let progress = self.status.progress.clone().filter(|_| attempt.running_at.is_some());
        let last = outcome.and_then(|o| o.last_step).or(progress.as_ref().map(|p| p.step));
        let checkpoint = outcome
            .and_then(|o| o.checkpoint_step)
            .or(progress.as_ref().and_then(|p| p.last_checkpoint_step))
            .filter(|_| self.checkpoints_stay());
        let start = attempt.start_step.or(outcome.and_then(|o| o.start_step));
        let reason = reason.to_owned();
        if let (Some(step), Some(progress)) = (checkpoint, self.status.progress.as_mut()) {
            progress.last_checkpoint_step = Some(step);
        }
        self.change_attempt(|attempt, now| {
            attempt.ended_at = Some(time(now));
            attempt.reason = Some(reason);
            attempt.cost = Some(cost);
            attempt.start_step = start;
            attempt.last_step = last;
            attempt.checkpoint_step = checkpoint;
            let safe = checkpoint.or(start).unwrap_or(0);
            let done =
                cost == Cost::Nothing && outcome.is_some_and(|o| o.conclusion == Conclusion::Succeeded);
            attempt.lost_steps = last.filter(|_| !done).map(|last| (last - safe).max(0));
            attempt.avoid_nodes = avoid.into_iter().take(16).collect();
        });
    }

    fn finish(&mut self, state: State, type_: &str, reason: &str, message: &str) {
        self.status.finished_at = Some(time(self.now));
        if self.status.conditions.iter().any(|c| c.type_ == conditions::RESTARTING) {
            self.condition(conditions::RESTARTING, false, reason, "the job has ended");
        }
        self.condition(type_, true, reason, message);
        self.state(state, reason);
        self.event(state == State::Failed, reason, message);
    }

    fn fail_deadline(&mut self) {
        let limit = self.input.job.spec.active_deadline_seconds.unwrap_or_default();
        let message = format!("the job was active for {limit} s, spec.activeDeadlineSeconds");
        self.finish(State::Failed, conditions::FAILED, reasons::ACTIVE_DEADLINE, &message);
    }

    // ---- between attempts ----

    fn between(&mut self) {
        self.observe_ends();
        if self.input.job.spec.suspend {
            return self.stay_suspended();
        }
        if let Some(since) = self.status.suspended_at.take() {
            self.status.suspended_seconds += (self.now - seconds(&since)).max(0);
        }
        if self.status.conditions.iter().any(|c| c.type_ == conditions::SUSPENDED) {
            self.condition(conditions::SUSPENDED, false, reasons::RESUMED, "the job is not suspended");
        }
        let job = match self.input.validated {
            Ok(job) => job,
            Err(problems) => return self.refuse(reasons::INVALID_SPEC, &list(problems)),
        };
        if let Some(message) = self.fixed_part_problem(job) {
            return self.refuse(reasons::FIXED_AFTER_START, &message);
        }
        if self.active_deadline_passed() {
            return self.fail_deadline();
        }
        self.condition(conditions::ADMITTED, true, reasons::VALID, "the specification is valid");
        self.delete_unusable(job);
        if let Some(until) = self.pause() {
            let message = format!("the next attempt starts in at most {} s", until - self.now);
            return self.wait(
                reasons::BACKING_OFF,
                &message,
                until - self.now,
                until - self.now > KEEP_THROUGH,
            );
        }
        if let Some(until) = self.fence() {
            let message = "a lease of the last attempt may still be valid";
            return self.wait(reasons::WAITING_FOR_LEASE, message, (until - self.now).clamp(1, 5), false);
        }
        let avoid = self.avoided_nodes();
        let planned = (self.input.planner)(job, &avoid).or_else(|first| {
            // A node that failed a while ago and is ready again is better than none.
            if avoid.is_empty() { Err(first) } else { (self.input.planner)(job, &[]) }
        });
        match planned {
            Err(why) => self.wait(reasons::UNPLACEABLE, &why, 10, true),
            Ok(plan) if plan.nodes.len() > 1 && !job.single_node_claims.is_empty() => {
                let message = format!(
                    "claim {} can be mounted by one node at a time, and {} ranks need {} nodes: use a ReadWriteMany claim or fewer ranks",
                    job.single_node_claims.join(", "),
                    job.ranks,
                    plan.nodes.len()
                );
                self.refuse(reasons::INVALID_SPEC, &message);
            }
            Ok(plan) => self.begin(job, plan),
        }
    }

    fn stay_suspended(&mut self) {
        self.state(State::Suspended, reasons::SUSPENDED);
        if self.status.started_at.is_some() && self.status.suspended_at.is_none() {
            self.status.suspended_at = Some(time(self.now));
        }
        if self.delete_all() {
            self.state(State::Stopping, reasons::SUSPENDED);
            self.condition(conditions::SUSPENDED, false, reasons::STOPPING, "pods are being deleted");
            self.wake_in(5);
        } else {
            self.condition(conditions::SUSPENDED, true, reasons::SUSPENDED, "spec.suspend is true");
            if let Err(problems) = self.input.validated {
                let message = list(problems);
                self.condition(conditions::ADMITTED, false, reasons::INVALID_SPEC, &message);
            } else {
                self.condition(conditions::ADMITTED, true, reasons::VALID, "the specification is valid");
            }
        }
    }

    /// Something is wrong that the user must change: no pods, one condition, one event.
    fn refuse(&mut self, reason: &str, message: &str) {
        self.delete_all();
        self.state(State::Invalid, reason);
        if self.condition_changed(conditions::ADMITTED, false, reason, message) {
            self.event(true, reason, message);
        }
        // A missing ConfigMap or claim may come; they are not watched.
        self.wake_in(30);
    }

    /// Nothing can be done now. Cores are not held meanwhile if the wait may be long.
    fn wait(&mut self, reason: &str, message: &str, again: Seconds, release: bool) {
        if release {
            self.delete_all();
        }
        self.state(State::Waiting, reason);
        if self.condition_changed(conditions::PLANNED, false, reason, message)
            && reason == reasons::UNPLACEABLE
        {
            self.event(false, reason, message);
        }
        self.wake_in(again.max(1));
    }

    /// Opens the next attempt on a plan, with the workers that can serve again.
    fn begin(&mut self, job: &ValidatedJob, plan: PlanStatus) {
        let number = self.status.attempt.unwrap_or(0) + 1;
        let incarnation = self.status.incarnations + 1;
        let mut made = false;
        let mut workers = Vec::with_capacity(plan.nodes.len());
        for (index, node) in plan.nodes.iter().enumerate() {
            let shape = shape_hash(job, self.input.settings, node.ranks.unsigned_abs());
            let kept = self.observed.workers.iter().find(|(_, pod)| {
                pod.node.as_deref() == Some(node.name.as_str()) && pod.shape == shape && self.healthy(pod)
            });
            workers.push(match kept {
                Some((name, pod)) => Worker {
                    pod: name.clone(),
                    uid: Some(pod.uid.clone()),
                    node: node.name.clone(),
                    ranks: node.ranks,
                    ended: false,
                },
                None => {
                    made = true;
                    Worker {
                        pod: names::worker(self.name, index, incarnation),
                        uid: None,
                        node: node.name.clone(),
                        ranks: node.ranks,
                        ended: false,
                    }
                }
            });
        }
        if made {
            self.status.incarnations = incarnation;
        }
        self.status.workers = workers;
        self.status.attempt = Some(number);
        self.status.started_at.get_or_insert(time(self.now));
        if self.status.folder.is_none() && matches!(job.workload, Workload::Simulation { .. }) {
            self.status.folder = Some(names::folder(&job.name, &job.uid));
        }
        if let Workload::Simulation { hash, .. } = &job.workload {
            self.status.simulation_hash.get_or_insert(hash.clone());
        }
        self.status.attempts.push(Attempt {
            number,
            started_at: Some(time(self.now)),
            nodes: i32::try_from(plan.nodes.len()).ok(),
            ..Attempt::default()
        });
        if self.status.attempts.len() > ATTEMPTS {
            self.status.attempts.remove(0);
        }
        let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        let message = format!("attempt {number}: {} ranks on {}", job.ranks, shortest(&names));
        self.condition(conditions::PLANNED, true, reasons::PLACED, &message);
        self.condition(conditions::PODS_SCHEDULED, false, reasons::STARTING, "pods are being created");
        self.condition(conditions::WORKERS_REACHABLE, false, reasons::STARTING, "pods are being created");
        self.status.plan = Some(plan);
        self.status.imbalance = None;
        self.state(State::Starting, reasons::PLACED);
        self.event(false, reasons::PLACED, &message);
    }

    /// Keeps in the record what is seen of the last attempt's ends: pods may vanish later.
    fn observe_ends(&mut self) {
        let Some(attempt) = self.status.attempts.last().cloned() else { return };
        for worker in &mut self.status.workers {
            let pod = self.observed.workers.get(&worker.pod);
            let ended = pod.is_some_and(|pod| worker.uid.as_ref() == Some(&pod.uid) && pod.terminated);
            worker.ended |= ended || worker.uid.as_ref().is_some_and(|uid| self.observed.ended.contains(uid));
        }
        let launcher = self.observed.launchers.get(&names::launcher(self.name, attempt.number));
        let ended = launcher.is_some_and(|pod| attempt.launcher.as_ref() == Some(&pod.uid) && pod.terminated);
        let gone = attempt.launcher.as_ref().is_some_and(|uid| self.observed.ended.contains(uid));
        if (ended || gone) && attempt.launcher_ended_at.is_none() {
            self.change_attempt(|attempt, now| attempt.launcher_ended_at = Some(time(now)));
        }
    }

    /// When no process of the last attempt can commit any more; None: it is so already.
    ///
    /// A worker that was seen to end, or that is healthy and will be told the higher attempt number before any rank
    /// of it starts, needs no wait. For one that is cut off, the worker's lease counts from when its launcher can
    /// have renewed it last: the launcher's end; or, if the launcher is cut off too, the end of the lease that the
    /// operator gave it. The operator renews no lease of an attempt that has ended.
    ///
    /// A simulation need not wait for a launcher that is cut off as long as one worker is not: our solver begins no
    /// checkpoint, output or summary without every rank (each is agreed on by all, and checked for its parts of all),
    /// so what the cut-off ranks could still write is what all ranks had agreed on before, in the attempt's own
    /// folders. Of other programs this is not known.
    fn fence(&self) -> Option<Seconds> {
        let attempt = self.status.attempts.last()?;
        attempt.launched_at.as_ref()?;
        let cut_off = |worker: &&Worker| {
            let pod =
                self.observed.workers.get(&worker.pod).filter(|pod| worker.uid.as_ref() == Some(&pod.uid));
            !worker.ended && !pod.is_some_and(|pod| pod.terminated || self.healthy(pod))
        };
        let lost = self.status.workers.iter().filter(cut_off).count();
        if lost == 0 {
            return None;
        }
        let needs_all = self.input.job.spec.simulation.is_some();
        let settings = self.input.settings;
        let ended = attempt.ended_at.as_ref().map_or(self.now, seconds);
        let last_word = match &attempt.launcher_ended_at {
            Some(at) => seconds(at),
            None if needs_all && lost < self.status.workers.len() => ended,
            None => {
                // A renewal from before the launch was another launcher's.
                let launched = attempt.launched_at.as_ref().map_or(ended, seconds);
                let renewed = self.observed.last_renewed.filter(|last| *last >= launched);
                renewed.map_or(ended, |last| last.min(ended)) + settings.launcher_lease
            }
        };
        let until = last_word + settings.worker_lease + LEASE_MARGIN;
        (until > self.now).then_some(until)
    }

    /// A pause after attempts that got nowhere, doubled each time.
    fn pause(&self) -> Option<Seconds> {
        let last = self.status.attempts.last()?;
        if last.cost == Some(Cost::Nothing) && last.reason.as_deref() != Some(reasons::START_DEADLINE) {
            return None;
        }
        let got_on =
            |attempt: &Attempt| attempt.checkpoint_step.unwrap_or(0) > attempt.start_step.unwrap_or(0);
        let stuck = self.status.attempts.iter().rev().take_while(|attempt| !got_on(attempt)).count();
        // The first loss is followed by a restart at once.
        let doublings = u32::try_from(stuck).unwrap_or(u32::MAX).checked_sub(2)?;
        let pause = 5_i64.checked_shl(doublings.min(16)).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
        let until = last.ended_at.as_ref().map(seconds)? + pause;
        (until > self.now).then_some(until)
    }

    fn avoided_nodes(&self) -> Vec<String> {
        let recent = |attempt: &&Attempt| {
            attempt.ended_at.as_ref().is_some_and(|ended| self.now - seconds(ended) < AVOID)
        };
        let mut nodes: Vec<String> = self
            .status
            .attempts
            .iter()
            .filter(recent)
            .flat_map(|attempt| attempt.avoid_nodes.clone())
            .collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    // ---- after the end of the job ----

    fn after_end(&mut self) {
        let policy = self.input.job.spec.clean_pod_policy;
        let over = |pod: &Pod| pod.terminated || matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
        let mut doomed: Vec<(String, String)> = Vec::new();
        for (name, pod) in &self.observed.workers {
            let delete = match policy {
                CleanPodPolicy::None => false,
                CleanPodPolicy::Running => !over(pod),
                CleanPodPolicy::All => true,
            };
            if delete && !pod.deleting {
                doomed.push((name.clone(), pod.uid.clone()));
            }
        }
        // One that has said its last word leaves by itself, and its log stays.
        let leaving = self.observed.launcher.as_ref().is_some_and(|l| l.phase == LauncherPhase::Ended);
        for (name, pod) in &self.observed.launchers {
            // A launcher that still runs would keep ranks of a job that has ended alive.
            let delete = policy == CleanPodPolicy::All || !(over(pod) || leaving);
            if delete && !pod.deleting {
                doomed.push((name.clone(), pod.uid.clone()));
            }
        }
        self.actions.extend(doomed.into_iter().map(|(name, uid)| Action::DeletePod { name, uid }));
        let finished = self.status.finished_at.as_ref().map(seconds);
        if let (Some(ttl), Some(finished)) = (self.input.job.spec.ttl_seconds_after_finished, finished) {
            if self.now >= finished + ttl {
                self.actions.push(Action::DeleteJob);
            } else {
                self.wake_in(finished + ttl - self.now);
            }
        }
    }

    // ---- small parts ----

    /// A worker that can serve the next attempt.
    fn healthy(&self, pod: &Pod) -> bool {
        pod.phase == PodPhase::Running
            && !pod.deleting
            && !pod.terminated
            && pod.node.as_ref().and_then(|node| self.observed.nodes.get(node)).is_some_and(|node| node.ready)
    }

    /// Deletes every pod of the job. True while any is left.
    fn delete_all(&mut self) -> bool {
        let pods = self.observed.workers.iter().chain(&self.observed.launchers);
        for (name, pod) in pods.filter(|(_, pod)| !pod.deleting) {
            self.actions.push(Action::DeletePod { name: name.clone(), uid: pod.uid.clone() });
        }
        !self.observed.workers.is_empty() || !self.observed.launchers.is_empty()
    }

    /// Deletes launchers of ended attempts, and workers that cannot serve again.
    fn delete_unusable(&mut self, job: &ValidatedJob) {
        let shapes: Vec<String> = {
            let mut ranks: Vec<i32> = self.status.workers.iter().map(|worker| worker.ranks).collect();
            ranks.sort_unstable();
            ranks.dedup();
            ranks.iter().map(|ranks| shape_hash(job, self.input.settings, ranks.unsigned_abs())).collect()
        };
        let unusable = self
            .observed
            .workers
            .iter()
            .filter(|(_, pod)| !self.healthy(pod) || !shapes.contains(&pod.shape));
        let doomed: Vec<Action> = unusable
            .chain(&self.observed.launchers)
            .filter(|(_, pod)| !pod.deleting)
            .map(|(name, pod)| Action::DeletePod { name: name.clone(), uid: pod.uid.clone() })
            .collect();
        self.actions.extend(doomed);
    }

    /// Deletes pods that are no part of the attempt. True while a worker among them may still run ranks of an
    /// earlier attempt; one on a lost node was waited for before the plan.
    fn delete_strays(&mut self, attempt: i32) -> bool {
        let mut waiting = false;
        let began = self.status.attempts.last().and_then(|attempt| attempt.started_at.as_ref());
        let lease_end = began.map_or(self.now, seconds) + self.input.settings.worker_lease + LEASE_MARGIN;
        let member = |name: &str| self.status.workers.iter().any(|worker| worker.pod == name);
        let mut doomed = Vec::new();
        for (name, pod) in self.observed.workers.iter().filter(|(name, _)| !member(name)) {
            let reachable = pod
                .node
                .as_ref()
                .and_then(|node| self.observed.nodes.get(node))
                .is_some_and(|node| node.ready);
            // One that is cut off since the plan was made is not waited for longer than its lease can last.
            let may_hold_lease = reachable || self.now < lease_end;
            waiting |= !pod.terminated && may_hold_lease && pod.phase == PodPhase::Running;
            doomed.push((name.clone(), pod));
        }
        let own = names::launcher(self.name, attempt);
        for (name, pod) in self.observed.launchers.iter().filter(|(name, _)| **name != own) {
            doomed.push((name.clone(), pod));
        }
        let doomed = doomed.into_iter().filter(|(_, pod)| !pod.deleting);
        self.actions.extend(doomed.map(|(name, pod)| Action::DeletePod { name, uid: pod.uid.clone() }));
        waiting
    }

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
