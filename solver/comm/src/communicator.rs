//! Point-to-point messages between the ranks of a run.

use thiserror::Error;

/// What a message is for. Messages of one kind between two ranks never overtake each other, and kinds are never
/// confused, so a rank that is a phase ahead cannot be misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum Kind {
    /// A collective's partial result or its outcome.
    Collective = 1,
    /// Particles that change owner.
    Migration = 2,
    /// Full records of new ghosts.
    NewGhosts = 3,
    /// Per-step state of existing ghosts.
    GhostUpdate = 4,
    /// Data gathered for outputs.
    Gather = 5,
}

/// A message to send: destination rank and payload.
pub type Outgoing<'a> = (u32, &'a [u8]);

/// Why a message could not be exchanged.
#[derive(Debug, Error, PartialEq)]
pub enum CommError {
    /// MPI returned an error.
    #[error("{call} failed on rank {rank}: {message} (MPI error {code})")]
    Mpi {
        /// Name of the MPI function.
        call: &'static str,
        /// Rank that called it.
        rank: u32,
        /// MPI's error code.
        code: i32,
        /// MPI's text for the code.
        message: String,
    },
    /// A message has not the length that the exchange plan says.
    #[error("rank {rank} got {found} bytes of {kind:?} from rank {from}, expected {expected}")]
    Length {
        /// Receiving rank.
        rank: u32,
        /// Sending rank.
        from: u32,
        /// What the message is for.
        kind: Kind,
        /// Bytes received.
        found: usize,
        /// Bytes that the plan says.
        expected: usize,
    },
    /// A message is larger than one MPI call can carry (2^31 - 1 bytes).
    #[error("rank {rank}: a message of {bytes} bytes to rank {to} is larger than MPI can send in one piece")]
    TooLarge {
        /// Sending rank.
        rank: u32,
        /// Destination.
        to: u32,
        /// Bytes of the message.
        bytes: usize,
    },
    /// Another rank ended the run.
    #[error("another rank ended the run with code {0}")]
    Aborted(i32),
    /// MPI could not be started as needed.
    #[error("MPI could not be started: {0}")]
    Start(String),
    /// A particle belongs to a rank that this rank does not exchange with: it moved farther than the halo reaches.
    #[error("particle {id} at ({x:e}, {y:e}, {z:e}) m left rank {from} for rank {to}, which is no neighbour")]
    Strayed {
        /// Global id.
        id: u64,
        /// Position [m].
        x: f64,
        /// Position [m].
        y: f64,
        /// Position [m].
        z: f64,
        /// The rank that owned it.
        from: u32,
        /// The rank whose box it is in.
        to: u32,
    },
}

/// Messages between the ranks of one run. All ranks call the same methods in the same order.
pub trait Communicator {
    /// Number of this rank.
    fn rank(&self) -> u32;

    /// Ranks in the run.
    fn size(&self) -> u32;

    /// Index of the node that each rank runs on, numbered by first appearance.
    fn node_of_rank(&self) -> &[u32];

    /// Sends `sends` and fills `receives` (source rank, buffer), whose lengths both sides know. No rank waits for
    /// another in a fixed order, so any pattern of partners is free of deadlock.
    ///
    /// # Errors
    /// Transport errors, and a message of another length than its buffer.
    fn exchange(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), CommError>;

    /// As [`Communicator::exchange`] where the receiver does not know the lengths: returns one message from each
    /// of `sources`, in their order.
    ///
    /// # Errors
    /// Transport errors.
    fn exchange_sized(
        &mut self,
        kind: Kind,
        sends: &[Outgoing<'_>],
        sources: &[u32],
    ) -> Result<Vec<Vec<u8>>, CommError>;

    /// Ends all ranks with `code`. Under MPI this does not return; between threads, every pending and later
    /// exchange of the other ranks fails with [`CommError::Aborted`].
    fn abort(&mut self, code: i32);
}

/// The only rank of a run without MPI.
#[derive(Debug, Default)]
pub struct Serial;

impl Communicator for Serial {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn node_of_rank(&self) -> &[u32] {
        &[0]
    }

    fn exchange(
        &mut self,
        _: Kind,
        sends: &[Outgoing<'_>],
        receives: &mut [(u32, &mut [u8])],
    ) -> Result<(), CommError> {
        debug_assert!(sends.is_empty() && receives.is_empty(), "one rank has nobody to talk to");
        Ok(())
    }

    fn exchange_sized(
        &mut self,
        _: Kind,
        sends: &[Outgoing<'_>],
        sources: &[u32],
    ) -> Result<Vec<Vec<u8>>, CommError> {
        debug_assert!(sends.is_empty() && sources.is_empty(), "one rank has nobody to talk to");
        Ok(Vec::new())
    }

    fn abort(&mut self, _: i32) {}
}
