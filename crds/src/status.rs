//! What the operator reports, and the names of conditions and reasons.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::demjob::Decomposition;

/// Types of conditions.
pub mod conditions {
    /// The specification is valid and the job may start.
    pub const ADMITTED: &str = "Admitted";
    /// Nodes are chosen and ranks are mapped to them.
    pub const PLANNED: &str = "Planned";
    /// All pods of the attempt are bound to their nodes.
    pub const PODS_SCHEDULED: &str = "PodsScheduled";
    /// The launcher has proved that every worker answers.
    pub const WORKERS_REACHABLE: &str = "WorkersReachable";
    /// Ranks are bound to CPUs as asked.
    pub const BINDING_VERIFIED: &str = "BindingVerified";
    /// Ranks are running now.
    pub const RUNNING: &str = "Running";
    /// A complete checkpoint exists.
    pub const CHECKPOINTED: &str = "Checkpointed";
    /// The job is suspended and has no pod.
    pub const SUSPENDED: &str = "Suspended";
    /// An attempt has ended and another one is to follow.
    pub const RESTARTING: &str = "Restarting";
    /// The program has ended well. Final.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The job has ended without success. Final.
    pub const FAILED: &str = "Failed";
}

/// Reasons of conditions, ends of attempts and events.
pub mod reasons {
    /// The specification or the simulation file is wrong.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// What may not change after the start has been changed.
    pub const FIXED_AFTER_START: &str = "FixedAfterStart";
    /// Nothing is wrong with the specification.
    pub const VALID: &str = "Valid";
    /// No set of nodes holds the job at present.
    pub const UNPLACEABLE: &str = "Unplaceable";
    /// A plan is made.
    pub const PLACED: &str = "Placed";
    /// The lease of an earlier attempt may still be alive.
    pub const WAITING_FOR_LEASE: &str = "WaitingForLease";
    /// The next try is due later.
    pub const BACKING_OFF: &str = "BackingOff";
    /// Pods are not bound or not running yet.
    pub const STARTING: &str = "Starting";
    /// All is as it should be.
    pub const READY: &str = "Ready";
    /// The attempt runs.
    pub const RUNNING: &str = "Running";
    /// The attempt has ended.
    pub const ENDED: &str = "Ended";
    /// Ranks were asked to write a checkpoint and stop.
    pub const STOPPING: &str = "Stopping";
    /// The user asked for it.
    pub const SUSPENDED: &str = "Suspended";
    /// The user took the suspension back.
    pub const RESUMED: &str = "Resumed";
    /// Checkpoints are written, but not where a later attempt would find them.
    pub const NO_VOLUME: &str = "NoVolume";
    /// The program ended with exit code 0.
    pub const COMPLETED: &str = "Completed";
    /// A rank ended with another exit code.
    pub const PROGRAM_EXIT: &str = "ProgramExit";
    /// A rank was ended by a signal.
    pub const PROGRAM_SIGNAL: &str = "ProgramSignal";
    /// A rank needed more memory than its pod's limit.
    pub const OUT_OF_MEMORY: &str = "OutOfMemory";
    /// A guard of the solver stopped the run.
    pub const GUARD_VIOLATION: &str = "GuardViolation";
    /// A worker's pod was deleted, evicted or has ended.
    pub const WORKER_LOST: &str = "WorkerLost";
    /// A worker's node is gone or not ready.
    pub const NODE_LOST: &str = "NodeLost";
    /// The kubelet refused a worker.
    pub const NODE_REFUSED_POD: &str = "NodeRefusedPod";
    /// The launcher's pod is gone or has ended without a word.
    pub const LAUNCHER_LOST: &str = "LauncherLost";
    /// The launcher does not answer.
    pub const LAUNCHER_UNREACHABLE: &str = "LauncherUnreachable";
    /// A worker does not answer.
    pub const WORKER_UNREACHABLE: &str = "WorkerUnreachable";
    /// A lease ended, and the ranks with it.
    pub const LEASE_ENDED: &str = "LeaseEnded";
    /// A worker or its node asked the ranks to stop (drain, eviction).
    pub const DRAINED: &str = "Drained";
    /// Not all workers were bound and running in time.
    pub const START_DEADLINE: &str = "StartDeadlineExceeded";
    /// The job took too long.
    pub const ACTIVE_DEADLINE: &str = "ActiveDeadlineExceeded";
    /// The image cannot be pulled.
    pub const IMAGE_ERROR: &str = "ImageError";
    /// The program cannot be started.
    pub const COMMAND_ERROR: &str = "CommandError";
    /// A container cannot be configured, or the solver refuses its input.
    pub const CONFIG_ERROR: &str = "ConfigError";
}

/// The state of a DemJob as the operator last saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DemJobStatus {
    /// What holds of the job now, each with the reason.
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,

    /// The generation of the specification that this status answers.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// One word for the whole, derived from the conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,

    /// Why the job is in this state: the reason of the condition that decides it.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// Number of the present or last attempt, from 1. Absent until the first one.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,

    /// The last 10 attempts, oldest first: what each cost and why it ended.
    #[schemars(length(max = 10))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,

    /// Worker pods of the present attempt, in the order of the plan's nodes.
    #[schemars(length(max = 5000))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Worker>,

    /// Number given to the next worker pod of the same index, so that no two ever share a name.
    #[schemars(range(min = 0))]
    pub incarnations: i32,

    /// Failures of the program so far.
    #[schemars(range(min = 0))]
    pub program_failures: i32,

    /// Losses of infrastructure so far.
    #[schemars(range(min = 0))]
    pub infrastructure_losses: i32,

    /// Hash of what may not change once the job has started.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulation_hash: Option<String>,

    /// Start of the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// End of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// Beginning of the present suspension, if the job had started before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_at: Option<Time>,

    /// Time spent in earlier suspensions [s].
    #[schemars(range(min = 0))]
    pub suspended_seconds: i64,

    /// Folder of the job's results and checkpoints on its volumes: its name, and what tells it from other jobs that had
    /// or will have the same name.
    #[schemars(length(max = 127))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,

    /// Nodes and mapping of the present attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanStatus>,

    /// How far the run is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,

    /// How evenly the ranks are loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<Imbalance>,

    /// The culprit of the last failure. Stays after the clean-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// One word for the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// The specification is wrong; condition Admitted says what to change.
    Invalid,
    /// Waits for nodes, a lease or a back-off.
    Waiting,
    /// Pods are created and reached.
    Starting,
    /// Ranks run.
    Running,
    /// Ranks write a checkpoint and stop.
    Stopping,
    /// An attempt has ended and the next one is prepared.
    Restarting,
    /// Suspended by the user.
    Suspended,
    /// Ended well.
    Succeeded,
    /// Ended without success.
    Failed,
}

/// One attempt to run the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempt {
    /// Its number, from 1.
    #[schemars(range(min = 1))]
    pub number: i32,
    /// When its nodes were chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// UID of the launcher's pod.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// When the workers and their addresses were given to the launcher: from here on it could commit results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launched_at: Option<Time>,
    /// When its ranks were first seen running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_at: Option<Time>,
    /// The step it started from.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_step: Option<i64>,
    /// The last step it is known to have reached.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_step: Option<i64>,
    /// The step of its last complete checkpoint.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_step: Option<i64>,
    /// Number of nodes.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<i32>,
    /// Why its ranks were asked to stop, if they were.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// When its ranks were asked to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_requested_at: Option<Time>,
    /// When a failure was seen whose first cause is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// When its launcher was seen to have ended; until then it may renew leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launcher_ended_at: Option<Time>,
    /// Why it ended.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which failure budget it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// Steps computed after its last checkpoint, to be computed again.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_steps: Option<i64>,
    /// Nodes to avoid for a while because of how it ended.
    #[schemars(length(max = 16), inner(length(max = 253)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub avoid_nodes: Vec<String>,
}

/// The failure budget that an attempt used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Cost {
    /// None.
    Nothing,
    /// One program failure.
    ProgramFailure,
    /// One infrastructure loss.
    InfrastructureLoss,
}

/// A worker pod of the present attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Worker {
    /// Name of the pod.
    #[schemars(length(max = 63))]
    pub pod: String,
    /// UID of the pod, once it exists: another pod of the same name does not count.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Its node.
    #[schemars(length(max = 253))]
    pub node: String,
    /// Number of ranks on it.
    #[schemars(range(min = 1, max = 1024))]
    pub ranks: i32,
    /// True when its containers were seen terminated, or its agent said that its ranks have ended.
    pub ended: bool,
}

/// Nodes and mapping of the present attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanStatus {
    /// Number of nodes.
    #[schemars(range(min = 0, max = 5000))]
    pub node_count: i32,
    /// The nodes, in the order of their ranks.
    #[schemars(length(max = 5000))]
    pub nodes: Vec<PlannedNode>,
    /// Flat or NodeFirst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decomposition: Option<Decomposition>,
    /// Where the predicted numbers come from.
    pub source: PlanSource,
    /// Ghosts that ranks on different nodes exchange per step, as planned.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inter_node_ghosts: Option<i64>,
    /// The same with a flat decomposition and ranks in order, for comparison.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_order_ghosts: Option<i64>,
    /// Ghosts that any two ranks exchange per step, as planned.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inter_rank_ghosts: Option<i64>,
    /// Ghosts that the busiest node receives and sends per step, as planned.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_node_ghosts: Option<i64>,
    /// No mapping of this decomposition has fewer inter-node ghosts than this.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<i64>,
    /// How far the plan is above the lower bound, at most [per cent].
    #[schemars(range(min = 0.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
}

/// One node of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlannedNode {
    /// Name of the node.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Ranks on it.
    #[schemars(range(min = 1, max = 1024))]
    pub ranks: i32,
}

/// Where a plan's predicted numbers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlanSource {
    /// The particles themselves.
    Exact,
    /// A histogram of particles stored with a checkpoint.
    Histogram,
    /// An evenly filled box, or the start of a simulation that goes on from a checkpoint.
    #[default]
    Assumed,
}

/// How far the run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// The step reached.
    #[schemars(range(min = 0))]
    pub step: i64,
    /// The step at which the run ends.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<i64>,
    /// Both, as `step/steps`.
    #[schemars(length(max = 48))]
    pub label: String,
    /// Number of particles.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub particles: Option<i64>,
    /// Steps per second at present.
    #[schemars(range(min = 0.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_per_second: Option<f64>,
    /// The same, as text for a table.
    #[schemars(length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Time left at the present rate [s].
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<i64>,
    /// The same, as text for a table.
    #[schemars(length(max = 32))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left: Option<String>,
    /// The step of the last complete checkpoint.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_checkpoint_step: Option<i64>,
}

/// How evenly the ranks are loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Imbalance {
    /// λ = (L_max / L_mean - 1) * 100 over the ranks' thread CPU time [per cent].
    #[schemars(range(min = 0.0))]
    pub lambda: f64,
    /// λ with a per cent sign, for a table.
    #[schemars(length(max = 32))]
    pub label: String,
    /// The rank with the largest load.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowest_rank: Option<i32>,
    /// Share of the wall time that ranks wait for others [0 to 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_share: Option<f64>,
    /// Share of the wall time that ranks communicate [0 to 1].
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm_share: Option<f64>,
}

/// The culprit of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Failure {
    /// What happened, one word.
    #[schemars(length(max = 64))]
    pub reason: String,
    /// What happened, one sentence.
    #[schemars(length(max = 1024))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The attempt it ended.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// The rank that failed first.
    #[schemars(range(min = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<i32>,
    /// Its pod.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Its node.
    #[schemars(length(max = 253))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The last lines it wrote.
    #[schemars(length(max = 20), inner(length(max = 512)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}
