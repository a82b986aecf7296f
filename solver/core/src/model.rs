//! What stays the same during a run.

use crate::lanes::Kernel;
use crate::material::MaterialTable;
use crate::periodic::Periodic;
use crate::quanta::Quanta;

/// A plane wall of infinite mass: everything on the side that `normal` points away from is wall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wall {
    /// A point of the plane [m].
    pub point: [f64; 3],
    /// Unit normal, pointing into the free side.
    pub normal: [f64; 3],
    /// Index into the material table.
    pub material: u16,
}

/// The model of a run: everything that steps need to know and never change.
#[derive(Clone, Debug)]
pub struct Model {
    /// Time step [s].
    pub dt: f64,
    /// Acceleration of gravity [m/s2].
    pub gravity: [f64; 3],
    /// Periodic axes.
    pub periodic: Periodic,
    /// Materials and contact model.
    pub materials: MaterialTable,
    /// Plane walls.
    pub walls: Vec<Wall>,
    /// Quanta that contributions are rounded to.
    pub quanta: Quanta,
    /// False switches the rounding off, to show that it matters. Sums then depend on their order.
    pub rounding: bool,
    /// Largest overlap allowed, as a fraction of the smaller sphere's diameter.
    pub overlap_limit: f64,
    /// Extra range of the neighbour list [m]: it stays valid while no particle moves further than half of it.
    pub skin: f64,
    /// Largest radius of any particle of the job [m], on whatever rank.
    pub max_radius: f64,
    /// Instructions to use; all give the same bits.
    pub kernel: Kernel,
}
