//! Decomposition of a particle system and its mapping to nodes.
//!
//! The same code runs in the solver (over MPI, through [`Reduce`]) and in the planner (with [`Serial`]), so that a
//! plan and the run that follows it cut the same planes and count the same ghosts:
//!
//! 1. [`rcb`] or [`node_first`] cuts a region into one box per rank: a [`Tree`];
//! 2. [`ghost_graph`] counts the particles that each pair of subdomains must exchange per step;
//! 3. [`Mapping::assign`] gives every subdomain a rank and every rank a node;
//! 4. [`Traffic`] says what that assignment costs;
//! 5. [`PlanFile`] carries the result from the planner to the solver.
//!
//! Pure: no I/O, no clock, no environment, no hash order. All weights are integers and all comparisons exact, so the
//! result is the same on every platform and for every distribution of the particles over the participants.

mod box3;
mod ghosts;
mod mapping;
mod periodicity;
mod plan_file;
mod rcb;
mod reduce;
mod traffic;
mod tree;

pub use box3::Box3;
pub use ghosts::{Edge, GhostGraph, ghost_graph};
pub use mapping::{Assignment, Mapped, Mapping, map_in_order, map_spatially};
pub use periodicity::Periodicity;
pub use plan_file::{Decomposition, NodeRanks, PlanFile, PlanFileError, Predicted, Source};
pub use rcb::{node_first, rcb};
pub use reduce::{Reduce, Serial};
pub use traffic::{NodeTraffic, Traffic};
pub use tree::{Cut, Tree, TreeError};
