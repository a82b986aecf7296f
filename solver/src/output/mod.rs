//! Output files as bytes. Nothing here opens a file: the run writes the bytes under a temporary name and renames.

pub mod dump;
pub mod picture;
pub mod vtu;

/// A particle as outputs show it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// Global id.
    pub id: u64,
    /// Centre [m].
    pub position: [f64; 3],
    /// Radius [m].
    pub radius: f64,
    /// Velocity [m/s].
    pub velocity: [f64; 3],
    /// Angular velocity [rad/s].
    pub spin: [f64; 3],
    /// Rank that owns it.
    pub rank: u32,
    /// Index of its material.
    pub material: u16,
}

impl Shown {
    /// Magnitude of the velocity [m/s].
    pub fn speed(&self) -> f64 {
        let [x, y, z] = self.velocity;
        (x * x + y * y + z * z).sqrt()
    }
}
