//! The end of an attempt, and of the job.

use dem_crds::{Attempt, Cost, Failure, State, Worker, conditions, reasons};

use super::{LEASE_MARGIN, Machine, shortest};
use crate::observed::{Conclusion, Fault, FaultKind, LauncherReport, Outcome};
use crate::status::{seconds, step_label, time};

impl Machine<'_> {
    pub(super) fn conclude(&mut self, attempt: &Attempt, outcome: &Outcome, report: Option<&LauncherReport>) {
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
    pub(super) fn stop_ended(&mut self, attempt: &Attempt, reason: &str, outcome: Option<&Outcome>) {
        self.close(attempt, reason, Cost::Nothing, outcome, Vec::new());
        self.condition(conditions::RUNNING, false, reason, "ranks have stopped");
        if reason == reasons::ACTIVE_DEADLINE {
            self.fail_deadline();
        } else {
            self.state(State::Stopping, reason);
        }
    }

    /// An attempt that ended by a fault: uses a budget, and the job with it if that was the last.
    pub(super) fn end(&mut self, attempt: &Attempt, fault: Fault, outcome: Option<&Outcome>) {
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

    pub(super) fn fail_deadline(&mut self) {
        let limit = self.input.job.spec.active_deadline_seconds.unwrap_or_default();
        let message = format!("the job was active for {limit} s, spec.activeDeadlineSeconds");
        self.finish(State::Failed, conditions::FAILED, reasons::ACTIVE_DEADLINE, &message);
    }
}
