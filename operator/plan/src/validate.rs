//! From a `DemJob` and what it refers to, to a [`ValidatedJob`], the only input of the later stages; or to all
//! problems at once. The rules of the CRD (CEL) are checked again, since an object may have been stored under
//! older ones, and with them those that the API server cannot see.

use std::collections::BTreeMap;
use std::fmt;

use dem_config::Simulation;
use dem_crds::{
    Claim, CleanPodPolicy, ConfigMapKey, Decomposition, DemJob, DemJobSpec, HaloGraph, MANAGED_BY, Mapping,
    NetworkMode, Pinning, PodTemplate, RestartFrom, Sharing, SimulationSource, TopologyLevel,
};
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};

use crate::names::Role;
use crate::quantity::Quantity;
use crate::render::{Settings, overlay_problems};

/// Largest amount of memory that is taken for meant [bytes].
const MOST_BYTES: u64 = 1 << 50;

/// One thing that is wrong, in the words of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field: `spec.ranks`.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

impl Problem {
    pub(crate) fn new(field: &str, found: impl fmt::Display, expected: impl fmt::Display) -> Problem {
        Problem { field: field.to_owned(), found: found.to_string(), expected: expected.to_string() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: found {}, expected {}", self.field, self.found, self.expected)
    }
}

/// What a DemJob refers to in its namespace, as far as it exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// Data of ConfigMaps by name.
    pub config_maps: BTreeMap<String, BTreeMap<String, String>>,
    /// Claims by name.
    pub claims: BTreeMap<String, ClaimFacts>,
}

/// What matters of a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its access modes: `ReadWriteMany`, ...
    pub access_modes: Vec<String>,
    /// It is being deleted.
    pub deleting: bool,
}

/// A DemJob that can be planned and rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedJob {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID, for owner references.
    pub uid: String,
    /// What runs.
    pub workload: Workload,
    /// Image of the ranks.
    pub image: String,
    /// `imagePullPolicy` of the ranks' container.
    pub image_pull_policy: Option<&'static str>,
    /// Names of image pull Secrets.
    pub image_pull_secrets: Vec<String>,
    /// MPI ranks.
    pub ranks: u32,
    /// Least ranks of a node.
    pub min_ranks_per_node: Option<u32>,
    /// Most ranks of a node.
    pub max_ranks_per_node: Option<u32>,
    /// Whole CPUs of a rank.
    pub cpus_per_rank: u32,
    /// Memory of a rank [bytes].
    pub memory_per_rank: u64,
    /// Shared memory of a worker [bytes].
    pub shared_memory: u64,
    /// How subdomains are given to nodes.
    pub mapping: Mapping,
    /// How the domain is cut.
    pub decomposition: Decomposition,
    /// Levels of the network above the node.
    pub topology: Vec<TopologyLevel>,
    /// Whole cores that a node keeps.
    pub reserve_cores: u32,
    /// Only nodes with these labels.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Required node affinity.
    pub node_affinity: Option<NodeSelector>,
    /// Claim for checkpoints.
    pub checkpoint_claim: Option<String>,
    /// Claim for results.
    pub output_claim: Option<String>,
    /// Claim with input files.
    pub input_claim: Option<String>,
    /// Claims that one node at a time can mount: the job must fit on one node.
    pub single_node_claims: Vec<String>,
    /// Where the first attempt starts from.
    pub restart_from: Option<RestartFrom>,
    /// Program failures that are followed by a restart.
    pub max_program_failures: i32,
    /// Infrastructure losses that are followed by a restart.
    pub max_infrastructure_losses: i32,
    /// Time for an attempt to start [s].
    pub start_deadline: i64,
    /// Time for the job [s].
    pub active_deadline: Option<i64>,
    /// Time to the deletion of the ended job [s].
    pub ttl: Option<i64>,
    /// Which pods go at the end.
    pub clean_pod_policy: CleanPodPolicy,
    /// Overlay of worker pods.
    pub worker_template: Option<PodTemplate>,
    /// Overlay of launcher pods.
    pub launcher_template: Option<PodTemplate>,
}

/// What the ranks run.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// The solver on a simulation.
    Simulation {
        /// The simulation, with the job's checkpoint period in it.
        simulation: Box<Simulation>,
        /// Hash of what may not change once the job has started (its fixed part).
        hash: String,
    },
    /// A program of the user's own.
    Program {
        /// Program and arguments.
        command: Vec<String>,
        /// Ranks along x, y, z, when the user says that they form a grid.
        grid: Option<[u32; 3]>,
        /// Text of the user's own halo graph.
        halo: Option<String>,
    },
}

/// Whether the job belongs to another controller: then the operator leaves it alone, whatever it says.
pub fn managed_by_other(job: &DemJob) -> bool {
    job.spec.managed_by.as_deref().is_some_and(|manager| manager != MANAGED_BY)
}

/// The ConfigMaps and claims that a job refers to, to be looked up before [`validate`].
pub fn references(spec: &DemJobSpec) -> (Vec<String>, Vec<String>) {
    let mut maps = Vec::new();
    if let Some(SimulationSource::ConfigMap(key)) = &spec.simulation {
        maps.push(key.name.clone());
    }
    if let Some(HaloGraph::ConfigMap(key)) = spec.program.as_ref().and_then(|p| p.halo_graph.as_ref()) {
        maps.push(key.name.clone());
    }
    let claims = claims(spec).into_iter().map(|(_, claim, _)| claim.claim_name.clone()).collect();
    (maps, claims)
}

/// Field, claim, and whether it is only read.
fn claims(spec: &DemJobSpec) -> Vec<(&'static str, &Claim, bool)> {
    let checkpoint = spec.checkpoint.as_ref().and_then(|c| c.volume.as_ref());
    let output = spec.output.as_ref().map(|o| &o.volume);
    let input = spec.input.as_ref().map(|i| &i.volume);
    [
        ("spec.checkpoint.volume.persistentVolumeClaim.claimName", checkpoint, false),
        ("spec.output.volume.persistentVolumeClaim.claimName", output, false),
        ("spec.input.volume.persistentVolumeClaim.claimName", input, true),
    ]
    .into_iter()
    .filter_map(|(field, volume, read)| volume.map(|v| (field, &v.persistent_volume_claim, read)))
    .collect()
}

/// Checks a job.
///
/// # Errors
/// All problems, each with field, what was found and what would be right.
pub fn validate(
    job: &DemJob,
    references: &References,
    settings: &Settings,
) -> Result<ValidatedJob, Vec<Problem>> {
    let spec = &job.spec;
    let mut problems = Vec::new();
    let name = job.metadata.name.clone().unwrap_or_default();
    if name.len() > dem_crds::MAX_NAME_LENGTH || name.contains('.') {
        problems.push(Problem::new(
            "metadata.name",
            format!("{name:?} with {} characters", name.len()),
            format!("at most {} characters and no dot", dem_crds::MAX_NAME_LENGTH),
        ));
    }
    let workload = workload(spec, references, &mut problems);
    let ranks = within("spec.ranks", spec.ranks, 1, dem_crds::MAX_RANKS, &mut problems);
    let bounds = spec.ranks_per_node.unwrap_or_default();
    let min = bounds.min.map(|n| within("spec.ranksPerNode.min", n, 1, 1024, &mut problems));
    let max = bounds.max.map(|n| within("spec.ranksPerNode.max", n, 1, 1024, &mut problems));
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        problems.push(Problem::new("spec.ranksPerNode.min", min, format!("at most ranksPerNode.max, {max}")));
    }
    if let Some(min) = min
        && min > ranks
    {
        problems.push(Problem::new("spec.ranksPerNode.min", min, format!("at most spec.ranks, {ranks}")));
    }
    let cpus = within("spec.resources.cpusPerRank", spec.resources.cpus_per_rank, 1, 256, &mut problems);
    let memory = bytes("spec.resources.memoryPerRank", &spec.resources.memory_per_rank, &mut problems);
    let shared = bytes("spec.resources.sharedMemory", &spec.resources.shared_memory, &mut problems);
    if memory == 0 && problems.iter().all(|p| p.field != "spec.resources.memoryPerRank") {
        problems.push(Problem::new("spec.resources.memoryPerRank", 0, "above 0"));
    }
    let reserve = within(
        "spec.placement.reserveCoresPerNode",
        spec.placement.reserve_cores_per_node,
        0,
        64,
        &mut problems,
    );
    unsupported(job, &mut problems);
    checkpoint_rules(spec, &mut problems);
    let single_node_claims = check_claims(spec, references, ranks, max, &mut problems);
    let node_affinity = node_affinity(spec.placement.affinity.as_ref(), &mut problems);
    for (index, level) in spec.placement.topology.iter().enumerate() {
        if spec.placement.topology[..index].iter().any(|other| other.level == level.level) {
            problems.push(Problem::new(
                &format!("spec.placement.topology[{index}].level"),
                format!("{:?} twice", level.level),
                "a different name for each level",
            ));
        }
    }
    for (field, template, role) in [
        ("spec.workerTemplate", &spec.worker_template, Role::Worker),
        ("spec.launcherTemplate", &spec.launcher_template, Role::Launcher),
    ] {
        if let Some(template) = template {
            problems.extend(overlay_problems(field, template, role));
        }
    }
    let claim =
        |volume: Option<&dem_crds::Volume>| volume.map(|v| v.persistent_volume_claim.claim_name.clone());
    match workload {
        Some(workload) if problems.is_empty() => Ok(ValidatedJob {
            name,
            namespace: job.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            uid: job.metadata.uid.clone().unwrap_or_default(),
            workload,
            image: spec.image.clone().unwrap_or_else(|| settings.solver_image.clone()),
            image_pull_policy: spec.image_pull_policy.map(dem_crds::ImagePullPolicy::as_str),
            image_pull_secrets: spec.image_pull_secrets.iter().map(|s| s.name.clone()).collect(),
            ranks,
            min_ranks_per_node: min,
            max_ranks_per_node: max,
            cpus_per_rank: cpus,
            memory_per_rank: memory,
            shared_memory: shared,
            mapping: spec.placement.mapping,
            decomposition: spec.placement.decomposition,
            topology: spec.placement.topology.clone(),
            reserve_cores: reserve,
            node_selector: spec.placement.node_selector.clone(),
            tolerations: spec.placement.tolerations.clone(),
            node_affinity,
            checkpoint_claim: claim(spec.checkpoint.as_ref().and_then(|c| c.volume.as_ref())),
            output_claim: claim(spec.output.as_ref().map(|o| &o.volume)),
            input_claim: claim(spec.input.as_ref().map(|i| &i.volume)),
            single_node_claims,
            restart_from: spec.restart_from.clone(),
            max_program_failures: spec.failure_policy.max_program_failures,
            max_infrastructure_losses: spec.failure_policy.max_infrastructure_losses,
            start_deadline: i64::from(spec.start_deadline_seconds),
            active_deadline: spec.active_deadline_seconds,
            ttl: spec.ttl_seconds_after_finished,
            clean_pod_policy: spec.clean_pod_policy,
            worker_template: spec.worker_template.clone(),
            launcher_template: spec.launcher_template.clone(),
        }),
        _ => Err(problems),
    }
}

/// A number within bounds; a problem (and the nearest bound) if it is not.
fn within(field: &str, value: i32, min: i32, max: i32, problems: &mut Vec<Problem>) -> u32 {
    if value < min || value > max {
        problems.push(Problem::new(field, value, format!("a whole number from {min} to {max}")));
    }
    value.clamp(min, max).unsigned_abs()
}

/// A quantity of memory in whole bytes.
fn bytes(field: &str, text: &str, problems: &mut Vec<Problem>) -> u64 {
    match text.parse::<Quantity>() {
        Ok(quantity) if quantity >= Quantity::ZERO && quantity.floor() <= MOST_BYTES => quantity.floor(),
        _ => {
            problems.push(Problem::new(
                field,
                format!("{text:?}"),
                "a quantity of bytes such as 512Mi or 1.5Gi",
            ));
            0
        }
    }
}

fn workload(spec: &DemJobSpec, references: &References, problems: &mut Vec<Problem>) -> Option<Workload> {
    match (&spec.simulation, &spec.program) {
        (Some(_), Some(_)) => {
            problems.push(Problem::new(
                "spec",
                "simulation and program",
                "exactly one of simulation and program",
            ));
            None
        }
        (None, None) => {
            problems.push(Problem::new(
                "spec",
                "neither simulation nor program",
                "exactly one of simulation and program",
            ));
            None
        }
        (Some(source), None) => simulation(source, spec, references, problems),
        (None, Some(program)) => {
            if program.command.first().is_none_or(String::is_empty) {
                problems.push(Problem::new("spec.program.command", "nothing", "a program and its arguments"));
            }
            let (mut grid, mut halo) = (None, None);
            match &program.halo_graph {
                Some(HaloGraph::Grid(grid_spec)) => {
                    let product: i64 = grid_spec.counts.iter().map(|n| i64::from(*n)).product();
                    if product != i64::from(spec.ranks) || grid_spec.counts.iter().any(|n| *n < 1) {
                        problems.push(Problem::new(
                            "spec.program.haloGraph.grid.counts",
                            format!("{:?} with product {product}", grid_spec.counts),
                            format!("three numbers whose product is spec.ranks, {}", spec.ranks),
                        ));
                    }
                    grid = Some(grid_spec.counts.map(i32::unsigned_abs));
                }
                Some(HaloGraph::ConfigMap(key)) => {
                    halo = config_map_text("spec.program.haloGraph.configMap", key, references, problems)
                        .map(str::to_owned);
                }
                None => {}
            }
            Some(Workload::Program { command: program.command.clone(), grid, halo })
        }
    }
}

fn simulation(
    source: &SimulationSource,
    spec: &DemJobSpec,
    references: &References,
    problems: &mut Vec<Problem>,
) -> Option<Workload> {
    let (prefix, parsed) = match source {
        SimulationSource::Inline(simulation) => {
            let found = simulation.validate();
            ("spec.simulation.inline", if found.is_empty() { Ok((**simulation).clone()) } else { Err(found) })
        }
        SimulationSource::ConfigMap(key) => {
            let text = config_map_text("spec.simulation.configMap", key, references, problems)?;
            ("spec.simulation.configMap", Simulation::from_yaml(text))
        }
    };
    let mut simulation = match parsed {
        Ok(simulation) => simulation,
        Err(found) => {
            problems.extend(found.into_iter().map(|problem| Problem {
                field: if problem.path.is_empty() {
                    prefix.to_owned()
                } else {
                    format!("{prefix}.{}", problem.path)
                },
                found: problem.found,
                expected: problem.expected,
            }));
            return None;
        }
    };
    // A period given in both places must agree; given in one, it counts.
    if let Some(checkpoint) = &spec.checkpoint {
        match (checkpoint.every_steps, simulation.checkpoint.every_steps) {
            (Some(job), Some(file)) if job != file => problems.push(Problem::new(
                "spec.checkpoint.everySteps",
                format!("{job}, and {file} in the simulation"),
                "the same value in both, or in one of them only",
            )),
            (Some(job), None) => simulation.checkpoint.every_steps = Some(job),
            _ => {}
        }
        if checkpoint.every_seconds.is_some()
            && simulation.checkpoint.every_steps.is_some_and(|steps| steps > 0)
        {
            problems.push(Problem::new(
                "spec.checkpoint.everySeconds",
                "a period in seconds, and one in steps in the simulation",
                "one of them only",
            ));
        }
        match simulation.checkpoint.keep {
            Some(file) if file != checkpoint.keep && checkpoint.keep != dem_config::Checkpoint::KEEP => {
                problems.push(Problem::new(
                    "spec.checkpoint.keep",
                    format!("{}, and {file} in the simulation", checkpoint.keep),
                    "the same value in both, or in one of them only",
                ));
            }
            Some(_) => {}
            None => simulation.checkpoint.keep = Some(checkpoint.keep),
        }
    }
    let hash = blake3::hash(simulation.fixed_part().as_bytes()).to_hex().as_str()[..32].to_owned();
    Some(Workload::Simulation { simulation: Box::new(simulation), hash })
}

fn config_map_text<'a>(
    field: &str,
    key: &ConfigMapKey,
    references: &'a References,
    problems: &mut Vec<Problem>,
) -> Option<&'a str> {
    match references.config_maps.get(&key.name) {
        None => {
            problems.push(Problem::new(
                &format!("{field}.name"),
                format!("{:?}, which does not exist", key.name),
                "a ConfigMap in the job's namespace; create it, and the job goes on by itself",
            ));
            None
        }
        Some(data) => match data.get(&key.key) {
            Some(text) => Some(text),
            None => {
                let keys = data.keys().cloned().collect::<Vec<_>>().join(", ");
                problems.push(Problem::new(
                    &format!("{field}.key"),
                    format!("{:?}, which ConfigMap {} does not have", key.key, key.name),
                    format!("one of its keys: {keys}"),
                ));
                None
            }
        },
    }
}

/// What the API has and this version does not do yet: refused instead of ignored.
fn unsupported(job: &DemJob, problems: &mut Vec<Problem>) {
    let spec = &job.spec;
    if spec.network.mode != NetworkMode::Cni {
        problems.push(Problem::new(
            "spec.network.mode",
            format!("{:?}", spec.network.mode),
            "Cni in this version",
        ));
    }
    if spec.sharing != Sharing::Shared {
        problems.push(Problem::new("spec.sharing", format!("{:?}", spec.sharing), "Shared in this version"));
    }
    if let Some(queue) = &spec.queue {
        let kueue = job.metadata.labels.as_ref().is_some_and(|l| l.contains_key("kueue.x-k8s.io/queue-name"));
        let expected = if kueue {
            "either spec.queue or the label kueue.x-k8s.io/queue-name, not both"
        } else {
            "no queue in this version"
        };
        problems.push(Problem::new("spec.queue", format!("queue {:?}", queue.name), expected));
    }
    if spec.checkpoint.as_ref().is_some_and(|c| c.s3.is_some()) {
        problems.push(Problem::new("spec.checkpoint.s3", "a bucket", "checkpoint.volume in this version"));
    }
    if spec.checkpoint.as_ref().is_some_and(|c| c.every_seconds.is_some()) {
        problems.push(Problem::new("spec.checkpoint.everySeconds", "a period", "everySteps in this version"));
    }
    if spec.pinning != Pinning::default() {
        problems.push(Problem::new(
            "spec.pinning",
            format!("{:?}", spec.pinning),
            "no pinning: ranks are not bound in this version",
        ));
    }
}

fn checkpoint_rules(spec: &DemJobSpec, problems: &mut Vec<Problem>) {
    let checkpoint = spec.checkpoint.as_ref();
    if checkpoint.is_some_and(|c| c.every_steps.is_some() && c.every_seconds.is_some()) {
        problems.push(Problem::new("spec.checkpoint", "everySteps and everySeconds", "at most one of them"));
    }
    if let Some(keep) = checkpoint.map(|c| c.keep)
        && !(1..=1000).contains(&keep)
    {
        problems.push(Problem::new("spec.checkpoint.keep", keep, "a whole number from 1 to 1000"));
    }
    if spec.restart_from.is_some() && checkpoint.is_none_or(|c| c.volume.is_none()) {
        problems.push(Problem::new(
            "spec.restartFrom",
            "a checkpoint, but no volume to read it from",
            "checkpoint.volume, where that checkpoint is kept",
        ));
    }
    if let Some(RestartFrom::Job(job)) = &spec.restart_from
        && (job.is_empty() || job.len() > dem_crds::MAX_NAME_LENGTH || job.contains(['/', '.']))
    {
        problems.push(Problem::new("spec.restartFrom.job", format!("{job:?}"), "the name of a DemJob"));
    }
    if let Some(RestartFrom::Path(path)) = &spec.restart_from
        && (path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == ".."))
    {
        problems.push(Problem::new(
            "spec.restartFrom.path",
            format!("{path:?}"),
            "a path relative to the checkpoint volume, without ..",
        ));
    }
}

/// Checks that claims exist; returns those that hold the job on one node.
fn check_claims(
    spec: &DemJobSpec,
    references: &References,
    ranks: u32,
    max_per_node: Option<u32>,
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let mut single = Vec::new();
    for (field, claim, only_read) in claims(spec) {
        let name = &claim.claim_name;
        let Some(facts) = references.claims.get(name) else {
            problems.push(Problem::new(
                field,
                format!("{name:?}, which does not exist"),
                "a PersistentVolumeClaim in the job's namespace; create it, and the job goes on by itself",
            ));
            continue;
        };
        if facts.deleting {
            problems.push(Problem::new(
                field,
                format!("{name:?}, which is being deleted"),
                "a claim that stays",
            ));
        }
        let shared =
            facts.access_modes.iter().any(|m| m == "ReadWriteMany" || only_read && m == "ReadOnlyMany");
        if !shared {
            if let Some(max) = max_per_node.filter(|max| *max < ranks) {
                problems.push(Problem::new(
                    field,
                    format!("{name:?} ({})", facts.access_modes.join(", ")),
                    format!(
                        "a ReadWriteMany claim: {ranks} ranks, at most {max} a node, need more than one node"
                    ),
                ));
            }
            if !single.contains(name) {
                single.push(name.clone());
            }
        }
    }
    single
}

/// The required node affinity; anything else in an affinity is refused.
fn node_affinity(affinity: Option<&serde_json::Value>, problems: &mut Vec<Problem>) -> Option<NodeSelector> {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let field = "spec.placement.affinity";
    let affinity = only_key(affinity?, field, "nodeAffinity", problems)?;
    let field = format!("{field}.nodeAffinity");
    let required = only_key(affinity, &field, REQUIRED, problems)?;
    match serde_json::from_value(required.clone()) {
        Ok(selector) => Some(selector),
        Err(error) => {
            problems.push(Problem::new(
                &format!("{field}.{REQUIRED}"),
                error,
                "a node selector, as in a pod",
            ));
            None
        }
    }
}

/// The value of the one key that is meant to be in an object.
fn only_key<'a>(
    value: &'a serde_json::Value,
    field: &str,
    only: &str,
    problems: &mut Vec<Problem>,
) -> Option<&'a serde_json::Value> {
    let Some(object) = value.as_object() else {
        problems.push(Problem::new(field, value, format!("an object with {only}")));
        return None;
    };
    for key in object.keys().filter(|key| *key != only) {
        problems.push(Problem::new(
            &format!("{field}.{key}"),
            "a wish",
            format!("{only} only: the operator chooses the nodes, and places one worker on each"),
        ));
    }
    object.get(only)
}
