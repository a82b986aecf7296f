//! The core against exact results, brute force and itself: case numbers V1..V24 are those of the validation set in
//! the documentation.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod determinism;
mod guards;
mod impacts;
mod many;
mod neighbours;
mod sim;
