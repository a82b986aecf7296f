//! `summary.json`: what a run did, in numbers.

use dem_comm::LEVELS;
use serde::{Deserialize, Serialize};

use crate::layout::MappingUsed;

/// Version of the summary's layout.
pub const VERSION: u32 = 1;

/// The run's summary.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// [`VERSION`].
    pub version: u32,
    /// Attempt.
    pub attempt: u64,
    /// Ranks.
    pub ranks: u32,
    /// Particles.
    pub particles: u64,
    /// First step of this attempt.
    pub start_step: u64,
    /// Folder of the checkpoint that it started from; absent from the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_from: Option<String>,
    /// Last step.
    pub end_step: u64,
    /// Time step [s].
    pub dt: f64,
    /// Hash of the particles' state: equal for equal trajectories, whatever the ranks.
    pub state_hash: String,
    /// Wall time of the steps [s].
    pub wall_seconds: f64,
    /// Particles times steps over wall time [1/s].
    pub particle_steps_per_second: f64,
    /// Neighbour-list rebuilds.
    pub rebuilds: u64,
    /// Changes of owner, over all ranks.
    pub migrations: u64,
    /// Changes of the decomposition.
    pub rebalances: u64,
    /// Touching pairs (and particles touching walls) in the last step.
    pub contacts: u64,
    /// Contacts that opened.
    pub contacts_opened: u64,
    /// Contacts that closed.
    pub contacts_closed: u64,
    /// Crossings of periodic faces.
    pub face_crossings: u64,
    /// Those of xMin, xMax, yMin, yMax, zMin and zMax.
    pub crossings_of_face: [u64; 6],
    /// Ghost records received in the exchange at the start.
    pub start_ghosts: BetweenRanks,
    /// Payload bytes of all messages sent.
    pub bytes: BetweenRanks,
    /// Messages sent.
    pub messages: BetweenRanks,
    /// Which assignment of subdomains the run ended with.
    pub mapping: MappingUsed,
    /// Imbalance of CPU time: largest over mean, less 1.
    pub lambda: f64,
    /// Quanta of the deterministic sums.
    pub quanta: QuantaUsed,
    /// Instructions of the contact kernel.
    pub kernel: String,
    /// Restitution to expect of each pair of materials.
    pub expected_restitution: Vec<ExpectedRestitution>,
    /// The ranks.
    pub per_rank: Vec<RankFigures>,
}

/// A total over all pairs of ranks, and the part of it that crosses the network.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BetweenRanks {
    /// Between different ranks.
    pub inter_rank: u64,
    /// Of these, between different nodes.
    pub inter_node: u64,
}

impl BetweenRanks {
    /// Adds up the ranks' counts by locality level.
    pub fn total(counts: impl Iterator<Item = [u64; LEVELS]>) -> Self {
        counts.fold(Self { inter_rank: 0, inter_node: 0 }, |sum, count| Self {
            inter_rank: sum.inter_rank + count.iter().sum::<u64>(),
            inter_node: sum.inter_node + count[dem_comm::LEVEL_NETWORK],
        })
    }
}

/// The quanta that contributions are rounded to.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QuantaUsed {
    /// Of forces [N].
    pub force: f64,
    /// Of torques [N m].
    pub torque: f64,
}

/// Restitution to expect.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectedRestitution {
    /// The two materials.
    pub materials: [String; 2],
    /// Impact speed [m/s].
    pub speed: f64,
    /// Coefficient of restitution.
    pub restitution: f64,
}

/// One rank's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RankFigures {
    /// Rank.
    pub rank: u32,
    /// Index of its node.
    pub node: u32,
    /// Name of its host.
    pub host: String,
    /// Subdomain that it ended with.
    pub subdomain: u32,
    /// Particles owned at the end.
    pub particles: u64,
    /// Ghosts held at the end.
    pub ghosts: u64,
    /// Contacts in the last step.
    pub contacts: u64,
    /// Particles that left for other ranks.
    pub migrated: u64,
    /// CPU time of the steps with all that belongs to them [s].
    pub cpu_seconds: f64,
    /// CPU time of computing [s].
    pub calc_seconds: f64,
    /// Wall time of computing [s].
    pub calc_wall_seconds: f64,
    /// Wall time of communication [s].
    pub comm_seconds: f64,
    /// Wall time in barriers before communication [s].
    pub wait1_seconds: f64,
    /// Wall time in barriers after communication [s].
    pub wait2_seconds: f64,
    /// Ghost records received at the start, by level: same node, other node.
    pub start_ghosts_received: [u64; LEVELS],
    /// Ghost records received, by level.
    pub ghosts_received: [u64; LEVELS],
    /// Payload bytes received, by level.
    pub bytes_received: [u64; LEVELS],
    /// Payload bytes sent, by level.
    pub bytes_sent: [u64; LEVELS],
    /// Messages received, by level.
    pub messages_received: [u64; LEVELS],
    /// Messages sent, by level.
    pub messages_sent: [u64; LEVELS],
}
