//! The objects and texts of a job, from validated data. Rendering cannot fail: names and sizes were checked before.

mod attempt;
mod launcher;
mod network_policy;
mod overlay;
mod tls;
mod worker;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext, PodSpec, SeccompProfile, SecretVolumeSource,
    SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

pub use attempt::{attempt_command, attempt_files};
pub use launcher::launcher_pod;
pub use network_policy::network_policy;
pub(crate) use overlay::overlay_problems;
pub use tls::{TlsMaterial, ca_secret, tls_secret};
pub use worker::{WorkerPlace, memory_beside_ranks, shape_hash, worker_pod};

use crate::names::{self, Role};
use crate::validate::ValidatedJob;

/// Where checkpoints are in a worker.
pub const CHECKPOINTS: &str = "/dem/checkpoints";
/// Where results are in a worker.
pub const OUTPUT: &str = "/dem/output";
/// Where input files are in a worker, when the job has an input volume.
pub const INPUT: &str = "/dem/input";
/// Where `dem-agent` is in every pod.
pub const BIN: &str = "/dem/bin";
/// Where an attempt's files are.
pub const RUN: &str = "/dem/run";
/// Where counter pages are.
pub const PAGES: &str = "/dev/shm/dem";

/// What the installation decides, the same for all jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Image with `dem-agent`.
    pub agent_image: String,
    /// `imagePullPolicy` of the agent's init container.
    pub agent_pull_policy: Option<String>,
    /// Image of simulation jobs that name none.
    pub solver_image: String,
    /// User of the pods' processes; restricted pod security refuses 0.
    pub run_as_user: i64,
    /// Lease that a launcher renews at its workers [s].
    pub worker_lease: i64,
    /// Lease that the operator renews at launchers [s].
    pub launcher_lease: i64,
    /// How long ranks may take to write a checkpoint and stop [s].
    pub grace: i64,
    /// Waiting ranks give up the CPU: for nodes that share real cores.
    pub yield_when_idle: bool,
    /// Namespace of the operator, admitted by the jobs' NetworkPolicies.
    pub operator_namespace: String,
    /// Labels of the operator's pods.
    pub operator_labels: BTreeMap<String, String>,
    /// Namespace labels of the scraper of metrics; empty admits every namespace to the metrics port.
    pub scraper_namespace_labels: BTreeMap<String, String>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            agent_image: "dem-operator/operator:latest".to_owned(),
            agent_pull_policy: None,
            solver_image: "dem-operator/solver:latest".to_owned(),
            run_as_user: 10001,
            worker_lease: 10,
            launcher_lease: 600,
            grace: 60,
            yield_when_idle: false,
            operator_namespace: "dem-system".to_owned(),
            operator_labels: [("app.kubernetes.io/name".to_owned(), "dem-operator".to_owned())].into(),
            scraper_namespace_labels: BTreeMap::new(),
        }
    }
}

/// Metadata of a child: name, labels, and the job as its owner, so that the garbage collector removes it.
fn metadata(job: &ValidatedJob, name: String, labels: BTreeMap<String, String>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(job.namespace.clone()),
        labels: Some(labels),
        owner_references: Some(vec![OwnerReference {
            api_version: format!("{}/{}", dem_crds::GROUP, dem_crds::VERSION),
            kind: "DemJob".to_owned(),
            name: job.name.clone(),
            uid: job.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    }
}

/// CPU and memory of a container: limits equal requests, so that the pod's class is Guaranteed.
struct Size {
    /// CPU in thousandths of a core.
    millicores: u64,
    /// Memory [bytes].
    memory: u64,
}

impl Size {
    fn requirements(&self) -> k8s_openapi::api::core::v1::ResourceRequirements {
        let cpu = if self.millicores.is_multiple_of(1000) {
            (self.millicores / 1000).to_string()
        } else {
            format!("{}m", self.millicores)
        };
        let amounts: BTreeMap<String, Quantity> =
            [("cpu".to_owned(), Quantity(cpu)), ("memory".to_owned(), Quantity(self.memory.to_string()))]
                .into();
        k8s_openapi::api::core::v1::ResourceRequirements {
            limits: Some(amounts.clone()),
            requests: Some(amounts),
            ..Default::default()
        }
    }
}

/// What worker and launcher pods have in common: an init container that brings `dem-agent`, the main container with
/// the job's image, restricted security, and no token of the API server.
fn pod_spec(job: &ValidatedJob, settings: &Settings, role: Role, size: &Size, shared_memory: u64) -> PodSpec {
    let mut volumes = vec![
        empty_dir("bin", None, None),
        empty_dir("run", Some("Memory"), Some(16 << 20)),
        empty_dir("tmp", None, None),
        Volume {
            name: "tls".to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(names::tls_secret(&job.name, role)),
                default_mode: Some(0o440),
                ..Default::default()
            }),
            ..Volume::default()
        },
    ];
    let mut mounts = vec![mount("bin", BIN, true), mount("run", RUN, false), mount("tmp", "/tmp", false)];
    mounts.push(mount("tls", "/dem/tls", true));
    if shared_memory > 0 {
        volumes.push(empty_dir("shm", Some("Memory"), Some(shared_memory)));
        mounts.push(mount("shm", "/dev/shm", false));
    }
    let main = Container {
        name: role.as_str().to_owned(),
        image: Some(job.image.clone()),
        image_pull_policy: job.image_pull_policy.map(str::to_owned),
        command: Some(vec![format!("{BIN}/dem-agent"), role.as_str().to_owned()]),
        env: Some(vec![env("HOME", "/tmp"), env("TMPDIR", "/tmp")]),
        volume_mounts: Some(mounts),
        resources: Some(size.requirements()),
        security_context: Some(container_security()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    };
    let install = Container {
        name: "install".to_owned(),
        image: Some(settings.agent_image.clone()),
        image_pull_policy: settings.agent_pull_policy.clone(),
        command: Some(vec!["/dem-agent".to_owned(), "install".to_owned(), BIN.to_owned()]),
        volume_mounts: Some(vec![mount("bin", BIN, false)]),
        // A pod is Guaranteed only if its init containers are too; they add nothing to the pod's request, which is
        // the larger of the two.
        resources: Some(size.requirements()),
        security_context: Some(container_security()),
        ..Container::default()
    };
    PodSpec {
        init_containers: Some(vec![install]),
        containers: vec![main],
        volumes: Some(volumes),
        restart_policy: Some("Never".to_owned()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(settings.grace),
        image_pull_secrets: Some(
            job.image_pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() }).collect(),
        )
        .filter(|secrets: &Vec<_>| !secrets.is_empty()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(settings.run_as_user),
            run_as_group: Some(settings.run_as_user),
            fs_group: Some(settings.run_as_user),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        tolerations: Some(job.tolerations.clone()).filter(|list| !list.is_empty()),
        ..PodSpec::default()
    }
}

/// Time between the agent's own end of its patience and the kubelet's [s].
const AGENT_AHEAD: i64 = 5;

/// Tells the agent of a finished pod how long it may wait for its ranks: less than its kubelet waits for it.
fn tell_grace(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let patience = spec.termination_grace_period_seconds.unwrap_or(30).saturating_sub(AGENT_AHEAD).max(1);
    if let Some(container) = spec.containers.first_mut() {
        container.env.get_or_insert_default().push(env("DEM_GRACE_SECONDS", &patience.to_string()));
    }
}

fn container_security() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}

fn env(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), ..EnvVar::default() }
}

fn mount(volume: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only: Some(read_only).filter(|only| *only),
        ..VolumeMount::default()
    }
}

fn empty_dir(name: &str, medium: Option<&str>, limit: Option<u64>) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            size_limit: limit.map(|bytes| Quantity(bytes.to_string())),
        }),
        ..Volume::default()
    }
}

fn claim(name: &str, claim: &str, read_only: bool) -> Volume {
    Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim.to_owned(),
            read_only: Some(read_only).filter(|only| *only),
        }),
        ..Volume::default()
    }
}
