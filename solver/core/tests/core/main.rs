//! The core against exact results, brute force and itself: case numbers V1..V24 are those of the validation set in
//! the documentation.

mod determinism;
mod guards;
mod impacts;
mod many;
mod neighbours;
mod sim;
