//! Versioned layout of a rank's counter page in shared memory.
//!
//! Every rank owns one page, a file of [`PAGE_BYTES`] bytes in a memory-backed folder
//! (`/dev/shm/dem` in a worker pod). The rank maps it and writes its counters with relaxed atomic stores;
//! the agent of the node (or `kubectl dem run --local`) maps it read-only and turns it into figures.
//! The agent writes exactly two fields, [`Page::lease_end_ns`] and [`Page::stop_request`]; the rank reads them.
//!
//! All fields are 64-bit words, so no field can be torn; fields may be of slightly different instants. Only
//! [`Page::message`] is larger: the rank writes it once, before it sets [`Page::state`] to a final value with
//! release ordering, and readers look at it only after they saw that value.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page: one memory page of every platform that we run on.
pub const PAGE_BYTES: usize = 4096;
/// First word of a valid page: "DEMPAGE" and the layout's version in the last byte.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DEMPAGE\x01");
/// Bytes of [`Page::message`].
pub const MESSAGE_BYTES: usize = 1024;
/// Locality levels that traffic is counted by: same node, other node.
pub const LEVELS: usize = 2;
/// Index of traffic between ranks of one node.
pub const LEVEL_NODE: usize = 0;
/// Index of traffic between ranks of different nodes.
pub const LEVEL_NETWORK: usize = 1;

/// File name of a rank's page in the pages' folder.
pub fn file_name(rank: u32) -> String {
    format!("rank-{rank}.page")
}

/// Exit codes of `dem-solver`, those of `sysexits.h` where one fits.
pub mod exit {
    /// The run reached its end.
    pub const DONE: i32 = 0;
    /// The simulation file, the plan or the command line is wrong.
    pub const INPUT: i32 = 64;
    /// A checkpoint or particle file cannot be read.
    pub const UNREADABLE: i32 = 65;
    /// A guard stopped the run: overlap, non-finite number, lost particle.
    pub const GUARD: i32 = 66;
    /// A panic, an MPI error or a failed write.
    pub const INTERNAL: i32 = 70;
    /// Stopped on request, after writing a checkpoint.
    pub const STOPPED: i32 = 75;
    /// The rank's lease ended: another attempt may run.
    pub const FENCED: i32 = 76;
}

/// Load imbalance λ = L_max / L_mean - 1 of the ranks' loads, in seconds of computing; 0
/// without load.
pub fn imbalance(loads: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = loads.clone().fold((0.0, 0.0), |(n, sum), load| (n + 1.0, sum + load));
    let max = loads.fold(0.0, f64::max);
    if sum > 0.0 { max * count / sum - 1.0 } else { 0.0 }
}

/// What a rank is doing, the value of [`Page::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Created, not yet stepping.
    Starting = 0,
    /// Stepping.
    Running = 1,
    /// Reached the end and wrote everything.
    Done = 2,
    /// Ended by a guard, an error or a panic; [`Page::message`] says why.
    Failed = 3,
    /// Ended early on request, after writing a checkpoint.
    Stopped = 4,
}

impl State {
    /// The state that `word` stands for, if any.
    pub fn from_word(word: u64) -> Option<Self> {
        [Self::Starting, Self::Running, Self::Done, Self::Failed, Self::Stopped]
            .into_iter()
            .find(|s| *s as u64 == word)
    }
}

/// One rank's counters. All are totals since the rank's start unless said otherwise.
///
/// Float values (seconds) are stored as `f64` bits, see [`store_f64`] and [`load_f64`].
#[repr(C, align(64))]
pub struct Page {
    /// [`MAGIC`], written last by [`Page::init`].
    pub magic: AtomicU64,
    /// Attempt of the job that this rank belongs to.
    pub attempt: AtomicU64,
    /// Rank number.
    pub rank: AtomicU64,
    /// Ranks in the job.
    pub ranks: AtomicU64,
    /// A [`State`].
    pub state: AtomicU64,
    /// Exit code that goes with a final state.
    pub exit_code: AtomicU64,
    /// Process id of the rank, as seen in its own PID namespace.
    pub pid: AtomicU64,
    /// Last completed step.
    pub step: AtomicU64,
    /// Step at which the run ends.
    pub end_step: AtomicU64,
    /// First step of this attempt (0, or that of the checkpoint it started from).
    pub start_step: AtomicU64,
    /// Step of the last complete checkpoint written by this attempt; `u64::MAX` if none.
    pub checkpoint_step: AtomicU64,
    /// Particles owned now.
    pub particles: AtomicU64,
    /// Ghosts held now.
    pub ghosts: AtomicU64,
    /// Ghost records received in the exchange of step 0 (of this attempt), by locality level of the sender.
    pub start_ghosts_received: [AtomicU64; LEVELS],
    /// Ghost records received, by locality level of the sender.
    pub ghosts_received: [AtomicU64; LEVELS],
    /// Payload bytes of all solver messages received, by level.
    pub bytes_received: [AtomicU64; LEVELS],
    /// Messages received, by level.
    pub messages_received: [AtomicU64; LEVELS],
    /// Payload bytes of all solver messages sent, by level.
    pub bytes_sent: [AtomicU64; LEVELS],
    /// Touching pairs and walls in the last step.
    pub contacts: AtomicU64,
    /// Neighbour-list rebuilds.
    pub rebuilds: AtomicU64,
    /// Particles that left for another rank.
    pub migrated: AtomicU64,
    /// Changes of the decomposition.
    pub rebalances: AtomicU64,
    /// Thread CPU seconds of computing (P0's Calc), the measure of load.
    pub calc_seconds: AtomicU64,
    /// Wall seconds of computing.
    pub calc_wall_seconds: AtomicU64,
    /// Wall seconds in communication routines (P0's Comm).
    pub comm_seconds: AtomicU64,
    /// Wall seconds waiting before communication (P0's Wait1, load imbalance); 0 outside profile mode.
    pub wait1_seconds: AtomicU64,
    /// Wall seconds waiting after communication (P0's Wait2, communication imbalance); 0 outside profile mode.
    pub wait2_seconds: AtomicU64,
    /// Wall seconds since the rank's first step.
    pub wall_seconds: AtomicU64,
    /// Written by the agent: end of the rank's lease, `CLOCK_BOOTTIME` nanoseconds. `u64::MAX` without an agent.
    pub lease_end_ns: AtomicU64,
    /// Written by the agent: non-zero asks the ranks to write a checkpoint at an agreed step and to end.
    pub stop_request: AtomicU64,
    /// Length of [`Page::message`] in bytes.
    pub message_len: AtomicU64,
    /// UTF-8: why the rank failed. Valid once [`Page::state`] is final.
    pub message: [AtomicU64; MESSAGE_BYTES / 8],
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES && align_of::<Page>() <= PAGE_BYTES);

impl Page {
    /// Makes a zeroed page valid. The magic word is written last, so a reader sees a whole page or none.
    pub fn init(&self, attempt: u64, rank: u32, ranks: u32, pid: u32) {
        self.attempt.store(attempt, Ordering::Relaxed);
        self.rank.store(rank.into(), Ordering::Relaxed);
        self.ranks.store(ranks.into(), Ordering::Relaxed);
        self.pid.store(pid.into(), Ordering::Relaxed);
        self.checkpoint_step.store(u64::MAX, Ordering::Relaxed);
        // An agent may have granted a lease before the rank came up.
        let _ = self.lease_end_ns.compare_exchange(0, u64::MAX, Ordering::Relaxed, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether a rank of this layout's version has written the page.
    pub fn is_valid(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// Current state; `None` for a value that this version does not know.
    pub fn state(&self) -> Option<State> {
        State::from_word(self.state.load(Ordering::Acquire))
    }

    /// Ends the rank's story: message first, then the state that makes readers look at it.
    pub fn finish(&self, state: State, exit_code: u64, message: &str) {
        let mut end = message.len().min(MESSAGE_BYTES);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        for (word, chunk) in self.message.iter().zip(message.as_bytes()[..end].chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        }
        self.message_len.store(end as u64, Ordering::Relaxed);
        self.exit_code.store(exit_code, Ordering::Relaxed);
        self.state.store(state as u64, Ordering::Release);
    }

    /// The message that goes with a final state; bytes that are not UTF-8 are replaced.
    pub fn message(&self) -> String {
        let len = (self.message_len.load(Ordering::Relaxed) as usize).min(MESSAGE_BYTES);
        let bytes: Vec<u8> =
            self.message.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).take(len).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Stores a float as its bits.
pub fn store_f64(word: &AtomicU64, value: f64) {
    word.store(value.to_bits(), Ordering::Relaxed);
}

/// Reads a float stored by [`store_f64`].
pub fn load_f64(word: &AtomicU64) -> f64 {
    f64::from_bits(word.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_the_excess_of_the_largest_load_over_the_mean() {
        assert!((imbalance([1.0, 1.0, 2.0].into_iter()) - 0.5).abs() < 1e-15);
        assert_eq!(imbalance([0.0, 0.0].into_iter()), 0.0);
        assert_eq!(imbalance(std::iter::empty()), 0.0);
    }

    fn zeroed() -> Box<Page> {
        // SAFETY: every field is an atomic integer (or an array of them), for which zero bytes are valid.
        #[expect(unsafe_code, reason = "a page starts as a zeroed file")]
        unsafe {
            Box::new(std::mem::zeroed())
        }
    }

    #[test]
    fn a_message_is_cut_at_a_character_and_read_back() {
        let page = zeroed();
        page.init(3, 1, 12, 42);
        assert!(page.is_valid());
        let long = "é".repeat(MESSAGE_BYTES);
        page.finish(State::Failed, 70, &long);
        assert_eq!(page.state(), Some(State::Failed));
        assert_eq!(page.message(), "é".repeat(MESSAGE_BYTES / 2));
        page.finish(State::Failed, 70, "rank 1: overlap");
        assert_eq!(page.message(), "rank 1: overlap");
    }

    #[test]
    fn a_lease_granted_before_the_rank_came_up_is_kept() {
        let page = zeroed();
        page.lease_end_ns.store(77, Ordering::Relaxed);
        page.init(1, 0, 1, 1);
        assert_eq!(page.lease_end_ns.load(Ordering::Relaxed), 77);
        let page = zeroed();
        page.init(1, 0, 1, 1);
        assert_eq!(page.lease_end_ns.load(Ordering::Relaxed), u64::MAX);
    }

    #[test]
    fn floats_survive_as_bits() {
        let word = AtomicU64::new(0);
        store_f64(&word, -1.5e-300);
        assert_eq!(load_f64(&word), -1.5e-300);
    }
}
