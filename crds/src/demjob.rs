//! What a user may ask for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::{affinity_schema, pod_template_schema};
use crate::status::DemJobStatus;

/// An MPI run of a granular simulation (discrete element method), or of any other MPI program.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::duplicated_attributes, reason = "every printer column has a type, a path and a description")]
#[kube(
    group = "granular.dev",
    version = "v1alpha1",
    kind = "DemJob",
    plural = "demjobs",
    shortname = "dj",
    category = "all",
    namespaced,
    status = "DemJobStatus",
    derive = "PartialEq",
    doc = "A DemJob places the ranks of a granular simulation on nodes by who talks to whom, runs it under MPI, and restarts it from its last checkpoint.",
    selectable = ".spec.suspend",
    selectable = ".status.state",
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(
        name = "Step",
        type_ = "string",
        json_path = ".status.progress.label",
        description = "Step reached / steps to do"
    ),
    printcolumn(
        name = "Rate",
        type_ = "string",
        json_path = ".status.progress.rate",
        description = "Steps per second"
    ),
    printcolumn(
        name = "Left",
        type_ = "string",
        json_path = ".status.progress.timeLeft",
        description = "Time left at the present rate"
    ),
    printcolumn(
        name = "λ",
        type_ = "string",
        json_path = ".status.imbalance.label",
        description = "Load imbalance (L_max / L_mean - 1), per cent"
    ),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.plan.nodeCount"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        priority = "1",
        description = "Why the job is in this state"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DemJobSpec {
    /// The granular simulation to run. Exactly one of simulation and program is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<SimulationSource>,

    /// Any other MPI program to run. Exactly one of simulation and program is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,

    /// Container image with the solver (or the program) and its MPI. Default: the operator's solver image.
    #[schemars(length(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,

    /// When the image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,

    /// Secrets in the job's namespace with credentials for the image's registry.
    #[schemars(length(max = 16))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalReference>,

    /// Number of MPI ranks, one subdomain each.
    #[schemars(range(min = 1, max = 16_384))]
    pub ranks: i32,

    /// How many ranks a node may hold. Default: as many as fit, on as few nodes as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<RanksPerNode>,

    /// What each rank and each worker pod needs.
    #[serde(default)]
    pub resources: Resources,

    /// Which nodes, and which rank on which of them.
    #[serde(default)]
    pub placement: Placement,

    /// How ranks are bound to the CPUs of their node.
    #[serde(default)]
    pub pinning: Pinning,

    /// The network that ranks on different nodes use.
    #[serde(default)]
    pub network: Network,

    /// Who else may be on the job's nodes.
    #[serde(default)]
    pub sharing: Sharing,

    /// The operator's own queue. A job with Kueue's queue label has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,

    /// When checkpoints are written and where they are kept. Without a volume they last as long as the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,

    /// The checkpoint that the first attempt starts from. Default: the initial state of the simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_from: Option<RestartFrom>,

    /// Where results are written. Without a volume they last as long as the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,

    /// Where the files that the simulation names (particles from a file) are read. Default: the output volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Input>,

    /// How many failures of each kind the job survives.
    #[serde(default)]
    pub failure_policy: FailurePolicy,

    /// True stops the job after a checkpoint and removes its pods; false lets it start or go on.
    #[serde(default)]
    pub suspend: bool,

    /// The controller that owns this job. Absent or granular.dev/dem-operator: this operator; any other
    /// value: this operator does nothing at all with it.
    #[schemars(length(min = 1, max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,

    /// Time from the creation of an attempt's pods to all workers reached [s]; after it the try is undone.
    #[schemars(range(min = 5, max = 86_400))]
    #[serde(default = "default_start_deadline")]
    pub start_deadline_seconds: i32,

    /// Time from the first attempt to the end of the job, without the time suspended [s]; after it the job
    /// is stopped with a checkpoint and has failed. Default: none.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i64>,

    /// Time from the job's end to the deletion of the DemJob with all that belongs to it [s]. Default: never.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,

    /// Which pods are deleted when the job has ended.
    #[serde(default)]
    pub clean_pod_policy: CleanPodPolicy,

    /// Labels, annotations and pod fields to add to worker pods. What the operator sets itself is refused.
    #[schemars(schema_with = "pod_template_schema")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_template: Option<PodTemplate>,

    /// Labels, annotations and pod fields to add to launcher pods. What the operator sets itself is refused.
    #[schemars(schema_with = "pod_template_schema")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_template: Option<PodTemplate>,
}

fn default_start_deadline() -> i32 {
    600
}

/// Where the simulation file comes from: exactly one of inline and configMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SimulationSource {
    /// The simulation itself, the same fields as a simulation file.
    Inline(Box<dem_config::Simulation>),
    /// A simulation file in a ConfigMap of the job's namespace.
    ConfigMap(ConfigMapKey),
}

/// One key of a ConfigMap in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it.
    #[schemars(length(min = 1, max = 253))]
    #[serde(default = "default_simulation_key")]
    pub key: String,
}

fn default_simulation_key() -> String {
    "simulation.yaml".to_owned()
}

/// An MPI program of the user's own. Its output is fenced by pods and volume paths only: the operator cannot
/// make it look at the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// The program and its arguments, as each rank runs them. No shell is involved.
    #[schemars(length(min = 1, max = 256), inner(length(max = 4096)))]
    pub command: Vec<String>,
    /// Which ranks exchange data. Default: unknown, and ranks are placed in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halo_graph: Option<HaloGraph>,
}

/// Which ranks of a program exchange data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HaloGraph {
    /// Ranks form a grid, x fastest, and talk to the neighbours that share a face.
    Grid(HaloGrid),
    /// A file with one line per pair of ranks: `rank rank weight`.
    ConfigMap(ConfigMapKey),
}

/// A Cartesian grid of ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HaloGrid {
    /// Ranks along x, y and z; their product is spec.ranks.
    #[schemars(inner(range(min = 1, max = 16_384)))]
    pub counts: [i32; 3],
}

/// A name in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImagePullPolicy {
    /// Before every start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Never; a node without it is an error.
    Never,
}

impl ImagePullPolicy {
    /// The value in a container.
    pub fn as_str(self) -> &'static str {
        match self {
            ImagePullPolicy::Always => "Always",
            ImagePullPolicy::IfNotPresent => "IfNotPresent",
            ImagePullPolicy::Never => "Never",
        }
    }
}

/// Bounds on the ranks of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RanksPerNode {
    /// A node that cannot hold as many is not used (the last node may hold fewer). Default: 1.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i32>,
    /// No node holds more. Default: what its cores and memory allow.
    #[schemars(range(min = 1, max = 1024))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<i32>,
}

/// What ranks and workers need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Whole CPUs of each rank.
    #[schemars(range(min = 1, max = 256))]
    pub cpus_per_rank: i32,
    /// Memory of each rank, a Kubernetes quantity.
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"))]
    pub memory_per_rank: String,
    /// Shared memory (/dev/shm) of each worker pod, added to its memory limit, a Kubernetes quantity.
    #[schemars(length(max = 32), regex(pattern = r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$"))]
    pub shared_memory: String,
}

impl Default for Resources {
    fn default() -> Self {
        Resources { cpus_per_rank: 1, memory_per_rank: "512Mi".to_owned(), shared_memory: "256Mi".to_owned() }
    }
}

/// Choice of nodes, decomposition, and mapping of subdomains to nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Placement {
    /// How subdomains are given to nodes.
    pub mapping: Mapping,
    /// How the domain is cut.
    pub decomposition: Decomposition,
    /// Levels of the network above the node, nearest first.
    #[schemars(length(max = 8))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub topology: Vec<TopologyLevel>,
    /// Whole cores that each node keeps for the system, the network path, launchers and small pods.
    #[schemars(range(min = 0, max = 64))]
    pub reserve_cores_per_node: i32,
    /// Only nodes with these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the job's pods tolerate.
    #[schemars(length(max = 32))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Node affinity, as in a pod: required terms limit the choice of nodes. Pod affinity is refused.
    #[schemars(schema_with = "affinity_schema")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<serde_json::Value>,
}

impl Default for Placement {
    fn default() -> Self {
        Placement {
            mapping: Mapping::Spatial,
            decomposition: Decomposition::Auto,
            topology: Vec::new(),
            reserve_cores_per_node: 1,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            affinity: None,
        }
    }
}

/// How subdomains are given to nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mapping {
    /// Subdomains that share a face share a node where possible.
    #[default]
    Spatial,
    /// Subdomain i belongs to rank i, and nodes are filled in order: what others do.
    InOrder,
}

/// How the domain is cut into subdomains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decomposition {
    /// The better one for Spatial; Flat for InOrder.
    #[default]
    Auto,
    /// Recursive coordinate bisection into ranks, whatever the nodes.
    Flat,
    /// First into nodes, then each node's part into its ranks.
    NodeFirst,
}

/// One level of the network above the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// Its name, for messages: rack, block.
    #[schemars(length(min = 1, max = 63))]
    pub level: String,
    /// The node label whose value names the rack, block...
    #[schemars(length(min = 1, max = 317))]
    pub node_label: String,
    /// True: all nodes share one value, or the job waits.
    #[serde(default)]
    pub required: bool,
}

/// How ranks are bound to CPUs. This version binds nothing yet and takes only the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Pinning {
    /// What a rank is bound to.
    pub policy: PinningPolicy,
    /// How ranks are spread over NUMA nodes.
    pub numa: NumaPolicy,
    /// What happens when the node does not allow it.
    pub on_conflict: OnConflict,
}

/// What a rank is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PinningPolicy {
    /// Cores of its own, where the worker's CPUs are exclusive.
    #[default]
    Core,
    /// Nothing: the kernel moves ranks as it likes.
    None,
}

/// How ranks are spread over NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NumaPolicy {
    /// Evenly.
    #[default]
    Balanced,
    /// One after another.
    Packed,
}

/// What happens when ranks cannot be bound as asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnConflict {
    /// The attempt fails, and the condition BindingVerified says why.
    #[default]
    Fail,
    /// Ranks run unbound, and the condition BindingVerified says why.
    Warn,
}

/// The network between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Network {
    /// Kind of network.
    pub mode: NetworkMode,
}

/// Kind of network between workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NetworkMode {
    /// The cluster's pod network.
    #[default]
    Cni,
    /// The node's own network.
    Host,
    /// A virtual function of a network card for each worker.
    Sriov,
    /// A shared RDMA device.
    RdmaShared,
}

/// Who else may be on the job's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Sharing {
    /// Anyone, on other cores.
    #[default]
    Shared,
    /// Nobody.
    ExclusiveNode,
    /// Jobs of the same namespace.
    SameTenant,
}

/// A place in the operator's own queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Name of the queue.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Jobs of higher priority start first.
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    #[serde(default)]
    pub priority: i32,
}

/// When checkpoints are written, and where they are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Steps between two checkpoints. Must agree with the simulation's own value where that is given.
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_steps: Option<i64>,
    /// Wall-clock time between two checkpoints [s]. At most one of everySteps and everySeconds is given.
    #[schemars(range(min = 1, max = 31_536_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_seconds: Option<i64>,
    /// The volume to keep them on. At most one of volume and s3 is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// The bucket to keep them in. At most one of volume and s3 is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3>,
    /// How many complete checkpoints of an attempt are kept.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(default = "default_keep")]
    pub keep: i32,
}

fn default_keep() -> i32 {
    2
}

/// A volume that all workers can write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// A claim in the job's namespace; ReadWriteMany when the job has more than one worker.
    pub persistent_volume_claim: Claim,
}

/// A PersistentVolumeClaim in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub claim_name: String,
}

/// A bucket of an S3 service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct S3 {
    /// Address of the service.
    #[schemars(length(min = 1, max = 2048), regex(pattern = r"^https?://"))]
    pub endpoint: String,
    /// Name of the bucket.
    #[schemars(length(min = 3, max = 63))]
    pub bucket: String,
    /// Prefix of all keys.
    #[schemars(length(max = 512))]
    #[serde(default)]
    pub prefix: String,
    /// Secret in the job's namespace with keys accessKeyId and secretAccessKey.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// The checkpoint to start from: exactly one of job and path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RestartFrom {
    /// The newest complete checkpoint of the last job of that name on the same checkpoint volume. That job need not
    /// exist any more.
    Job(String),
    /// A folder on the checkpoint volume: a checkpoint's, or that of a job (`status.folder`).
    Path(String),
}

/// Where results are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// The volume; results are in the folder `status.folder` on it.
    pub volume: Volume,
}

/// Where input files are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// The volume, mounted read-only.
    pub volume: Volume,
}

/// Budgets of failures. The two kinds never share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePolicy {
    /// Failures of the program (exit, signal, guard, out of memory) that lead to a restart; one more ends the job.
    #[schemars(range(min = 0, max = 1000))]
    pub max_program_failures: i32,
    /// Losses of infrastructure (node, eviction, drain, preemption) that lead to a restart; one more ends the job.
    #[schemars(range(min = 0, max = 1000))]
    pub max_infrastructure_losses: i32,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        FailurePolicy { max_program_failures: 0, max_infrastructure_losses: 3 }
    }
}

/// Which pods are deleted when the job has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CleanPodPolicy {
    /// None: also the workers stay, and hold their cores.
    None,
    /// Those that still run: the workers go, the launcher that has ended stays for its log.
    #[default]
    Running,
    /// All.
    All,
}

/// An overlay for pods: metadata and any pod field that the operator does not set itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodTemplate {
    /// Labels and annotations to add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Pod fields to add, as in a pod's spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Labels and annotations of an overlay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateMetadata {
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
