//! Discrete element method of one rank: particles, neighbour lists, contacts, integration. No MPI, no I/O.
//!
//! The trajectory does not depend, to the last bit, on the order of particles, on when lists are rebuilt, on which
//! particles are ghosts, or on the width of vectors: see [`Quanta`] for sums, [`Periodic`] for coordinates and
//! [`contacts`] for pairs.
//!
//! The order of a step, with the rank's communication between the calls:
//!
//! 1. [`kick_drift`] (or [`kick_kick_drift`] at the end of the previous step)
//! 2. if [`NeighbourList::is_stale`] on any rank: `clear_ghosts`, migrate, [`NeighbourList::sort`], choose and add
//!    ghosts, [`NeighbourList::build`]; otherwise update ghosts ([`Particles::unpack_motion`])
//! 3. [`contacts`], or [`inner_contacts`] while updates are under way and then [`ghost_contacts`]
//! 4. [`kick`]

mod contact;
mod elementary;
mod guard;
mod hash;
mod lanes;
mod list;
mod material;
mod model;
mod particles;
mod periodic;
mod quanta;
mod record;
mod restitution;
mod step;

pub use contact::{Contacts, contacts, ghost_contacts, inner_contacts};
pub use guard::{Limit, Violation};
pub use hash::state_hash;
pub use lanes::Kernel;
pub use list::NeighbourList;
pub use material::{ContactModel, Damping, Material, MaterialError, MaterialTable, PairProperties};
pub use model::{Model, Wall};
pub use particles::{
    FullRecord, MOTION_DOUBLES, PLACE_DOUBLES, Particles, Sphere, StateRecord, inverse_inertia,
};
pub use periodic::Periodic;
pub use quanta::{CONTRIBUTION_QUANTA, Quanta, QuantaError, SUM_QUANTA, magic};
pub use record::{Load, Record};
pub use restitution::{
    constant_of_restitution, ratio_of_restitution, restitution_of_constant, restitution_of_ratio,
};
pub use step::{Drift, kick, kick_drift, kick_kick_drift};
