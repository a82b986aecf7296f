//! One snapshot of a job, its children and the cluster, before any decision.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dem_crds::DemJob;
use dem_launch::protocol::AGENT_PORT;
use dem_plan::names;
use dem_plan::observed::{Observed, PodPhase};
use dem_plan::render::memory_beside_ranks;
use dem_plan::validate::{ClaimFacts, References, references};
use dem_plan::{ClusterView, Quantity, SnapshotError};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Node, PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt};
use tokio::time::Instant;

use crate::apply::{is_owned_by, operator_certificate};
use crate::context::Context;
use crate::error::Error;
use crate::launchers::{JobRef, Target};
use crate::observe;

/// How long what a job refers to is believed before it is read again.
const REFERENCES_AGE: Duration = Duration::from_secs(15);

/// Everything that a pass knows of a job before it decides.
pub struct Gathered {
    /// The job, not older than our own last write of it.
    pub job: Arc<DemJob>,
    /// UID of the job.
    pub uid: String,
    /// ConfigMaps and claims that it names.
    pub references: Arc<References>,
    /// Its pods, their nodes, and what its launcher said.
    pub observed: Observed,
    /// The launcher that is being watched.
    pub launcher: Option<Target>,
}

/// Takes the snapshot. Pods and nodes come from the caches, what the job refers to from the API server, by name and
/// for jobs that have not ended.
///
/// # Errors
/// When the API server does not answer.
pub async fn gather(context: &Context, job: &DemJob) -> Result<Gathered, Error> {
    context.filled.cancelled().await;
    let job = context.newest(job);
    let uid = job.uid().ok_or(Error::Incomplete("uid"))?;
    let namespace = job.namespace().ok_or(Error::Incomplete("namespace"))?;
    let ended = job.status.as_ref().is_some_and(|s| s.finished_at.is_some());
    let references =
        if ended { Arc::default() } else { cached_references(context, &job, &uid, &namespace).await? };
    let mut observed =
        Observed { now: Timestamp::now().as_second(), ended: context.ended.of(&uid), ..Observed::default() };
    let children = context.pods.state_filter(|pod: &Pod| {
        pod.metadata.namespace.as_ref() == Some(&namespace) && is_ours(pod) && is_owned_by(pod, &uid)
    });
    for child in children {
        let Some(pod) = observe::pod(&child) else { continue };
        match child.labels().get(names::ROLE_LABEL).map(String::as_str) {
            Some("worker") => observed.workers.insert(child.name_any(), pod),
            Some("launcher") => observed.launchers.insert(child.name_any(), pod),
            _ => None,
        };
    }
    let planned = job.status.iter().flat_map(|s| s.workers.iter().map(|w| w.node.clone()));
    let bound = observed.workers.values().chain(observed.launchers.values()).filter_map(|p| p.node.clone());
    for name in planned.chain(bound).collect::<Vec<_>>() {
        if let Some(node) = context.nodes.get(&ObjectRef::new(&name)) {
            observed.nodes.insert(name, observe::node(&node));
        }
    }
    let launcher = listen(context, &job, &uid, &namespace, &mut observed).await?;
    Ok(Gathered { job, uid, references, observed, launcher })
}

/// What the present attempt's launcher said last. It is watched while its pod runs, after the attempt was given to
/// it to run.
async fn listen(
    context: &Context,
    job: &DemJob,
    uid: &str,
    namespace: &str,
    observed: &mut Observed,
) -> Result<Option<Target>, Error> {
    let attempt = job.status.as_ref().and_then(|s| s.attempts.last());
    let attempt = attempt.filter(|a| a.ended_at.is_none() && a.launched_at.is_some());
    let target = attempt.and_then(|attempt| {
        let pod = observed.launchers.get(&names::launcher(&job.name_any(), attempt.number))?;
        let runs = pod.phase == PodPhase::Running && attempt.launcher.as_ref() == Some(&pod.uid);
        Some((pod.uid.clone(), pod.ip.as_ref().filter(|_| runs)?.parse::<IpAddr>().ok()?))
    });
    let Some((pod_uid, address)) = target else {
        context.launchers.leave(uid);
        return Ok(None);
    };
    let Some(tls) = operator_certificate(context, job, uid, namespace).await? else { return Ok(None) };
    let target = Target { pod_uid, address: SocketAddr::new(address, AGENT_PORT), tls };
    let reference = JobRef::new(&job.name_any()).within(namespace);
    let heard = context.launchers.follow(uid, &reference, target.clone());
    observed.launcher = heard.state.as_ref().map(|state| observe::report(&target.pod_uid, state));
    observed.last_renewed = heard.renewed;
    observed.launcher_silent =
        heard.silent_since.map_or(0, |since| i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX));
    Ok(Some(target))
}

/// The cluster as a plan for the job `uid` may use it: without the job's own pods, which a new attempt takes over or
/// replaces, and with what other jobs were promised but do not hold yet.
///
/// # Errors
/// When an object of the cluster has a quantity that cannot be read.
pub fn cluster(context: &Context, uid: &str) -> Result<ClusterView, SnapshotError> {
    let nodes = context.nodes.state();
    let pods = context.pods.state_filter(|pod: &Pod| !(is_ours(pod) && is_owned_by(pod, uid)));
    let mut view =
        ClusterView::from_objects(nodes.iter().map(AsRef::as_ref), pods.iter().map(AsRef::as_ref))?;
    let bound: HashSet<(String, String)> = pods
        .iter()
        .filter(|p| is_ours(p) && p.spec.as_ref().is_some_and(|s| s.node_name.is_some()))
        .map(|p| (p.namespace().unwrap_or_default(), p.name_any()))
        .collect();
    for job in context.jobs() {
        let Some(status) = job.status.as_ref().filter(|s| s.finished_at.is_none()) else { continue };
        if job.uid().as_deref() == Some(uid) {
            continue;
        }
        let namespace = job.namespace().unwrap_or_default();
        for worker in status.workers.iter().filter(|w| !w.ended) {
            if !bound.contains(&(namespace.clone(), worker.pod.clone())) {
                let (cores, memory) = promised(&job, worker.ranks);
                view.take(&worker.node, cores, memory);
            }
        }
    }
    Ok(view)
}

/// Whole cores and memory that a worker of this many ranks was promised.
fn promised(job: &DemJob, ranks: i32) -> (u64, Quantity) {
    let ranks = u64::try_from(ranks).unwrap_or(0);
    let resources = &job.spec.resources;
    let bytes = |text: &str| text.parse::<Quantity>().unwrap_or_default().floor();
    let memory =
        ranks * bytes(&resources.memory_per_rank) + memory_beside_ranks(bytes(&resources.shared_memory));
    (ranks * u64::try_from(resources.cpus_per_rank).unwrap_or(1), Quantity::whole(memory))
}

async fn cached_references(
    context: &Context,
    job: &DemJob,
    uid: &str,
    namespace: &str,
) -> Result<Arc<References>, Error> {
    let generation = job.metadata.generation;
    let known = context.memory(uid, |m| m.references.clone());
    if let Some((of, at, known)) = known
        && of == generation
        && at.elapsed() < REFERENCES_AGE
    {
        return Ok(known);
    }
    let read = Arc::new(read_references(&context.client, job, namespace).await?);
    context.memory(uid, |m| m.references = Some((generation, Instant::now(), read.clone())));
    Ok(read)
}

/// Looks up what a job refers to in its namespace, by name.
///
/// # Errors
/// When the API server does not answer.
pub async fn read_references(client: &Client, job: &DemJob, namespace: &str) -> Result<References, Error> {
    let (maps, claims) = references(&job.spec);
    let mut found = References::default();
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    for name in maps {
        let read = api.get_opt(&name).await;
        if let Some(map) =
            read.map_err(|source| Error::Read { kind: "ConfigMap", name: name.clone(), source })?
        {
            found.config_maps.insert(name, map.data.unwrap_or_default());
        }
    }
    let api: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    for name in claims {
        let read = api.get_opt(&name).await;
        if let Some(claim) =
            read.map_err(|source| Error::Read { kind: "PersistentVolumeClaim", name: name.clone(), source })?
        {
            let deleting = claim.metadata.deletion_timestamp.is_some();
            let access_modes = claim.spec.and_then(|s| s.access_modes).unwrap_or_default();
            found.claims.insert(name, ClaimFacts { access_modes, deleting });
        }
    }
    Ok(found)
}

/// Drops from a cached pod what nothing here reads: of pods that are not a job's, all but who takes which
/// resources where.
pub fn trim_pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if is_ours(pod) {
        return;
    }
    pod.metadata.annotations = None;
    let slim = |container: &mut Container| {
        *container = Container {
            name: std::mem::take(&mut container.name),
            resources: container.resources.take(),
            restart_policy: container.restart_policy.take(),
            ..Container::default()
        };
    };
    if let Some(spec) = &mut pod.spec {
        spec.containers.iter_mut().for_each(slim);
        spec.init_containers.iter_mut().flatten().for_each(slim);
        spec.volumes = None;
        spec.affinity = None;
        spec.topology_spread_constraints = None;
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.conditions = None;
    }
}

/// Drops from a cached node what nothing here reads.
pub fn trim_node(node: &mut Node) {
    node.metadata.managed_fields = None;
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}

/// Whether the operator made the pod.
pub fn is_ours(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|l| l.get(names::MANAGED_BY_LABEL)).is_some_and(|v| v == names::MANAGER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(labels: serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": labels, "annotations": {"k": "v"}},
            "spec": {
                "nodeName": "a",
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}],
                "volumes": [{"name": "v"}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        }))
        .unwrap()
    }

    #[test]
    fn of_others_pods_only_what_takes_capacity_is_kept_and_ours_stay_whole() {
        let mut other = pod(json!({"app": "web"}));
        trim_pod(&mut other);
        let spec = other.spec.unwrap();
        assert_eq!(
            (spec.node_name.as_deref(), spec.volumes, other.metadata.annotations),
            (Some("a"), None, None)
        );
        assert!(spec.containers[0].image.is_none() && spec.containers[0].resources.is_some());
        let ours = pod(json!({names::MANAGED_BY_LABEL: names::MANAGER}));
        let mut trimmed = ours.clone();
        trim_pod(&mut trimmed);
        assert_eq!(trimmed, ours);
    }
}
