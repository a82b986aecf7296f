//! A run on any number of ranks inside one process: the time loop without MPI.

use dem_core::{
    ContactModel, Contacts, Damping, Kernel, Material, MaterialTable, Model, NeighbourList, PairProperties,
    Particles, Periodic, Quanta, Sphere, Wall, contacts, kick, kick_drift, state_hash,
};

/// A rank: its particles, its list, and for each ghost the rank and index of its owner's particle.
#[derive(Default)]
pub(crate) struct Rank {
    pub(crate) particles: Particles,
    pub(crate) list: NeighbourList,
    sources: Vec<(usize, u32)>,
}

/// Slabs along x, one rank each; ghosts are copied directly.
pub(crate) struct Sim {
    pub(crate) model: Model,
    pub(crate) ranks: Vec<Rank>,
    /// Inner faces of the slabs [m].
    cuts: Vec<f64>,
    /// Rebuild at least every so many steps.
    pub(crate) rebuild_every: u64,
    /// Ghosts are sent positions too instead of advancing them.
    pub(crate) send_places: bool,
    pub(crate) steps: u64,
    pub(crate) rebuilds: u64,
    pub(crate) migrations: u64,
    pub(crate) crossings: u64,
    pub(crate) contacts: Contacts,
}

/// Material and contact constants of a simple model; everything else is set on the [`Model`].
#[derive(Clone)]
pub(crate) struct Physics {
    pub(crate) young: f64,
    pub(crate) restitution: f64,
    pub(crate) friction: f64,
    pub(crate) damping: Damping,
    pub(crate) clip: bool,
    pub(crate) rate: f64,
}

pub(crate) const DENSITY: f64 = 7000.0;

impl Physics {
    pub(crate) fn elastic(young: f64) -> Self {
        Self {
            young,
            restitution: 1.0,
            friction: 0.0,
            damping: Damping::ConstantRestitution,
            clip: true,
            rate: 0.0,
        }
    }

    pub(crate) fn table(&self) -> MaterialTable {
        MaterialTable::new(
            &[Material { density: DENSITY, youngs_modulus: self.young, poisson_ratio: 0.2 }],
            &[PairProperties { materials: (0, 0), restitution: self.restitution, friction: self.friction }],
            ContactModel { damping: self.damping, clip: self.clip, tangential_rate: self.rate },
        )
        .unwrap()
    }

    pub(crate) fn model(&self, dt: f64, max_radius: f64) -> Model {
        let materials = self.table();
        let overlap_limit = 0.2;
        let guard_force = materials.guard_force(overlap_limit, max_radius);
        Model {
            dt,
            gravity: [0.0; 3],
            periodic: Periodic::NONE,
            quanta: Quanta::new(guard_force, max_radius, max_radius, materials.max_friction()).unwrap(),
            rounding: true,
            materials,
            walls: Vec::new(),
            overlap_limit,
            skin: 0.2 * max_radius,
            max_radius,
            kernel: Kernel::detect(),
        }
    }
}

pub(crate) fn floor() -> Wall {
    Wall { point: [0.0; 3], normal: [0.0, 0.0, 1.0], material: 0 }
}

pub(crate) fn sphere(id: u64, position: [f64; 3], radius: f64, velocity: [f64; 3]) -> Sphere {
    Sphere { id, position, radius, velocity, spin: [0.0; 3], material: 0 }
}

impl Sim {
    /// All on one rank.
    pub(crate) fn new(model: Model, spheres: &[Sphere]) -> Self {
        Self::on_ranks(model, spheres, &[])
    }

    /// On `cuts.len() + 1` ranks; forces are computed, so the first step may follow.
    pub(crate) fn on_ranks(model: Model, spheres: &[Sphere], cuts: &[f64]) -> Self {
        let mut sim = Self {
            model,
            ranks: (0..=cuts.len()).map(|_| Rank::default()).collect(),
            cuts: cuts.to_vec(),
            rebuild_every: u64::MAX,
            send_places: false,
            steps: 0,
            rebuilds: 0,
            migrations: 0,
            crossings: 0,
            contacts: Contacts::default(),
        };
        for s in spheres {
            let density = sim.model.materials.materials()[usize::from(s.material)].density;
            sim.ranks[0].particles.push(s, density);
        }
        sim.rebuild(0.0);
        sim.forces();
        (sim.rebuilds, sim.migrations) = (0, 0);
        sim
    }

    fn owner(&self, x: f64) -> usize {
        self.cuts.iter().take_while(|cut| x > **cut).count()
    }

    pub(crate) fn rebuild(&mut self, last_step: f64) {
        self.rebuilds += 1;
        let mut moved = Vec::new();
        for r in 0..self.ranks.len() {
            self.ranks[r].particles.clear_ghosts();
            for i in (0..self.ranks[r].particles.owned()).rev() {
                let to = self.owner(self.ranks[r].particles.positions()[i].0[0]);
                if to != r {
                    moved.push((to, self.ranks[r].particles.state_record(i)));
                    self.ranks[r].particles.swap_remove(i);
                }
            }
        }
        self.migrations += moved.len() as u64;
        for (to, record) in moved {
            self.ranks[to].particles.push_state(&record);
        }
        for rank in &mut self.ranks {
            rank.list.sort(&self.model, &mut rank.particles);
        }
        self.make_ghosts();
        for rank in &mut self.ranks {
            rank.list.build(&self.model, &rank.particles, last_step);
        }
    }

    fn make_ghosts(&mut self) {
        let thickness = 2.0 * self.model.max_radius + self.model.skin;
        let length = self.model.periodic.lengths();
        let images = |k: usize| if self.model.periodic.axes[k] { -1..=1i8 } else { 0..=0 };
        for r in 0..self.ranks.len() {
            let low = if r == 0 { f64::NEG_INFINITY } else { self.cuts[r - 1] };
            let high = self.cuts.get(r).copied().unwrap_or(f64::INFINITY);
            // The slab's own bounds matter for images of its own particles.
            let periodic = &self.model.periodic;
            let bounds: [[f64; 2]; 3] = std::array::from_fn(|k| {
                let whole = if periodic.axes[k] {
                    [periodic.min[k], periodic.max[k]]
                } else {
                    [f64::NEG_INFINITY, f64::INFINITY]
                };
                if k == 0 { [whole[0].max(low), whole[1].min(high)] } else { whole }
            });
            let mut ghosts = Vec::new();
            for (s, source) in self.ranks.iter().enumerate() {
                for i in 0..source.particles.owned() {
                    let x = source.particles.positions()[i].vector();
                    for (a, b, c) in images(0)
                        .flat_map(|a| images(1).map(move |b| (a, b)))
                        .flat_map(|(a, b)| images(2).map(move |c| (a, b, c)))
                    {
                        let image = [a, b, c];
                        let near = (0..3).all(|k| {
                            let at = x[k] + f64::from(image[k]) * length[k];
                            at >= bounds[k][0] - thickness && at <= bounds[k][1] + thickness
                        });
                        if near && !(s == r && image == [0; 3]) {
                            ghosts.push((s, i as u32, source.particles.ghost_record(i, image)));
                        }
                    }
                }
            }
            let rank = &mut self.ranks[r];
            rank.sources.clear();
            for (s, i, record) in ghosts {
                rank.sources.push((s, i));
                rank.particles.push_ghost(&record);
            }
        }
    }

    fn update_ghosts(&mut self) {
        let periodic = self.model.periodic;
        for r in 0..self.ranks.len() {
            for g in 0..self.ranks[r].sources.len() {
                let (s, i) = self.ranks[r].sources[g];
                let first = self.ranks[r].particles.owned() + g;
                if self.send_places {
                    let mut data = [0.0; dem_core::PLACE_DOUBLES];
                    self.ranks[s].particles.pack_place(&[i], &mut data);
                    self.ranks[r].particles.unpack_place(first, &data, &periodic);
                } else {
                    let mut data = [0.0; dem_core::MOTION_DOUBLES];
                    self.ranks[s].particles.pack_motion(&[i], &mut data);
                    self.ranks[r].particles.unpack_motion(first, &data, self.model.dt, &periodic);
                }
            }
        }
    }

    fn forces(&mut self) {
        self.contacts.touching = 0;
        self.contacts.walls = 0;
        for rank in &mut self.ranks {
            self.contacts += contacts(&self.model, &mut rank.particles, &mut rank.list).unwrap();
        }
    }

    pub(crate) fn step(&mut self) {
        for rank in &mut self.ranks {
            let drift = kick_drift(&self.model, &mut rank.particles, &mut rank.list).unwrap();
            self.crossings += drift.crossings.iter().sum::<u64>();
        }
        self.steps += 1;
        let mut stale = self.steps.is_multiple_of(self.rebuild_every);
        for rank in &mut self.ranks {
            stale |= rank.list.is_stale(&self.model, &rank.particles);
        }
        if stale {
            self.rebuild(self.model.dt)
        } else {
            self.update_ghosts()
        }
        self.forces();
        for rank in &mut self.ranks {
            kick(&self.model, &mut rank.particles).unwrap();
        }
    }

    pub(crate) fn run(&mut self, steps: u64) -> &mut Self {
        for _ in 0..steps {
            self.step();
        }
        self
    }

    pub(crate) fn hash(&self) -> u128 {
        self.ranks.iter().fold(0, |sum: u128, r| sum.wrapping_add(state_hash(&r.particles)))
    }

    /// Position, velocity and spin of the particle with this id.
    pub(crate) fn state(&self, id: u64) -> [[f64; 3]; 3] {
        let find = |r: &Rank| {
            let p = &r.particles;
            let i = p.ids()[..p.owned()].iter().position(|n| *n == id)?;
            Some([p.positions()[i].vector(), p.velocities()[i].vector(), p.spins()[i].vector()])
        };
        self.ranks.iter().find_map(find).unwrap()
    }
}
