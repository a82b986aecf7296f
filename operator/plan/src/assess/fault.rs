//! What is wrong with an attempt, seen from outside its launcher.

use dem_crds::{Attempt, Worker, reasons};

use super::{Machine, shortest};
use crate::names;
use crate::observed::{Fault, FaultKind, LauncherReport, Pod, PodPhase, Seconds};

/// A launcher that does not answer for so long is lost [s].
const LAUNCHER_SILENCE: Seconds = 60;
/// An image that cannot be pulled for so long ends the job [s].
const IMAGE_PATIENCE: Seconds = 120;
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

impl Machine<'_> {
    /// What can never work, seen on the job's pods before the launch.
    pub(super) fn configuration_fault(&self, attempt: &Attempt, launched: bool) -> Option<Fault> {
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
    pub(super) fn lost_worker(&self, attempt: &Attempt, launched: bool) -> Option<Fault> {
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

    pub(super) fn lost_launcher(
        &self,
        attempt: &Attempt,
        pod: Option<&Pod>,
        launched: bool,
    ) -> Option<Fault> {
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
    pub(super) fn start_fault(&self, attempt: &Attempt, report: Option<&LauncherReport>) -> Fault {
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
}
