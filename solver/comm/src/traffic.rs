//! Counters of everything that ranks send each other.

/// Locality levels that traffic is counted by.
pub const LEVELS: usize = 2;
/// Index of traffic between ranks of one node.
pub const LEVEL_NODE: usize = 0;
/// Index of traffic between ranks of different nodes.
pub const LEVEL_NETWORK: usize = 1;

/// Totals of one rank since its start, by locality level of the other side.
///
/// Bytes are payload: what the solver asked to be sent. Collectives are made of counted messages (see
/// [`crate::Comm`]), so nothing but the transport's own headers and its start and end is missing. Messages to the
/// own rank (periodic images) are no traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload bytes sent.
    pub bytes_sent: [u64; LEVELS],
    /// Payload bytes received.
    pub bytes_received: [u64; LEVELS],
    /// Messages sent.
    pub messages_sent: [u64; LEVELS],
    /// Messages received.
    pub messages_received: [u64; LEVELS],
    /// Ghost records received, full ones at rebuilds and updates in between alike.
    pub ghosts_received: [u64; LEVELS],
}
