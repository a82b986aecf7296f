use serde::{Deserialize, Serialize};

/// An axis-parallel box, in metres.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Box3 {
    /// Lower corner.
    pub min: [f64; 3],
    /// Upper corner.
    pub max: [f64; 3],
}

impl Box3 {
    /// The box between two corners; `min` must not exceed `max` on any axis.
    #[must_use]
    pub const fn new(min: [f64; 3], max: [f64; 3]) -> Self {
        Self { min, max }
    }

    /// Length of a side in metres.
    #[must_use]
    pub fn length(&self, axis: usize) -> f64 {
        self.max[axis] - self.min[axis]
    }

    /// The axis of the longest side; of equal sides the first of x, y, z.
    #[must_use]
    pub fn longest_axis(&self) -> usize {
        let mut longest = 0;
        for axis in 1..3 {
            if self.length(axis) > self.length(longest) {
                longest = axis;
            }
        }
        longest
    }

    /// Volume in cubic metres.
    #[must_use]
    pub fn volume(&self) -> f64 {
        self.length(0) * self.length(1) * self.length(2)
    }

    /// Whether the box, grown by `thickness` on every side, holds `point`; faces belong to it.
    #[must_use]
    pub fn holds(&self, point: [f64; 3], thickness: f64) -> bool {
        (0..3).all(|a| point[a] >= self.min[a] - thickness && point[a] <= self.max[a] + thickness)
    }
}
