//! Particles of one rank: owned ones first, ghosts after them.

use bytemuck::{Pod, Zeroable};

use crate::periodic::Periodic;
use crate::record::{Load, Record};

/// A solid sphere as the caller describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sphere {
    /// Global id, unique in the job.
    pub id: u64,
    /// Centre [m].
    pub position: [f64; 3],
    /// Radius [m].
    pub radius: f64,
    /// Velocity of the centre [m/s].
    pub velocity: [f64; 3],
    /// Angular velocity [rad/s].
    pub spin: [f64; 3],
    /// Index into the material table.
    pub material: u16,
}

/// All that another rank needs to own a particle or to keep a ghost of it, without its load: 112 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct FullRecord {
    /// Centre [m] and radius [m].
    pub position: [f64; 4],
    /// Velocity [m/s] and inverse mass [1/kg].
    pub velocity: [f64; 4],
    /// Angular velocity [rad/s] and inverse moment of inertia [1/(kg m2)].
    pub spin: [f64; 4],
    /// Global id.
    pub id: u64,
    /// Index into the material table.
    pub material: u16,
    /// For ghosts: box lengths to add to the coordinate, per axis. The fourth is zero.
    pub image: [i8; 4],
    /// Zero.
    pub reserved: [u8; 2],
}

/// [`FullRecord`] with the load of the last force evaluation: what a checkpoint has to keep (160 bytes).
///
/// Contact forces were computed from velocities of the middle of the step, which are gone by its end, so a restart
/// cannot compute them again: they are state.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct StateRecord {
    /// The particle.
    pub particle: FullRecord,
    /// Contact force [N].
    pub force: [f64; 3],
    /// Contact torque [N m].
    pub torque: [f64; 3],
}

/// Doubles of a ghost update that carries velocity and spin; the ghost advances its position itself.
pub const MOTION_DOUBLES: usize = 6;
/// Doubles of a ghost update that carries position, velocity and spin.
pub const PLACE_DOUBLES: usize = 9;

/// Particles of one rank as aligned records; ghosts follow the owned particles.
///
/// A ghost keeps its owner's coordinate, bit for bit; its image number says how many box lengths to add when a pair
/// is evaluated. Owned particles that crossed a periodic face since the last rebuild carry an image number too.
#[derive(Clone, Debug, Default)]
pub struct Particles {
    pub(crate) position: Vec<Record>,
    pub(crate) velocity: Vec<Record>,
    pub(crate) spin: Vec<Record>,
    pub(crate) load: Vec<Load>,
    pub(crate) id: Vec<u64>,
    pub(crate) material: Vec<u16>,
    pub(crate) image: Vec<[i8; 4]>,
    pub(crate) owned: usize,
    /// Owned particles with an image number other than zero (an upper bound).
    pub(crate) wrapped: u64,
    scratch: Vec<u8>,
}

/// Inverse mass [1/kg] and inverse moment of inertia [1/(kg m2)] of a solid sphere (2/5 m R^2).
pub fn inverse_inertia(radius: f64, density: f64) -> (f64, f64) {
    let mass = density * (4.0 / 3.0 * std::f64::consts::PI) * (radius * radius * radius);
    (1.0 / mass, 2.5 / (mass * (radius * radius)))
}

impl Particles {
    /// No particles.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of particles that this rank owns.
    pub fn owned(&self) -> usize {
        self.owned
    }

    /// Number of ghosts.
    pub fn ghosts(&self) -> usize {
        self.position.len() - self.owned
    }

    /// Owned particles and ghosts.
    pub fn len(&self) -> usize {
        self.position.len()
    }

    /// True without any particle or ghost.
    pub fn is_empty(&self) -> bool {
        self.position.is_empty()
    }

    /// Centres [m] and radii [m]; coordinates of ghosts are their owner's.
    pub fn positions(&self) -> &[Record] {
        &self.position
    }

    /// Velocities [m/s] and inverse masses [1/kg].
    pub fn velocities(&self) -> &[Record] {
        &self.velocity
    }

    /// Angular velocities [rad/s] and inverse moments of inertia [1/(kg m2)].
    pub fn spins(&self) -> &[Record] {
        &self.spin
    }

    /// Forces and torques of the last evaluation; ghosts' loads are scratch.
    pub fn loads(&self) -> &[Load] {
        &self.load
    }

    /// Global ids.
    pub fn ids(&self) -> &[u64] {
        &self.id
    }

    /// Material indices.
    pub fn materials(&self) -> &[u16] {
        &self.material
    }

    /// Image numbers per axis; the fourth is zero.
    pub fn images(&self) -> &[[i8; 4]] {
        &self.image
    }

    /// Position of a particle for changes from outside the time loop (tests, perturbations).
    pub fn position_mut(&mut self, index: usize) -> &mut Record {
        &mut self.position[index]
    }

    /// Velocity of a particle for changes from outside the time loop.
    pub fn velocity_mut(&mut self, index: usize) -> &mut Record {
        &mut self.velocity[index]
    }

    /// Spin of a particle for changes from outside the time loop.
    pub fn spin_mut(&mut self, index: usize) -> &mut Record {
        &mut self.spin[index]
    }

    /// Adds an owned particle made of a material of `density` [kg/m3]. Ghosts must have been cleared.
    pub fn push(&mut self, sphere: &Sphere, density: f64) {
        let (inverse_mass, inverse_inertia) = inverse_inertia(sphere.radius, density);
        self.push_owned(&FullRecord {
            position: Record::new(sphere.position, sphere.radius).0,
            velocity: Record::new(sphere.velocity, inverse_mass).0,
            spin: Record::new(sphere.spin, inverse_inertia).0,
            id: sphere.id,
            material: sphere.material,
            image: [0; 4],
            reserved: [0; 2],
        });
    }

    /// Adds an owned particle that came from another rank. Ghosts must have been cleared.
    pub fn push_owned(&mut self, record: &FullRecord) {
        assert_eq!(self.ghosts(), 0, "clear_ghosts() before adding owned particles");
        self.push_record(record);
        self.image[self.owned] = [0; 4];
        self.owned += 1;
    }

    /// Adds an owned particle with the load it had, as read from a checkpoint. Ghosts must have been cleared.
    pub fn push_state(&mut self, record: &StateRecord) {
        self.push_owned(&record.particle);
        self.load[self.owned - 1] =
            Load { force: Record::new(record.force, 0.0), torque: Record::new(record.torque, 0.0) };
    }

    /// Adds a ghost; `record.image` says which image of the particle it is.
    pub fn push_ghost(&mut self, record: &FullRecord) {
        self.push_record(record);
    }

    fn push_record(&mut self, record: &FullRecord) {
        self.position.push(Record(record.position));
        self.velocity.push(Record(record.velocity));
        self.spin.push(Record(record.spin));
        self.load.push(Load::default());
        self.id.push(record.id);
        self.material.push(record.material);
        self.image.push(record.image);
    }

    /// Forgets all ghosts.
    pub fn clear_ghosts(&mut self) {
        self.truncate(self.owned);
    }

    fn truncate(&mut self, len: usize) {
        self.position.truncate(len);
        self.velocity.truncate(len);
        self.spin.truncate(len);
        self.load.truncate(len);
        self.id.truncate(len);
        self.material.truncate(len);
        self.image.truncate(len);
    }

    /// Removes an owned particle by putting the last one in its place. Ghosts must have been cleared.
    pub fn swap_remove(&mut self, index: usize) {
        assert_eq!(self.ghosts(), 0, "clear_ghosts() before removing owned particles");
        self.position.swap_remove(index);
        self.velocity.swap_remove(index);
        self.spin.swap_remove(index);
        self.load.swap_remove(index);
        self.id.swap_remove(index);
        self.material.swap_remove(index);
        self.image.swap_remove(index);
        self.owned -= 1;
    }

    /// Removes all particles and ghosts, keeping the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
        self.owned = 0;
        self.wrapped = 0;
    }

    /// Puts owned particle `order[n]` at place `n` for every `n`. Ghosts must have been cleared.
    ///
    /// # Panics
    /// If `order` is not as long as the number of owned particles, or names a particle that does not exist.
    pub fn permute(&mut self, order: &[u32]) {
        assert_eq!(self.ghosts(), 0, "clear_ghosts() before permuting owned particles");
        assert_eq!(order.len(), self.owned, "a permutation names every owned particle");
        let scratch = &mut self.scratch;
        permute_column(&mut self.position, order, scratch);
        permute_column(&mut self.velocity, order, scratch);
        permute_column(&mut self.spin, order, scratch);
        permute_column(&mut self.load, order, scratch);
        permute_column(&mut self.id, order, scratch);
        permute_column(&mut self.material, order, scratch);
        permute_column(&mut self.image, order, scratch);
    }

    /// Sets the image numbers of owned particles to zero: their wrapped coordinates are where the next list finds
    /// them. Call before ghosts are made anew.
    pub(crate) fn reset_images(&mut self) {
        if self.wrapped != 0 {
            self.image[..self.owned].fill([0; 4]);
            self.wrapped = 0;
        }
    }

    /// The record by which another rank can own particle `index`.
    pub fn full_record(&self, index: usize) -> FullRecord {
        FullRecord {
            position: self.position[index].0,
            velocity: self.velocity[index].0,
            spin: self.spin[index].0,
            id: self.id[index],
            material: self.material[index],
            image: [0; 4],
            reserved: [0; 2],
        }
    }

    /// The record by which another rank can keep image `image` of particle `index` as a ghost.
    pub fn ghost_record(&self, index: usize, image: [i8; 3]) -> FullRecord {
        FullRecord { image: [image[0], image[1], image[2], 0], ..self.full_record(index) }
    }

    /// The record that a checkpoint keeps of particle `index`.
    pub fn state_record(&self, index: usize) -> StateRecord {
        StateRecord {
            particle: self.full_record(index),
            force: self.load[index].force.vector(),
            torque: self.load[index].torque.vector(),
        }
    }

    /// Writes velocity and spin of the particles `indices` to `out`, [`MOTION_DOUBLES`] each.
    ///
    /// # Panics
    /// If `out` is not that long.
    pub fn pack_motion(&self, indices: &[u32], out: &mut [f64]) {
        assert_eq!(out.len(), indices.len() * MOTION_DOUBLES);
        for (index, out) in indices.iter().zip(out.as_chunks_mut::<MOTION_DOUBLES>().0) {
            let index = *index as usize;
            out[..3].copy_from_slice(&self.velocity[index].0[..3]);
            out[3..].copy_from_slice(&self.spin[index].0[..3]);
        }
    }

    /// Sets velocity and spin of the ghosts from place `first` on from what [`Particles::pack_motion`] wrote on
    /// their owner's rank, and moves them by a step of `dt` [s] with the owner's arithmetic.
    ///
    /// # Panics
    /// If there are fewer particles than that.
    pub fn unpack_motion(&mut self, first: usize, data: &[f64], dt: f64, periodic: &Periodic) {
        let wraps = periodic.any();
        for (n, update) in data.as_chunks::<MOTION_DOUBLES>().0.iter().enumerate() {
            let index = first + n;
            let velocity = &mut self.velocity[index].0;
            velocity[..3].copy_from_slice(&update[..3]);
            self.spin[index].0[..3].copy_from_slice(&update[3..]);
            let position = &mut self.position[index].0;
            drift(position, velocity, dt);
            if wraps {
                periodic.wrap(position, &mut self.image[index]);
            }
        }
    }

    /// Writes position, velocity and spin of the particles `indices` to `out`, [`PLACE_DOUBLES`] each.
    ///
    /// # Panics
    /// If `out` is not that long.
    pub fn pack_place(&self, indices: &[u32], out: &mut [f64]) {
        assert_eq!(out.len(), indices.len() * PLACE_DOUBLES);
        for (index, out) in indices.iter().zip(out.as_chunks_mut::<PLACE_DOUBLES>().0) {
            let index = *index as usize;
            out[..3].copy_from_slice(&self.position[index].0[..3]);
            out[3..6].copy_from_slice(&self.velocity[index].0[..3]);
            out[6..].copy_from_slice(&self.spin[index].0[..3]);
        }
    }

    /// Sets position, velocity and spin of the ghosts from place `first` on from what [`Particles::pack_place`]
    /// wrote after the owner's step.
    ///
    /// # Panics
    /// If there are fewer particles than that.
    pub fn unpack_place(&mut self, first: usize, data: &[f64], periodic: &Periodic) {
        let wraps = periodic.any();
        for (n, update) in data.as_chunks::<PLACE_DOUBLES>().0.iter().enumerate() {
            let index = first + n;
            let old = self.position[index].0;
            self.position[index].0[..3].copy_from_slice(&update[..3]);
            self.velocity[index].0[..3].copy_from_slice(&update[3..6]);
            self.spin[index].0[..3].copy_from_slice(&update[6..]);
            if wraps {
                periodic.follow(&old, &self.position[index].0, &mut self.image[index]);
            }
        }
    }
}

/// The one expression by which positions advance, for owners and their ghosts alike.
#[inline(always)]
pub(crate) fn drift(position: &mut [f64; 4], velocity: &[f64; 4], dt: f64) {
    for k in 0..3 {
        position[k] += dt * velocity[k];
    }
}

fn permute_column<T: Pod>(column: &mut [T], order: &[u32], scratch: &mut Vec<u8>) {
    let bytes = size_of_val(column);
    let slack = align_of::<T>();
    if scratch.len() < bytes + slack {
        scratch.resize(bytes + slack, 0);
    }
    let offset = scratch.as_ptr().align_offset(slack);
    let old: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[offset..offset + bytes]);
    old.copy_from_slice(column);
    for (new, from) in column.iter_mut().zip(order) {
        *new = old[*from as usize];
    }
}
