//! What was seen of a job's children, as plain data. The operator fills it from its watches and from the
//! launcher's answers; [`crate::assess`] decides on it.
//!
//! All times are the operator's own clock [s since the epoch]. Times written by other machines (a container's
//! `finishedAt`) are not used for decisions: their clocks may differ.

use std::collections::{BTreeMap, BTreeSet};

use dem_crds::{Imbalance, Progress};

/// Seconds since the epoch.
pub type Seconds = i64;

/// Everything seen of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// Worker pods of the job by name, also those that end or belong to no attempt.
    pub workers: BTreeMap<String, Pod>,
    /// Launcher pods of the job by name.
    pub launchers: BTreeMap<String, Pod>,
    /// Nodes named by the plan or by pods; one that is missing here is gone.
    pub nodes: BTreeMap<String, Node>,
    /// What the present attempt's launcher said last, if it answered.
    pub launcher: Option<LauncherReport>,
    /// When the operator renewed the launcher's lease last, as far as it remembers.
    pub last_renewed: Option<Seconds>,
    /// How long the launcher has not answered although its pod runs [s]; 0 when it did.
    pub launcher_silent: Seconds,
    /// UIDs of pods that are gone and whose kubelet had said before that nothing of them runs any more. Kept in
    /// memory only: one that is missing here is waited for.
    pub ended: BTreeSet<String>,
    /// Now.
    pub now: Seconds,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its condition Ready is True.
    pub ready: bool,
}

/// A pod of the job. A pod that the job does not own never gets here.
#[derive(Clone, Debug, PartialEq)]
pub struct Pod {
    /// UID.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Its address.
    pub ip: Option<String>,
    /// Its phase.
    pub phase: PodPhase,
    /// It is being deleted.
    pub deleting: bool,
    /// The pod's own reason (`Evicted`, `OutOfcpu`, `TopologyAffinityError`, ...).
    pub reason: Option<String>,
    /// When it was created.
    pub created: Seconds,
    /// All of its containers were reported terminated by its kubelet.
    pub terminated: bool,
    /// A container was ended by the kernel's out-of-memory killer.
    pub out_of_memory: bool,
    /// Why a container waits (`ImagePullBackOff`, `CreateContainerConfigError`, ...), and the message.
    pub waiting: Option<(String, String)>,
    /// The termination message of the main container, understood.
    pub outcome: Option<Outcome>,
    /// [`crate::render::shape_hash`] that the pod was made with.
    pub shape: String,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodPhase {
    /// Not bound, or containers are being made.
    Pending,
    /// Containers run.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// A container failed, or the kubelet refused the pod.
    Failed,
    /// The kubelet cannot be asked.
    Unknown,
}

/// What a launcher says of the attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct LauncherReport {
    /// UID of the launcher's pod that was asked.
    pub uid: String,
    /// Where the attempt stands.
    pub phase: LauncherPhase,
    /// The step that the attempt started from, once ranks run.
    pub start_step: Option<i64>,
    /// Aggregate of the ranks, already rounded for the status.
    pub progress: Option<Progress>,
    /// Aggregate of the ranks' load, already rounded for the status.
    pub imbalance: Option<Imbalance>,
    /// Pods of workers that do not answer the launcher.
    pub unreachable: Vec<String>,
    /// Pods of workers whose agent confirmed that no process of the attempt lives.
    pub ended: Vec<String>,
    /// Whether ranks are bound as asked: `Err` says why not. None: not known yet.
    pub binding: Option<Result<(), String>>,
    /// How it ended.
    pub outcome: Option<Outcome>,
}

/// Where an attempt stands, as its launcher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherPhase {
    /// It has no attempt yet.
    Waiting,
    /// It reaches its workers.
    Reaching,
    /// Ranks run.
    Running,
    /// Ranks were asked to stop.
    Stopping,
    /// It is over.
    Ended,
}

/// How an attempt ended: the launcher's last word, over the wire or as its termination message.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How.
    pub conclusion: Conclusion,
    /// The last step that all ranks reached.
    pub last_step: Option<i64>,
    /// The step that the attempt started from.
    pub start_step: Option<i64>,
    /// The step of its last complete checkpoint.
    pub checkpoint_step: Option<i64>,
    /// Pods of workers whose agent confirmed that no process of the attempt lives.
    pub ended: Vec<String>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// All ranks came to the end.
    Succeeded,
    /// The ranks wrote a checkpoint and stopped, because somebody asked.
    Stopped,
    /// Something failed first.
    Failed(Fault),
}

/// The first cause of a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Whose fault.
    pub kind: FaultKind,
    /// One of [`dem_crds::reasons`].
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// The culprit's rank.
    pub rank: Option<i32>,
    /// The culprits' pods.
    pub pods: Vec<String>,
    /// Their nodes.
    pub nodes: Vec<String>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// Last lines of output.
    pub last_lines: Vec<String>,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The program: uses the program's budget.
    Program,
    /// Node, pod, agent or network: uses the infrastructure's budget.
    Infrastructure,
    /// What can never work: ends the job and uses no budget.
    Configuration,
}

impl Fault {
    /// An infrastructure fault of one pod.
    pub(crate) fn of_pod(kind: FaultKind, reason: &str, message: String, pod: &str, node: &str) -> Fault {
        Fault {
            kind,
            reason: reason.to_owned(),
            message,
            rank: None,
            pods: vec![pod.to_owned()],
            nodes: vec![node.to_owned()],
            exit_code: None,
            signal: None,
            last_lines: Vec::new(),
        }
    }
}
