//! Sums that do not depend on their order.
//!
//! Every contribution to a force or torque is rounded to a multiple of a power of two, its quantum, before it is
//! added. Sums of such multiples are exact in double precision as long as they stay below 2^53 quanta, and exact
//! sums do not depend on the order of their terms: not on rank count, list order or vector width.

/// The quanta of force and torque contributions, both powers of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quanta {
    /// Quantum of every force component [N].
    pub force: f64,
    /// Quantum of every torque component [N m].
    pub torque: f64,
}

/// Contributions stay below this many quanta, in every component.
pub const CONTRIBUTION_QUANTA: f64 = (1u64 << 51) as f64;
/// Sums stay below this many quanta, in every component.
pub const SUM_QUANTA: f64 = (1u64 << 52) as f64;

/// The quantum is the largest power of two below this fraction of the guard force. Half a quantum in each of three
/// components then is less than 1e-14 of the guard force: 1e-9 of a contact force of 1e-5 of it.
const FORCE_FRACTION: f64 = 1.15e-14;

/// Why no quanta can be had.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum QuantaError {
    /// Guard force or radii are not positive numbers.
    #[error("guard force {guard_force} N and radii {min}..{max} m must be positive and finite")]
    Unusable {
        /// Guard force [N].
        guard_force: f64,
        /// Smallest radius [m].
        min: f64,
        /// Largest radius [m].
        max: f64,
    },
    /// Torques on the largest particles would leave the exact range.
    #[error(
        "radii from {min} m to {max} m are too far apart: torques on the largest particle could reach \
         {torque:e} N m, exact are {range:e} N m; use a ratio of 10 or less"
    )]
    Spread {
        /// Smallest radius [m].
        min: f64,
        /// Largest radius [m].
        max: f64,
        /// Friction at the guard force times the largest radius [N m].
        torque: f64,
        /// Largest exact torque [N m].
        range: f64,
    },
}

impl Quanta {
    /// Quanta for contact forces up to `guard_force` [N] between particles with radii `min_radius..=max_radius` [m]
    /// and friction up to `friction`.
    ///
    /// Guarantees, for contact forces F between 1e-5 guard_force and guard_force: the rounding of a force
    /// contribution is below 1e-9 F, of a torque contribution below 1e-9 F R for the smallest R and larger ones;
    /// contributions up to 12 guard forces and sums up to 25 of them are exact.
    ///
    /// # Errors
    /// If the torque of friction at the guard force on the largest particle would not be exact.
    pub fn new(
        guard_force: f64,
        min_radius: f64,
        max_radius: f64,
        friction: f64,
    ) -> Result<Self, QuantaError> {
        let (min, max) = (min_radius, max_radius);
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !(positive(guard_force) && positive(min) && positive(max)) {
            return Err(QuantaError::Unusable { guard_force, min, max });
        }
        let force = power_of_two_below(FORCE_FRACTION * guard_force);
        let torque = force * power_of_two_below(min);
        let (found, range) = (friction * guard_force * max, CONTRIBUTION_QUANTA * torque);
        if found > range {
            return Err(QuantaError::Spread { min, max, torque: found, range });
        }
        Ok(Self { force, torque })
    }

    /// The contact force [N] below which rounding may exceed 1e-9 of it.
    pub fn smallest_force(&self) -> f64 {
        // Half a quantum in three components.
        0.5 * f64::sqrt(3.0) * self.force * 1e9
    }

    /// Largest exact component of a summed force [N].
    pub fn force_range(&self) -> f64 {
        SUM_QUANTA * self.force
    }

    /// Largest exact component of a summed torque [N m].
    pub fn torque_range(&self) -> f64 {
        SUM_QUANTA * self.torque
    }
}

/// The number that, added and subtracted again, rounds to multiples of `quantum` (to even in a tie).
///
/// 1.5 * 2^52 quanta: sums with up to 2^51 quanta of either sign stay in the binade whose spacing is one quantum.
pub fn magic(quantum: f64) -> f64 {
    1.5 * SUM_QUANTA * quantum
}

fn power_of_two_below(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0x7ff0_0000_0000_0000)
}
