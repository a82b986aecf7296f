//! The MPI program of dem-operator: `dem-solver run`, `check`, `schema`.
//!
//! [`simulation::Simulation`] is the time loop of one rank; its `step` is the method: exchange, neighbours, contacts,
//! integrate, balance, outputs. It runs on any [`dem_comm::Communicator`], so tests run it on threads.

pub mod args;
pub mod balance;
pub mod check;
pub mod checkpoint;
pub mod clock;
pub mod counters;
pub mod failure;
pub mod files;
pub mod frames;
pub mod job;
pub mod layout;
pub mod output;
pub mod phases;
pub mod run;
pub mod setup;
pub mod simulation;
pub mod stop;
pub mod summary;
