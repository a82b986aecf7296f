//! What operator, launcher and workers say to each other.
//!
//! A connection is mutual TLS (see [`crate::tls`]); on it, frames: a big-endian `u32` length, one byte of kind, then
//! `length - 1` bytes. Kind 0 is a JSON message, the others are the raw streams of a remote command. Both sides start
//! with a [`Hello`], the client first. Then the client sends a [`LauncherRequest`] or [`WorkerRequest`] and reads
//! one reply, and so on; only [`WorkerRequest::Exec`] turns the connection into streams.
//!
//! Leases are points in time of the *granted* side's clock (`CLOCK_BOOTTIME`, nanoseconds), which it tells in its hello
//! and in every reply. A request that waited in a queue or a frozen process therefore never grants more than it did
//! when it was sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of this protocol; both sides must speak the same.
pub const PROTOCOL: u32 = 1;
/// Longest frame, in bytes after the length word.
pub const MAX_FRAME: usize = 4 << 20;
/// TCP port of agents, workers' and launchers' alike.
pub const AGENT_PORT: u16 = 7471;
/// TCP port of a worker's plain-HTTP `/metrics`.
pub const METRICS_PORT: u16 = 9471;
/// Longest termination message that the kubelet keeps, in bytes.
pub const TERMINATION_BYTES: usize = 4096;
/// Longest deadline or lease: ten years. Keeps sums of times in range.
pub const MAX_SECONDS: u64 = 315_360_000;
/// Lines of output kept of a failed rank.
pub const LAST_LINES: usize = 20;

/// First message of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// [`PROTOCOL`] of the sender.
    pub protocol: u32,
    /// The sender's clock (`CLOCK_BOOTTIME`), nanoseconds.
    pub clock_ns: u64,
}

/// One worker pod of an attempt, in the order of the plan's nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerHost {
    /// Pod name.
    pub pod: String,
    /// Pod UID.
    pub uid: String,
    /// Node that the pod is bound to.
    pub node: String,
    /// Pod IP.
    pub address: IpAddr,
    /// Ranks that run there, ascending. Every rank of the attempt is in exactly one host's list.
    pub ranks: Vec<u32>,
}

/// Everything that a launcher needs to run one attempt; pushed by the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSpec {
    /// Name of the DemJob.
    pub job: String,
    /// Its namespace.
    pub namespace: String,
    /// Number of the attempt, from 1.
    pub attempt: u64,
    /// Fence token: tells two launchers of the same number apart.
    pub token: String,
    /// Hosts in the plan's order.
    pub workers: Vec<WorkerHost>,
    /// Program and arguments of every rank, without the `dem-agent rank` wrapper, which the launcher adds.
    pub command: Vec<String>,
    /// Environment of every rank, in addition to the worker container's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Text files by plain name (`simulation.yaml`, `plan.json`), written to `<run dir>/attempt-<n>/` of every worker.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Seconds from the arrival of this message within which every worker must have answered.
    pub start_deadline_seconds: u64,
    /// Lease of the workers, renewed by the launcher.
    pub worker_lease_seconds: u64,
    /// First lease of the launcher, renewed by the operator.
    pub launcher_lease_seconds: u64,
    /// Whether waiting ranks give up the CPU (more ranks than cores).
    #[serde(default)]
    pub yield_when_idle: bool,
    /// Further arguments of `mpirun`, before the program.
    #[serde(default)]
    pub mpirun_args: Vec<String>,
}

impl AttemptSpec {
    /// Ranks of the attempt.
    pub fn ranks(&self) -> u32 {
        self.workers.iter().map(|w| w.ranks.len() as u32).sum()
    }

    /// Host of every rank, indexed by rank.
    ///
    /// # Errors
    /// Names the field when the spec cannot be run: no ranks, a rank twice or missing, an empty command, a file name
    /// that is not a plain one.
    pub fn host_of_rank(&self) -> Result<Vec<&WorkerHost>, String> {
        if self.command.is_empty() {
            return Err("command: is empty, must name a program".into());
        }
        if self.attempt == 0 || self.worker_lease_seconds == 0 {
            return Err("attempt and workerLeaseSeconds: must be at least 1".into());
        }
        let seconds = [self.start_deadline_seconds, self.worker_lease_seconds, self.launcher_lease_seconds];
        if let Some(long) = seconds.into_iter().find(|s| *s > MAX_SECONDS) {
            return Err(format!("deadlines and leases: {long} s, must be at most {MAX_SECONDS} s"));
        }
        if let Some(bad) = self.files.keys().find(|name| !is_plain_file_name(name)) {
            return Err(format!("files: {bad:?} must be a plain file name"));
        }
        let ranks = self.ranks();
        let mut hosts = vec![None; ranks as usize];
        for worker in &self.workers {
            if worker.ranks.is_empty() {
                return Err(format!("workers: {} has no ranks", worker.pod));
            }
            for &rank in &worker.ranks {
                match hosts.get_mut(rank as usize) {
                    None => {
                        return Err(format!("workers: rank {rank} of {} is not below {ranks}", worker.pod));
                    }
                    Some(Some(_)) => return Err(format!("workers: rank {rank} is listed twice")),
                    Some(slot) => *slot = Some(worker),
                }
            }
        }
        match hosts.into_iter().collect::<Option<Vec<_>>>() {
            Some(hosts) if !hosts.is_empty() => Ok(hosts),
            _ => Err("workers: there is no rank".into()),
        }
    }
}

/// Whether `name` can be written into a folder without leaving it.
pub fn is_plain_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 200
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// What the operator asks of a launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LauncherRequest {
    /// Run this attempt. Repeating the same number and token is harmless.
    Begin(Box<AttemptSpec>),
    /// Report the state.
    State {
        /// With the table of all ranks.
        ranks: bool,
    },
    /// Extend the launcher's own lease.
    Renew {
        /// Attempt meant.
        attempt: u64,
        /// Its token.
        token: String,
        /// New end of the lease, launcher's clock.
        until_ns: u64,
    },
    /// Ask the ranks to write a checkpoint and to end.
    Stop {
        /// Why, for logs and the outcome.
        reason: String,
    },
}

/// A launcher's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum LauncherReply {
    /// Done; this is the state now.
    State(Box<LauncherState>),
    /// Refused, and why.
    Refused {
        /// The reason.
        message: String,
    },
}

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// No attempt was pushed yet.
    Waiting,
    /// Reaching the workers.
    Reaching,
    /// `mpirun` runs.
    Running,
    /// The ranks were asked to end.
    Stopping,
    /// Over; `outcome` says how.
    Ended,
}

/// What a launcher knows about one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerState {
    /// Pod name.
    pub pod: String,
    /// Whether it has answered and its lease has not run out since.
    pub reachable: bool,
    /// Whether its agent got SIGTERM.
    pub draining: bool,
    /// Whether its agent confirmed that no process of the attempt lives.
    pub ended: bool,
    /// Last connection error, if the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A launcher's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LauncherState {
    /// The launcher's clock, for leases.
    pub clock_ns: u64,
    /// Where the attempt stands.
    pub phase: Phase,
    /// Its number, once pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// Workers in the spec's order.
    #[serde(default)]
    pub workers: Vec<WorkerState>,
    /// Aggregate of the ranks' pages; absent until a rank has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// All ranks, if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankFigures>,
    /// How it ended, in phase `Ended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// Aggregate of all ranks' pages. Shares and rates are those of the last seconds, totals since the attempt's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Ranks that have a page.
    pub ranks: u32,
    /// Last step that every rank completed.
    pub step: u64,
    /// Step at which the run ends.
    pub steps: u64,
    /// First step of this attempt.
    pub start_step: u64,
    /// Particles over all ranks.
    pub particles: u64,
    /// Steps per second.
    pub steps_per_second: f64,
    /// Seconds to the end at that rate; absent while the rate is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<f64>,
    /// Last step of which every rank has a complete checkpoint in this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_checkpoint_step: Option<u64>,
    /// `L_max / L_mean - 1` of the ranks' load (thread CPU seconds of computing), a fraction.
    pub lambda: f64,
    /// Rank of the largest load.
    pub slowest_rank: u32,
    /// Share of wall time in P0's two waits (profile mode only), a fraction.
    pub wait_share: f64,
    /// Share of wall time in communication, a fraction.
    pub comm_share: f64,
    /// Ghost records received in the first exchange, by level (same node, other node).
    pub start_ghosts: [u64; dem_page::LEVELS],
    /// Payload bytes received, by level.
    pub bytes_received: [u64; dem_page::LEVELS],
}

/// One rank's page as numbers; see [`dem_page::Page`] for the meaning and unit of each.
#[expect(missing_docs, reason = "the fields are those of the page")]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankFigures {
    pub rank: u32,
    /// Value of [`dem_page::State`].
    pub state: u64,
    pub exit_code: u64,
    pub step: u64,
    pub end_step: u64,
    pub start_step: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_step: Option<u64>,
    pub particles: u64,
    pub ghosts: u64,
    pub start_ghosts_received: [u64; dem_page::LEVELS],
    pub ghosts_received: [u64; dem_page::LEVELS],
    pub bytes_received: [u64; dem_page::LEVELS],
    pub messages_received: [u64; dem_page::LEVELS],
    pub bytes_sent: [u64; dem_page::LEVELS],
    pub contacts: u64,
    pub rebuilds: u64,
    pub migrated: u64,
    pub rebalances: u64,
    pub calc_seconds: f64,
    pub calc_wall_seconds: f64,
    pub comm_seconds: f64,
    pub wait1_seconds: f64,
    pub wait2_seconds: f64,
    pub wall_seconds: f64,
    /// Why the rank failed, in state `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Whose fault a failure is; the two budgets never share a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The program: exit code, signal, guard.
    Program,
    /// Node, pod, agent or network.
    Infrastructure,
    /// Command or settings that can never work; a retry would not help.
    Configuration,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureReason {
    /// A rank ended with a non-zero code.
    RankExited,
    /// A rank was killed by a signal. SIGKILL may be the kernel's out-of-memory killer: look at the container.
    RankSignalled,
    /// A guard of the solver (overlap, non-finite, lost particle) ended the run.
    GuardViolated,
    /// The program could not be started on a rank.
    ProgramNotStarted,
    /// `mpirun` failed without a rank that did.
    LaunchFailed,
    /// Workers did not answer within the start deadline.
    WorkersUnreachable,
    /// A worker was reached but refused the attempt.
    WorkerRefused,
    /// A worker that had answered did not for a whole lease, or its lease had ended when it did.
    WorkerLost,
    /// The operator did not renew the launcher's lease.
    LeaseEnded,
    /// Stopped before the ranks were started.
    NotStarted,
    /// Ranks did not end within the grace period after a stop request.
    NotStopped,
    /// No attempt was pushed in time.
    NoAttempt,
}

/// The first cause of an attempt's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Whose fault.
    pub kind: FailureKind,
    /// What happened.
    pub reason: FailureReason,
    /// One sentence for people.
    pub message: String,
    /// Culprit's rank, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Pods concerned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// Their nodes, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Exit code, if the rank exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal number, if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Last lines of the culprit's output, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conclusion {
    /// All ranks reached the end.
    Succeeded,
    /// All ranks wrote a checkpoint and ended on request.
    Stopped,
    /// Anything else.
    Failed,
}

/// A launcher's last word: its termination message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Number of the attempt (0 if none was pushed).
    pub attempt: u64,
    /// How it ended.
    pub conclusion: Conclusion,
    /// The launcher's exit code: that of `mpirun`, or 1 where `mpirun` did not run to its end.
    pub exit_code: i32,
    /// Why it was asked to end, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// First cause, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Last aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Pods whose agent confirmed that none of their processes lives: no lease need be waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_workers: Vec<String>,
}

impl Outcome {
    /// JSON of at most [`TERMINATION_BYTES`] bytes: the culprit's oldest lines go first, then long texts are cut, then
    /// lists of pods; conclusion, reason and code always stay.
    pub fn termination_message(&self) -> String {
        let mut cut = self.clone();
        loop {
            let text = serde_json::to_string(&cut).unwrap_or_default();
            // When nothing is left to cut, a few hundred bytes remain.
            if text.len() <= TERMINATION_BYTES || !cut.cut_once() {
                return text;
            }
        }
    }

    /// Takes away the next least important part; false when there is none.
    fn cut_once(&mut self) -> bool {
        if let Some(failure) = &mut self.failure {
            if failure.last_lines.len() > 1 {
                failure.last_lines.remove(0);
                return true;
            }
            let cut_line = failure.last_lines.first_mut().is_some_and(|line| shorten(line, 512));
            if cut_line || shorten(&mut failure.message, 512) {
                return true;
            }
            if failure.pods.len().max(failure.nodes.len()) > 3 {
                failure.pods.truncate(3);
                failure.nodes.truncate(3);
                return true;
            }
        }
        if self.stop_reason.as_mut().is_some_and(|reason| shorten(reason, 256)) {
            return true;
        }
        if !self.ended_workers.is_empty() {
            self.ended_workers.clear();
            return true;
        }
        // Control characters take six bytes in JSON.
        match &mut self.failure {
            Some(failure) if !failure.last_lines.is_empty() => {
                failure.last_lines.clear();
                true
            }
            Some(failure) => shorten(&mut failure.message, 128),
            None => false,
        }
    }
}

/// Cuts a text to at most `bytes` bytes at a character, marking the cut; tells whether there was something to cut.
fn shorten(text: &mut String, bytes: usize) -> bool {
    if text.len() <= bytes {
        return false;
    }
    let mut end = bytes - "…".len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push('…');
    true
}

/// One worker's part of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerAttempt {
    /// Name of the DemJob.
    pub job: String,
    /// Its namespace.
    pub namespace: String,
    /// Node that the worker runs on, a label of its figures.
    pub node: String,
    /// Number of the attempt.
    pub attempt: u64,
    /// Fence token.
    pub token: String,
    /// Ranks that will run here.
    pub ranks: Vec<u32>,
    /// Files by plain name.
    pub files: BTreeMap<String, String>,
    /// End of the lease, worker's clock.
    pub until_ns: u64,
}

/// What launcher and operator ask of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkerRequest {
    /// Report, without changing anything.
    Status,
    /// Begin an attempt: ends every lower one first. Repeating number and token is harmless while it lives.
    Begin(Box<WorkerAttempt>),
    /// Extend the lease and report.
    Renew {
        /// Attempt meant.
        attempt: u64,
        /// Its token.
        token: String,
        /// New end of the lease, worker's clock.
        until_ns: u64,
    },
    /// Ask the ranks to write a checkpoint and to end.
    Stop {
        /// Attempt meant.
        attempt: u64,
        /// Its token.
        token: String,
    },
    /// Kill all processes of this and every lower attempt, refuse them from now on, and report when none lives.
    End {
        /// Attempt meant.
        attempt: u64,
    },
    /// Run a shell command line; the connection becomes its streams.
    Exec {
        /// Attempt meant.
        attempt: u64,
        /// Its token.
        token: String,
        /// For `/bin/sh -c`.
        command: String,
    },
}

/// A worker's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkerReply {
    /// Done; this is the state now.
    Report(Box<WorkerReport>),
    /// Refused, and why.
    Refused {
        /// The reason.
        message: String,
    },
    /// The command runs; streams follow, then one [`CommandEnd`].
    Started,
}

/// A worker's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerReport {
    /// The worker's clock, for leases.
    pub clock_ns: u64,
    /// Attempt that may run here now, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    /// Every attempt up to this number has ended here, none of its processes lives, and none can begin again.
    pub ended_up_to: u64,
    /// Whether the agent got SIGTERM.
    pub draining: bool,
    /// Pages of this worker's ranks.
    #[serde(default)]
    pub ranks: Vec<RankFigures>,
    /// Ranks that have ended.
    #[serde(default)]
    pub ended: Vec<RankEnd>,
}

/// How a rank ended, recorded by its wrapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankEnd {
    /// The rank.
    pub rank: u32,
    /// Seconds since the Unix epoch, in milliseconds.
    pub at_ms: u64,
    /// Exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal number, if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it had been told to end before it did: then it is a consequence, not a cause.
    pub told: bool,
    /// Why the program could not be started, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<String>,
    /// Last lines of its output, oldest first.
    #[serde(default)]
    pub last_lines: Vec<String>,
}

/// How a remote command ended; exactly one of the two is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandEnd {
    /// Exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// One frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A JSON message.
    Message(Vec<u8>),
    /// Bytes for a command's standard input; none means its end.
    Stdin(Vec<u8>),
    /// Bytes of its standard output.
    Stdout(Vec<u8>),
    /// Bytes of its standard error.
    Stderr(Vec<u8>),
}

/// What can go wrong while reading or writing frames.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The connection broke.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    /// The peer closed the connection where a frame was due.
    #[error("connection closed by the peer")]
    Closed,
    /// A frame's length is 0 or above the limit.
    #[error("frame of {found} bytes, must be 1 to {MAX_FRAME}")]
    Length {
        /// Length found.
        found: usize,
    },
    /// A frame of unknown or unexpected kind.
    #[error("frame of kind {found}, expected {expected}")]
    Kind {
        /// Kind found.
        found: u8,
        /// What was due.
        expected: &'static str,
    },
    /// A message is not the JSON that was due.
    #[error("message: {0}")]
    Json(#[from] serde_json::Error),
    /// The peer speaks another version.
    #[error("peer speaks protocol version {found}, this side {PROTOCOL}")]
    Version {
        /// The peer's version.
        found: u32,
    },
}

impl Frame {
    /// The frame's bytes, length word first.
    ///
    /// # Errors
    /// A payload above the limit.
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        let (kind, payload) = match self {
            Self::Message(p) => (0, p),
            Self::Stdin(p) => (1, p),
            Self::Stdout(p) => (2, p),
            Self::Stderr(p) => (3, p),
        };
        let length = payload.len() + 1;
        if length > MAX_FRAME {
            return Err(ProtocolError::Length { found: length });
        }
        let mut bytes = Vec::with_capacity(length + 4);
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(payload);
        Ok(bytes)
    }

    /// The frame with this kind byte.
    ///
    /// # Errors
    /// An unknown kind.
    pub fn decode(kind: u8, payload: Vec<u8>) -> Result<Self, ProtocolError> {
        match kind {
            0 => Ok(Self::Message(payload)),
            1 => Ok(Self::Stdin(payload)),
            2 => Ok(Self::Stdout(payload)),
            3 => Ok(Self::Stderr(payload)),
            found => Err(ProtocolError::Kind { found, expected: "0 to 3" }),
        }
    }
}

/// Reads one frame. Not cancel-safe: a dropped read leaves the connection unusable.
///
/// # Errors
/// A broken or closed connection, a length or kind out of range.
pub async fn read_frame<R: AsyncRead + Unpin>(from: &mut R) -> Result<Frame, ProtocolError> {
    let mut head = [0; 5];
    match from.read_exact(&mut head).await {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Err(ProtocolError::Closed),
        other => other?,
    };
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length == 0 || length > MAX_FRAME {
        return Err(ProtocolError::Length { found: length });
    }
    // Grows with what really arrives: a length alone reserves no memory.
    let mut payload = Vec::new();
    let wanted = length - 1;
    if from.take(wanted as u64).read_to_end(&mut payload).await? < wanted {
        return Err(ProtocolError::Closed);
    }
    Frame::decode(head[4], payload)
}

/// Writes and flushes one frame.
///
/// # Errors
/// A broken connection, a payload above the limit.
pub async fn write_frame<W: AsyncWrite + Unpin>(to: &mut W, frame: &Frame) -> Result<(), ProtocolError> {
    to.write_all(&frame.encode()?).await?;
    Ok(to.flush().await?)
}

/// Sends one message.
///
/// # Errors
/// See [`write_frame`].
pub async fn send<W: AsyncWrite + Unpin, T: Serialize>(to: &mut W, message: &T) -> Result<(), ProtocolError> {
    write_frame(to, &Frame::Message(serde_json::to_vec(message)?)).await
}

/// Receives one message.
///
/// # Errors
/// See [`read_frame`]; also a frame or JSON of another kind.
pub async fn receive<R: AsyncRead + Unpin, T: DeserializeOwned>(from: &mut R) -> Result<T, ProtocolError> {
    match read_frame(from).await? {
        Frame::Message(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Frame::Stdin(_) => Err(ProtocolError::Kind { found: 1, expected: "a message" }),
        Frame::Stdout(_) => Err(ProtocolError::Kind { found: 2, expected: "a message" }),
        Frame::Stderr(_) => Err(ProtocolError::Kind { found: 3, expected: "a message" }),
    }
}
