//! What all reconciles share: the client, caches, and what is remembered between two passes of a job.
//!
//! Nothing remembered here decides anything: it saves work or paces writes, and all of it can be lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dem_crds::DemJob;
use dem_launch::ClientTls;
use dem_plan::render::Settings;
use dem_plan::validate::References;
use futures::channel::mpsc::UnboundedSender;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::args::Args;
use crate::launchers::{JobRef, Launchers};
use crate::metrics::Metrics;
use crate::observe;

/// Owner of the fields that the operator sets by server-side apply.
pub const FIELD_MANAGER: &str = "dem-operator";

/// Shared by all reconciles.
pub struct Context {
    /// Flags.
    pub args: Args,
    /// What rendering and decisions need to know of the installation, from the flags.
    pub settings: Settings,
    /// The API server.
    pub client: Client,
    /// Name of this replica.
    pub identity: String,
    /// All pods of the cluster, trimmed.
    pub pods: Store<Pod>,
    /// All nodes, trimmed.
    pub nodes: Store<Node>,
    /// Cancelled once all three caches hold what there is. The stores' own `wait_until_ready` wakes one of several
    /// waiters only.
    pub filled: CancellationToken,
    /// All jobs.
    known: Store<DeserializeGuard<DemJob>>,
    /// Held from the look at free cores to the written promise of them, so that no two jobs are promised the same.
    pub placing: tokio::sync::Mutex<()>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Conversations with launchers.
    pub launchers: Launchers,
    /// Pods that were seen to end and are gone.
    pub ended: Arc<Ended>,
    memories: Mutex<HashMap<String, Memory>>,
}

/// Pods that are gone, whose kubelet had said that they had ended: UIDs by the UID of their job.
///
/// The report and the removal of a pod may come so close together that no reconcile sees the pod in between.
#[derive(Default)]
pub struct Ended(Mutex<HashMap<String, BTreeSet<String>>>);

impl Ended {
    /// Remembers a pod that is gone, if it is a job's and was seen to end.
    pub fn note(&self, pod: &Pod) {
        let owner = pod.owner_references().iter().find(|o| o.controller == Some(true));
        let (Some(owner), Some(uid)) = (owner, pod.uid()) else { return };
        if observe::pod(pod).is_some_and(|seen| seen.terminated) {
            let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            ended.entry(owner.uid.clone()).or_default().insert(uid);
        }
    }

    /// Those of one job.
    pub fn of(&self, job: &str) -> BTreeSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(job).cloned().unwrap_or_default()
    }
}

/// Pods, nodes and jobs of the cluster.
pub type Caches = (Store<Pod>, Store<Node>, Store<DeserializeGuard<DemJob>>);

/// What is remembered of one job, by UID.
#[derive(Default)]
pub struct Memory {
    /// Namespace and name.
    pub key: (String, String),
    /// The operator's certificate under the job's CA.
    pub tls: Option<ClientTls>,
    /// Whether the job's Secrets are there.
    pub certified: bool,
    /// What the job refers to: for which generation, when it was read, what was found.
    pub references: Option<(Option<i64>, Instant, Arc<References>)>,
    /// Text of `plan.json` of the present attempt, with the attempt's number.
    pub plan: Option<(i32, Arc<String>)>,
    /// The job as the API server answered our last write: newer than the cache for a moment.
    pub written: Option<Arc<DemJob>>,
    /// When progress was written last.
    pub progress_at: Option<Instant>,
    /// Failed reconciles in a row.
    pub failures: u32,
}

impl Memory {
    /// Time left until progress may be written again; `None` when it may.
    pub fn progress_due(&self, interval: Duration, now: Instant) -> Option<Duration> {
        let next = self.progress_at? + interval;
        (next > now).then(|| next - now)
    }
}

impl Context {
    /// A context without memories.
    pub fn new(
        args: Args,
        client: Client,
        identity: String,
        (pods, nodes, known): Caches,
        metrics: Arc<Metrics>,
        wake: UnboundedSender<JobRef>,
        ended: Arc<Ended>,
    ) -> Self {
        let settings = args.settings();
        let launchers = Launchers::new(wake, args.poll());
        Self {
            args,
            settings,
            client,
            identity,
            pods,
            nodes,
            filled: CancellationToken::new(),
            known,
            placing: tokio::sync::Mutex::default(),
            metrics,
            launchers,
            ended,
            memories: Mutex::default(),
        }
    }

    /// Reads or changes what is remembered of the job `uid`. Must not wait for anything.
    pub fn memory<T>(&self, uid: &str, f: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        f(memories.entry(uid.to_owned()).or_default())
    }

    /// The newer of the cached job and the one that our last write returned.
    pub fn newest(&self, cached: &DemJob) -> Arc<DemJob> {
        let Some(uid) = cached.uid() else { return Arc::new(cached.clone()) };
        let key = (cached.namespace().unwrap_or_default(), cached.name_any());
        let written = self.memory(&uid, |m| {
            m.key = key;
            m.written.clone()
        });
        match written {
            Some(written) if version(&written) > version(cached) => written,
            _ => Arc::new(cached.clone()),
        }
    }

    /// All jobs that can be read, each not older than our own last write of it.
    pub fn jobs(&self) -> Vec<Arc<DemJob>> {
        self.known
            .state()
            .iter()
            .filter_map(|guard| guard.0.as_ref().ok().map(|job| self.newest(job)))
            .collect()
    }

    /// Remembers the API server's answer to a write of the job's status.
    pub fn written(&self, job: DemJob) {
        if let Some(uid) = job.uid() {
            self.memory(&uid, |m| m.written = Some(Arc::new(job)));
        }
    }

    /// Forgets jobs that are gone: conversations, memories and figures.
    pub fn forget_deleted(&self) {
        let jobs = self.known.state();
        let alive: HashSet<String> = jobs.iter().filter_map(|j| j.uid()).collect();
        let names: HashSet<_> =
            jobs.iter().map(|j| (j.namespace().unwrap_or_default(), j.name_any())).collect();
        self.launchers.retain(|uid| alive.contains(uid));
        let mut ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|job, _| alive.contains(job));
        drop(ended);
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        memories.retain(|uid, memory| {
            if alive.contains(uid) {
                return true;
            }
            if !names.contains(&memory.key) {
                self.metrics.forget_job(&memory.key.0, &memory.key.1);
            }
            false
        });
    }
}

/// Resource versions of one resource grow; the API promises that they can be compared since 1.35, and etcd always
/// did.
fn version(job: &DemJob) -> u64 {
    job.resource_version().and_then(|v| v.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_due_at_once_and_then_after_each_interval() {
        let (mut memory, now, interval) = (Memory::default(), Instant::now(), Duration::from_secs(5));
        assert_eq!(memory.progress_due(interval, now), None);
        memory.progress_at = Some(now);
        assert_eq!(memory.progress_due(interval, now + Duration::from_secs(2)), Some(Duration::from_secs(3)));
        assert_eq!(memory.progress_due(interval, now + interval), None);
    }
}
