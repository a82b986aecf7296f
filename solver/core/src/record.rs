//! The unit of storage: four doubles, aligned to one vector register.

use bytemuck::{Pod, Zeroable};

/// Four doubles, aligned to 32 bytes: a vector in the first three, a scalar that is needed with it in the fourth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, align(32))]
pub struct Record(pub [f64; 4]);

impl Record {
    /// The vector `v` with `scalar` beside it.
    pub fn new(v: [f64; 3], scalar: f64) -> Self {
        Self([v[0], v[1], v[2], scalar])
    }

    /// The first three values.
    pub fn vector(&self) -> [f64; 3] {
        [self.0[0], self.0[1], self.0[2]]
    }

    /// The fourth value.
    pub fn scalar(&self) -> f64 {
        self.0[3]
    }
}

/// Force [N] and torque [N m] on one particle: one cache line. The fourth values are always zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Load {
    /// Sum of contact forces [N], without gravity.
    pub force: Record,
    /// Sum of contact torques about the centre [N m].
    pub torque: Record,
}
