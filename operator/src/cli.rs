//! What `kubectl-dem` does, apart from reading its flags.

pub mod local;
pub mod manifest;
pub mod plan;
pub mod table;
