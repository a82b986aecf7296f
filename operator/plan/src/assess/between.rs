//! No attempt: the job waits, is suspended, or the next one begins.

use dem_crds::{Attempt, CleanPodPolicy, Cost, PlanSource, PlanStatus, State, Worker, conditions, reasons};

use super::{Action, LEASE_MARGIN, Machine, list, shortest};
use crate::names;
use crate::observed::{LauncherPhase, Pod, PodPhase, Seconds};
use crate::render::shape_hash;
use crate::status::{seconds, time};
use crate::validate::{ValidatedJob, Workload};

/// A node is avoided for so long after a loss on it [s].
const AVOID: Seconds = 600;
/// A node on which a worker fell silent is not used at all for so long [s]: the control plane needs up to 50 s to see that
/// a node is gone.
const SUSPECT: Seconds = 60;
/// Longest pause between attempts [s].
const LONGEST_PAUSE: Seconds = 300;
/// Pods are kept through a pause of at most so long [s].
const KEEP_THROUGH: Seconds = 30;
/// Attempts kept in the status.
const ATTEMPTS: usize = 10;

impl Machine<'_> {
    pub(super) fn between(&mut self) {
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
        let avoid = self.avoided_nodes(AVOID);
        let suspect = self.suspect_nodes();
        let planned = (self.input.planner)(job, &avoid).or_else(|first| {
            // A node that failed a while ago and is ready again is better than none.
            if avoid == suspect { Err(first) } else { (self.input.planner)(job, &suspect) }
        });
        let planned = planned.map_err(|why| match suspect.as_slice() {
            [] => why,
            nodes => {
                let names: Vec<&str> = nodes.iter().map(String::as_str).collect();
                format!("{why}; not used for now, as a worker fell silent there: {}", shortest(&names))
            }
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
    fn begin(&mut self, job: &ValidatedJob, mut plan: PlanStatus) {
        let goes_on = job.restart_from.is_some()
            || self
                .status
                .attempts
                .iter()
                .any(|attempt| attempt.checkpoint_step.is_some_and(|step| step > 0));
        if goes_on && matches!(job.workload, Workload::Simulation { .. }) {
            // The planner cut the particles of step 0, which have moved since.
            plan = PlanStatus { source: PlanSource::Assumed, lower_bound: None, gap: None, ..plan };
        }
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

    /// Nodes to avoid of which nobody has said since the loss that they are alive: a worker there has fallen silent, and
    /// the node may be found to be gone any moment.
    fn suspect_nodes(&self) -> Vec<String> {
        let mut nodes = self.avoided_nodes(SUSPECT);
        nodes.retain(|node| self.status.workers.iter().any(|worker| worker.node == *node && !worker.ended));
        nodes
    }

    /// Nodes on which there was a loss in the last `within`.
    fn avoided_nodes(&self, within: Seconds) -> Vec<String> {
        let recent = |attempt: &&Attempt| {
            attempt.ended_at.as_ref().is_some_and(|ended| self.now - seconds(ended) < within)
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

    pub(super) fn after_end(&mut self) {
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
}
