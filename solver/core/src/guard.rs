//! What a run must not do, and who did it.

use std::fmt;

/// A limit that a particle broke. Names the particle by global id; the caller adds rank and step.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Which limit.
    pub limit: Limit,
    /// Global id of the particle (of the one with the lower id in a pair).
    pub id: u64,
    /// The other particle of the contact, if it was one between particles.
    pub other: Option<u64>,
    /// Position of particle `id` [m].
    pub position: [f64; 3],
}

/// The kind of limit that was broken, with what was found and what is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A position, velocity, spin or force is not a finite number.
    NotFinite,
    /// Overlap as a fraction of the smaller sphere's diameter.
    Overlap {
        /// Fraction found.
        found: f64,
        /// Largest fraction allowed.
        allowed: f64,
    },
    /// Way of one step [m]; more than half the skin would outrun the neighbour list.
    Travel {
        /// Way found [m].
        found: f64,
        /// Largest way allowed [m].
        allowed: f64,
    },
    /// A force [N] so large that sums are no longer exact (see [`crate::Quanta`]).
    ForceRange {
        /// Largest component found [N].
        found: f64,
        /// Largest component allowed [N].
        allowed: f64,
    },
    /// A torque [N m] so large that sums are no longer exact.
    TorqueRange {
        /// Largest component found [N m].
        found: f64,
        /// Largest component allowed [N m].
        allowed: f64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.position;
        match self.other {
            Some(other) => write!(f, "particles {} and {other}", self.id)?,
            None => write!(f, "particle {}", self.id)?,
        }
        write!(f, " at ({x:e}, {y:e}, {z:e}) m: ")?;
        match self.limit {
            Limit::NotFinite => write!(f, "position, velocity, spin or force is not a finite number"),
            Limit::Overlap { found, allowed } => write!(
                f,
                "overlap is {:.3} % of the diameter, allowed are {:.3} %",
                found * 100.0,
                allowed * 100.0
            ),
            Limit::Travel { found, allowed } => {
                write!(f, "moved {found:e} m in one step, allowed is half the skin, {allowed:e} m")
            }
            Limit::ForceRange { found, allowed } => {
                write!(f, "force component {found:e} N leaves the exact range of {allowed:e} N")
            }
            Limit::TorqueRange { found, allowed } => {
                write!(f, "torque component {found:e} N m leaves the exact range of {allowed:e} N m")
            }
        }
    }
}

impl std::error::Error for Violation {}
