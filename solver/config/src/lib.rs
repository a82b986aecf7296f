//! The simulation file of dem-operator: types, units, validation, JSON schema, derived quantities and particle
//! generators. Pure: no file, clock, environment or global state; callers read files and hand the text over.
//!
//! [`Simulation`] is both the file that `dem-solver` reads and the `simulation.inline` field of a DemJob.

mod schema;
mod types;

pub use schema::schema;
pub use types::*;
