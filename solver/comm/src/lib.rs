//! Ghost exchange, migration of particles and collectives.
//!
//! Three layers, each usable alone:
//!
//! * [`Communicator`]: point-to-point messages, with three implementations: [`Serial`] (one rank), [`local`] (ranks
//!   as threads of one process, for tests) and [`Mpi`] (every return code checked).
//! * [`Comm`]: counts every message by locality level and builds the collectives from point-to-point messages,
//!   so their payload is counted too.
//! * [`Halo`] and [`migrate`]: who sends which particles to whom with which periodic image, as data, and its
//!   execution.

mod comm;
mod communicator;
mod halo;
pub mod local;
mod migration;
mod mpi;
mod reducer;
mod traffic;

pub use comm::Comm;
pub use communicator::{CommError, Communicator, Kind, Outgoing, Serial};
pub use halo::{Halo, neighbours};
pub use migration::{Loads, migrate};
pub use mpi::{Mpi, abort_world, launched, library_version};
pub use reducer::Reducer;
pub use traffic::{LEVEL_NETWORK, LEVEL_NODE, LEVELS, Traffic};
