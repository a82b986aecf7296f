//! From a DemJob and a snapshot of the cluster to a plan. Pure: no I/O, no clock, no randomness but a seed.

pub mod assess;
mod cluster;
pub mod names;
pub mod observed;
mod place;
mod plan;
mod quantity;
pub mod render;
mod report;
pub mod status;
pub mod validate;

pub use cluster::{ClusterView, NodeView, SnapshotError};
pub use place::{Exclusion, NodeRequest, Unplaceable, fits};
pub use plan::{Halo, Particles, PlacementRequest, Plan, PlannedNode, plan_placement};
pub use quantity::{Quantity, QuantityError};
