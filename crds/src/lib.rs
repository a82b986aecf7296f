//! The `DemJob` API, `granular.dev/v1alpha1`: types, condition and reason names, and the
//! CustomResourceDefinition generated from them (`crds/demjobs.granular.dev.yaml`).
//!
//! The physics is `dem-config`'s own [`dem_config::Simulation`], so that a DemJob and a simulation file
//! are one format. Rules that the API server can check stand in [`schema`]; the same rules and those it
//! cannot see are checked again by `dem-plan`.

mod demjob;
pub mod schema;
mod status;

pub use demjob::*;
pub use status::*;

/// API group of every kind in this crate.
pub const GROUP: &str = "granular.dev";
/// The only served and stored version.
pub const VERSION: &str = "v1alpha1";
/// Longest name of a DemJob [characters]: `<name>-launcher-<attempt>` must stay a host name of 63.
pub const MAX_NAME_LENGTH: usize = 48;
/// Largest number of MPI ranks of a job: their plan must fit into a ConfigMap, 1 MiB.
pub const MAX_RANKS: i32 = 16_384;
/// Largest number of worker pods of a job, one per node.
pub const MAX_WORKERS: usize = 5_000;
/// The value of `spec.managedBy` that means this operator; absent means the same.
pub const MANAGED_BY: &str = "granular.dev/dem-operator";
