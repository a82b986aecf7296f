//! Worker pods.

use k8s_openapi::api::core::v1::{
    Affinity, ContainerPort, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
};

use super::overlay::apply_overlay;
use super::{
    CHECKPOINTS, INPUT, OUTPUT, Settings, Size, claim, empty_dir, env, metadata, mount, pod_spec, tell_grace,
};
use crate::names::{self, Role};
use crate::validate::ValidatedJob;

/// Memory of the agent and of mpirun's daemon in a worker [bytes].
const AGENT_MEMORY: u64 = 64 << 20;

/// Shared memory of a worker pod [bytes]: at least a page of each rank's fits.
fn shared_memory(asked: u64) -> u64 {
    asked.max(1 << 20)
}

/// Memory of a worker pod beside that of its ranks [bytes], with `asked` of shared memory. Shared memory counts, since
/// the kernel charges it to the container.
pub fn memory_beside_ranks(asked: u64) -> u64 {
    shared_memory(asked) + AGENT_MEMORY
}

/// Where a worker goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerPlace {
    /// Name of the pod.
    pub pod: String,
    /// Its place in the plan's list of nodes.
    pub index: usize,
    /// Its node.
    pub node: String,
    /// Ranks on it.
    pub ranks: u32,
}

/// The pod of one worker.
///
/// It is bound by affinity on the node's name: the scheduler still checks resources, taints and volumes, which
/// `nodeName` would skip.
pub fn worker_pod(job: &ValidatedJob, settings: &Settings, place: &WorkerPlace) -> Pod {
    let ranks = u64::from(place.ranks);
    let size = Size {
        millicores: 1000 * ranks * u64::from(job.cpus_per_rank),
        memory: ranks * job.memory_per_rank + memory_beside_ranks(job.shared_memory),
    };
    let mut spec = pod_spec(job, settings, Role::Worker, &size, shared_memory(job.shared_memory));
    spec.hostname = Some(place.pod.clone());
    spec.affinity = Some(Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_fields: Some(vec![NodeSelectorRequirement {
                        key: "metadata.name".to_owned(),
                        operator: "In".to_owned(),
                        values: Some(vec![place.node.clone()]),
                    }]),
                    ..NodeSelectorTerm::default()
                }],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    });
    let volumes = spec.volumes.get_or_insert_default();
    let output = job.output_claim.as_ref();
    // A claim is listed once, however often it is mounted.
    let mut mounts = Vec::new();
    for (name, path, claimed, read_only) in [
        ("checkpoints", CHECKPOINTS, job.checkpoint_claim.as_ref(), false),
        ("output", OUTPUT, output, false),
        ("input", INPUT, job.input_claim.as_ref(), true),
    ] {
        match claimed {
            Some(claimed) => {
                let known = volumes.iter().find(|volume| {
                    volume.persistent_volume_claim.as_ref().is_some_and(|other| other.claim_name == *claimed)
                });
                let volume = match known {
                    Some(volume) => volume.name.clone(),
                    None => {
                        volumes.push(claim(name, claimed, false));
                        name.to_owned()
                    }
                };
                mounts.push(mount(&volume, path, read_only));
            }
            None if name == "input" => {}
            None => {
                volumes.push(empty_dir(name, None, None));
                mounts.push(mount(name, path, false));
            }
        }
    }
    if let Some(container) = spec.containers.first_mut() {
        container.volume_mounts.get_or_insert_default().extend(mounts);
        container.ports = Some(vec![port("agent", names::AGENT_PORT), port("metrics", names::METRICS_PORT)]);
        container.env.get_or_insert_default().extend([
            env("DEM_NODE", &place.node),
            env("DEM_JOB", &job.name),
            env("DEM_NAMESPACE", &job.namespace),
        ]);
    }
    let mut labels = names::pod_labels(&job.name, Role::Worker);
    labels.insert(names::WORKER_INDEX_LABEL.to_owned(), place.index.to_string());
    let mut pod = Pod { metadata: metadata(job, place.pod.clone(), labels), spec: Some(spec), status: None };
    pod.metadata.annotations = Some(
        [
            (names::SHAPE_ANNOTATION.to_owned(), shape_hash(job, settings, place.ranks)),
            (names::RANKS_ANNOTATION.to_owned(), place.ranks.to_string()),
        ]
        .into(),
    );
    apply_overlay(&mut pod, job.worker_template.as_ref(), Role::Worker);
    tell_grace(&mut pod);
    pod
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort { name: Some(name.to_owned()), container_port: number, ..ContainerPort::default() }
}

/// Hash of all that a worker pod is made from, except its name and node: a pod of another attempt with the same hash
/// can serve again.
pub fn shape_hash(job: &ValidatedJob, settings: &Settings, ranks: u32) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: String| {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    };
    add(format!("{ranks} {} {} {}", job.cpus_per_rank, job.memory_per_rank, job.shared_memory));
    add(format!("{} {:?} {:?}", job.image, job.image_pull_policy, job.image_pull_secrets));
    add(format!("{} {:?} {}", settings.agent_image, settings.agent_pull_policy, settings.run_as_user));
    add(format!("{:?} {:?} {:?}", job.checkpoint_claim, job.output_claim, job.input_claim));
    add(serde_json::json!([job.tolerations, job.worker_template]).to_string());
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}
