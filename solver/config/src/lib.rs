//! The simulation file of dem-operator: types, units, validation, JSON schema, derived quantities and particle
//! generators. Pure: no file, clock, environment or global state; callers read files and hand the text over.
//!
//! [`Simulation`] is both the file that `dem-solver` reads and the `simulation.inline` field of a DemJob.

mod generate;
mod prepare;
mod problem;
mod schema;
mod types;
mod validate;
mod yaml;

pub use generate::{Files, ParticleSource, Seed};
pub use prepare::{OVERLAP_GUARD_FRACTION, PairParameters, PlaneWall, Prepared, StepLimits, prepare};
pub use problem::Problem;
pub use schema::schema;
pub use types::*;
pub use validate::MAX_PARTICLES;
pub use yaml::MAX_BYTES;
