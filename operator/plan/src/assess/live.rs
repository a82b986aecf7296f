//! An attempt that has not ended: it starts, or it runs.

use dem_crds::{Attempt, State, conditions, reasons};

use super::{Action, Machine, list, shortest};
use crate::names;
use crate::observed::{LauncherPhase, LauncherReport, Pod, PodPhase};
use crate::render::WorkerPlace;
use crate::status::{seconds, time};

impl Machine<'_> {
    pub(super) fn live(&mut self, attempt: Attempt) {
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
    pub(super) fn checkpoints_stay(&self) -> bool {
        self.input.job.spec.checkpoint.as_ref().is_some_and(|c| c.volume.is_some())
    }
}
