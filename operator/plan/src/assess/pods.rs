//! Which pods of the job have to go.

use super::{Action, LEASE_MARGIN, Machine};
use crate::names;
use crate::observed::{Pod, PodPhase};
use crate::render::shape_hash;
use crate::status::seconds;
use crate::validate::ValidatedJob;

impl Machine<'_> {
    /// A worker that can serve the next attempt.
    pub(super) fn healthy(&self, pod: &Pod) -> bool {
        pod.phase == PodPhase::Running
            && !pod.deleting
            && !pod.terminated
            && pod.node.as_ref().and_then(|node| self.observed.nodes.get(node)).is_some_and(|node| node.ready)
    }

    /// Deletes every pod of the job. True while any is left.
    pub(super) fn delete_all(&mut self) -> bool {
        let pods = self.observed.workers.iter().chain(&self.observed.launchers);
        for (name, pod) in pods.filter(|(_, pod)| !pod.deleting) {
            self.actions.push(Action::DeletePod { name: name.clone(), uid: pod.uid.clone() });
        }
        !self.observed.workers.is_empty() || !self.observed.launchers.is_empty()
    }

    /// Deletes launchers of ended attempts, and workers that cannot serve again.
    pub(super) fn delete_unusable(&mut self, job: &ValidatedJob) {
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
    pub(super) fn delete_strays(&mut self, attempt: i32) -> bool {
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
}
