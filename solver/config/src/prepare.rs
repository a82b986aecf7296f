//! Everything that follows from a simulation: particles, time step, limits, guards, tables by index.
//!
//! All of it is computed with +, -, *, / and sqrt alone, whose results IEEE 754 fixes to the last bit, so that every
//! rank and machine gets the same time step.

use crate::generate::{Files, ParticleSource, lattice_pitch};
use crate::validate::periodic_side_problems;
use crate::{
    Checkpoint, Damping, End, Face, Faces, GhostLayer, Problem, Simulation, Source, TangentialRate, TimeStep,
    Velocity,
};

/// Largest overlap that a run accepts, as a fraction of the smaller sphere's radius. Hertz's law is far from reality
/// there already, but softened materials, as packings use them, reach a fifth of it in an ordinary impact.
pub const OVERLAP_GUARD_FRACTION: f64 = 0.3;

/// A simulation made ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The particles.
    pub particles: ParticleSource,
    /// Time step [s].
    pub dt: f64,
    /// Number of steps of the whole run.
    pub end_step: u64,
    /// What bounds the time step.
    pub limits: StepLimits,
    /// Smallest radius [m].
    pub rmin: f64,
    /// Largest radius [m].
    pub rmax: f64,
    /// Largest speed to be expected [m/s]: the fastest particle at the start, after a fall to the domain's floor.
    pub vmax: f64,
    /// Skin of the neighbour list [m].
    pub skin: f64,
    /// Distance beyond its box up to which a rank holds ghosts [m]: k 2 rmax + skin, k from `ghostLayer`.
    pub ghost_thickness: f64,
    /// The box that decomposition starts from: a lattice's block, otherwise the bounds of the spheres [m].
    pub region: ([f64; 3], [f64; 3]),
    /// Periodic axes.
    pub periodic: [bool; 3],
    /// Names of the materials; particles, pairs and walls refer to them by index.
    pub materials: Vec<String>,
    /// Every pair of materials `first <= second`, ordered by first, then second.
    pub pairs: Vec<PairParameters>,
    /// The faces that are walls, in the order xMin, xMax, ..., zMax, then the file's walls.
    pub walls: Vec<PlaneWall>,
    /// Tangential damping over effective mass [1/s].
    pub tangential_rate: f64,
    /// Largest overlap that a run accepts, as a fraction of the smaller sphere's diameter.
    pub overlap_limit: f64,
    /// Elastic force [N] of the stiffest contact that can occur at the largest overlap accepted; the force quantum
    /// follows from it.
    pub guard_force: f64,
    /// Steps between checkpoints, 0 for none.
    pub checkpoint_every: u64,
    /// Complete checkpoints kept.
    pub checkpoint_keep: usize,
}

/// Bounds of the time step [s].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepLimits {
    /// Time a Rayleigh wave takes across the smallest sphere: pi R sqrt(rho/G)/(0.1631 nu + 0.8766) (Ning and
    /// Ghadiri 2006), the least over the materials.
    pub rayleigh: f64,
    /// 2/omega of the linear contact that lasts as long as Hertz's at `vmax`: (2/pi) 2.943275 (5 m*/4k)^(2/5)
    /// v^(-1/5).
    pub hertz: f64,
    /// Half of 2/omega of the stiffest vibration of a lattice under its own load, m/k_t: the overlap at the start or
    /// under the weight of all particles, whichever is larger. Half, because real packings have up to 12 contacts
    /// where the lattice has 6.
    pub loaded: f64,
    /// Time in which a particle of `vmax` moves half the skin. A hard limit only: it has no part in `auto`, so that
    /// the skin changes no result.
    pub skin_travel: f64,
}

impl StepLimits {
    /// The smallest limit that the physics sets [s].
    pub fn physical(&self) -> f64 {
        self.rayleigh.min(self.hertz).min(self.loaded)
    }
}

/// How two materials collide, by index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairParameters {
    /// Indices of the materials, `first <= second`.
    pub materials: (u16, u16),
    /// 1/E* = (1 - nu1^2)/E1 + (1 - nu2^2)/E2 [Pa].
    pub effective_modulus: f64,
    /// Coefficient of restitution.
    pub restitution: f64,
    /// Coefficient of Coulomb friction.
    pub friction: f64,
    /// Whether the file gives the pair. One that it leaves out cannot meet, and has restitution 1, friction 0.
    pub given: bool,
}

/// A plane wall at rest.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaneWall {
    /// Its name: xMin, ..., zMax for faces.
    pub name: String,
    /// A point of the plane [m].
    pub point: [f64; 3],
    /// Unit normal into the particles.
    pub normal: [f64; 3],
    /// Index of its material.
    pub material: u16,
}

/// Makes a simulation ready to run. `files` holds the text of each particle file under the path that the simulation
/// gives.
///
/// # Errors
/// All problems of the simulation, of its particle files, of random placement without room, and of the time step.
pub fn prepare(simulation: &Simulation, files: &Files) -> Result<Prepared, Vec<Problem>> {
    let problems = simulation.validate();
    if !problems.is_empty() {
        return Err(problems);
    }
    let particles = ParticleSource::new(simulation, files)?;
    let extent = Extent::of_particles(simulation, &particles);
    let problems = periodic_side_problems(simulation, extent.rmax);
    if !problems.is_empty() {
        return Err(problems);
    }
    let derived = derive(simulation, &extent)?;
    Ok(Prepared {
        region: particles.region(),
        particles,
        dt: derived.dt,
        end_step: derived.end_step,
        limits: derived.limits,
        rmin: extent.rmin,
        rmax: extent.rmax,
        vmax: derived.vmax,
        skin: derived.skin,
        ghost_thickness: ghost_thickness(simulation.ghost_layer, extent.rmax, derived.skin),
        periodic: simulation.domain.faces.periodic(),
        materials: simulation.materials.iter().map(|material| material.name.clone()).collect(),
        pairs: derived.pairs,
        walls: walls(simulation),
        tangential_rate: derived.tangential_rate,
        overlap_limit: 0.5 * OVERLAP_GUARD_FRACTION,
        guard_force: derived.guard_force,
        checkpoint_every: simulation.checkpoint.every_steps.unwrap_or(Checkpoint::EVERY_STEPS) as u64,
        checkpoint_keep: simulation.checkpoint.keep.unwrap_or(Checkpoint::KEEP) as usize,
    })
}

/// Thickness of the ghost layer [m].
fn ghost_thickness(layer: GhostLayer, rmax: f64, skin: f64) -> f64 {
    f64::from(layer.diameters()) * 2.0 * rmax + skin
}

/// The figures of the particles from which the rest follows.
pub(crate) struct Extent {
    rmin: f64,
    rmax: f64,
    vmax: f64,
    /// Mass of all particles [kg].
    mass: f64,
    /// Bounds of the centres.
    min: [f64; 3],
    max: [f64; 3],
    /// Largest overlap of lattice neighbours [m].
    overlap: f64,
}

impl Extent {
    fn new(simulation: &Simulation) -> Self {
        let overlaps = simulation.particles.iter().filter_map(|source| match source {
            Source::Lattice(lattice) => {
                let pitch = lattice_pitch(lattice);
                let closest =
                    (0..3).filter(|&k| lattice.counts[k] > 1).map(|k| pitch[k]).fold(f64::INFINITY, f64::min);
                Some(2.0 * lattice.radius - closest)
            }
            _ => None,
        });
        Self {
            rmin: f64::INFINITY,
            rmax: 0.0,
            vmax: 0.0,
            mass: 0.0,
            min: [f64::INFINITY; 3],
            max: [f64::NEG_INFINITY; 3],
            overlap: overlaps.fold(0.0, f64::max),
        }
    }

    fn of_particles(simulation: &Simulation, particles: &ParticleSource) -> Self {
        let mut extent = Self::new(simulation);
        for seed in particles.range(0..particles.count()) {
            let density = simulation.materials[usize::from(seed.material)].density;
            let [x, y, z] = seed.velocity;
            extent.rmin = extent.rmin.min(seed.radius);
            extent.rmax = extent.rmax.max(seed.radius);
            extent.vmax = extent.vmax.max((x * x + y * y + z * z).sqrt());
            extent.mass += sphere_mass(seed.radius, density);
            for axis in 0..3 {
                extent.min[axis] = extent.min[axis].min(seed.position[axis]);
                extent.max[axis] = extent.max[axis].max(seed.position[axis]);
            }
        }
        extent
    }

    /// What the file alone says, without making the particles; an upper bound of speeds, radii and bounds.
    pub(crate) fn of_specification(simulation: &Simulation) -> Self {
        let mut extent = Self::new(simulation);
        for source in &simulation.particles {
            let (count, radii, low, high, velocity) = match source {
                Source::Lattice(lattice) => {
                    let origin = lattice.origin.unwrap_or(simulation.domain.min);
                    let pitch = lattice_pitch(lattice);
                    let top = [0, 1, 2].map(|k| origin[k] + f64::from(lattice.counts[k]) * pitch[k]);
                    let count: f64 = lattice.counts.iter().map(|&n| f64::from(n)).product();
                    (count, [lattice.radius; 2], origin, top, &lattice.velocity)
                }
                Source::Random(random) => {
                    let radii = [random.radius.min, random.radius.max];
                    (random.count as f64, radii, random.min, random.max, &random.velocity)
                }
                Source::File(_) => continue,
            };
            let speed = match velocity {
                Velocity::Uniform(uniform) => {
                    let [x, y, z] = uniform.velocity;
                    (x * x + y * y + z * z).sqrt()
                }
                Velocity::Random(random) => random.max_speed,
            };
            let density = simulation.materials.iter().find(|material| material.name == source.material());
            extent.rmin = extent.rmin.min(radii[0]);
            extent.rmax = extent.rmax.max(radii[1]);
            extent.vmax = extent.vmax.max(speed);
            extent.mass += count * sphere_mass(radii[1], density.map_or(0.0, |material| material.density));
            for axis in 0..3 {
                extent.min[axis] = extent.min[axis].min(low[axis]);
                extent.max[axis] = extent.max[axis].max(high[axis]);
            }
        }
        extent
    }
}

/// What follows from a simulation and the extent of its particles.
pub(crate) struct Derived {
    dt: f64,
    end_step: u64,
    limits: StepLimits,
    vmax: f64,
    skin: f64,
    pairs: Vec<PairParameters>,
    tangential_rate: f64,
    guard_force: f64,
}

/// Time step, its limits and the guard force.
///
/// # Errors
/// If the time step, the tangential rate or the number of steps cannot be run.
pub(crate) fn derive(simulation: &Simulation, extent: &Extent) -> Result<Derived, Vec<Problem>> {
    let (rmin, rmax) = (extent.rmin, extent.rmax);
    let pairs = pair_parameters(simulation);
    let modulus =
        pairs.iter().filter(|pair| pair.given).map(|pair| pair.effective_modulus).fold(0.0, f64::max);
    let skin = simulation.skin_for(rmax);
    let vmax = speed_after_fall(simulation, extent);

    let particles: Vec<_> = simulation.particle_materials();
    let lightest = particles.iter().map(|material| material.density).fold(f64::INFINITY, f64::min);
    let mass = sphere_mass(rmin, lightest);
    // The stiffest spring on the lightest sphere: against a wall for the effective radius, against an equal one for
    // the mass.
    let stiffness = 4.0 / 3.0 * modulus * rmin.sqrt();
    let rayleigh = particles.iter().map(|material| {
        let shear = material.youngs_modulus / (2.0 * (1.0 + material.poisson_ratio));
        let correction = 0.1631 * material.poisson_ratio + 0.8766;
        std::f64::consts::PI * rmin * (material.density / shear).sqrt() / correction
    });
    let limits = StepLimits {
        rayleigh: rayleigh.fold(f64::INFINITY, f64::min),
        hertz: hertz_limit(0.5 * mass, stiffness, vmax),
        loaded: loaded_limit(simulation, extent, mass, 4.0 / 3.0 * modulus * (0.5 * rmin).sqrt()),
        skin_travel: if vmax > 0.0 { 0.5 * skin / vmax } else { f64::INFINITY },
    };

    let mut problems = Vec::new();
    let physical = limits.physical();
    let dt = match simulation.time.step {
        TimeStep::Auto(auto) => auto.fraction * physical,
        TimeStep::Seconds(seconds) => {
            if seconds > physical {
                let which = if physical == limits.rayleigh {
                    "the Rayleigh time"
                } else if physical == limits.hertz {
                    "the time of the fastest impact"
                } else {
                    "the vibration of the loaded packing"
                };
                let expected =
                    format!("at most {physical:.4e} s, set by {which}; a tenth of it is a good choice");
                problems.push(Problem::new("time.step.seconds", format!("{seconds:e}"), expected));
            }
            seconds
        }
    };
    if dt > limits.skin_travel {
        let found =
            format!("{skin:.4e} m, half of which a particle of {vmax:.3} m/s moves in less than a step");
        let expected = format!("more than {:.4e} m, or a shorter time step", 2.0 * vmax * dt);
        problems.push(Problem::new("neighbours.skin", found, expected));
    }
    let steps = match simulation.time.end {
        End::Steps(steps) => steps as f64,
        End::Seconds(seconds) => (seconds / dt).ceil(),
    };
    if steps > 1e12 {
        problems.push(Problem::new("time.end", format!("{steps:e} steps"), "at most 1e12 steps"));
    }
    let softest = 2.0 / 7.0 / dt;
    let tangential_rate = match simulation.contact.tangential_rate {
        TangentialRate::Auto(_) => 0.1 * softest,
        TangentialRate::PerSecond(rate) => {
            if rate > softest {
                let expected =
                    format!("at most {softest:.4e} 1/s: friction would reverse the slip within a step");
                problems.push(Problem::new("contact.tangentialRate.perSecond", rate, expected));
            }
            rate
        }
    };
    // As in the overlap guard: a fraction of the diameter, and a wall's contact has the larger effective radius.
    let guard_overlap = OVERLAP_GUARD_FRACTION * rmax;
    let guard_force = 4.0 / 3.0 * modulus * (rmax * guard_overlap).sqrt() * guard_overlap;
    if !(dt.is_finite() && dt > 0.0 && guard_force.is_finite() && guard_force > 0.0) {
        let found = format!("a time step of {dt:e} s and a guard force of {guard_force:e} N");
        problems.push(Problem::new("simulation file", found, "finite, positive values: check units"));
    }
    if problems.is_empty() {
        let end_step = steps as u64;
        Ok(Derived { dt, end_step, limits, vmax, skin, pairs, tangential_rate, guard_force })
    } else {
        Err(problems)
    }
}

fn sphere_mass(radius: f64, density: f64) -> f64 {
    4.0 / 3.0 * std::f64::consts::PI * (radius * radius * radius) * density
}

/// Start speed plus that of a fall along gravity from the highest centre to the far side of the domain.
fn speed_after_fall(simulation: &Simulation, extent: &Extent) -> f64 {
    let domain = &simulation.domain;
    let drops = (0..3).map(|axis| {
        let g = simulation.gravity[axis];
        let way =
            if g < 0.0 { extent.max[axis] - domain.min[axis] } else { domain.max[axis] - extent.min[axis] };
        g.abs() * way.max(0.0)
    });
    (extent.vmax * extent.vmax + 2.0 * drops.sum::<f64>()).sqrt()
}

fn hertz_limit(effective_mass: f64, stiffness: f64, speed: f64) -> f64 {
    if speed <= 0.0 {
        return f64::INFINITY;
    }
    let ratio = 5.0 * effective_mass / (4.0 * stiffness);
    // (ratio^2/v)^(1/5)
    2.0 / std::f64::consts::PI * 2.943275 * root(ratio * ratio / speed, 5)
}

fn loaded_limit(simulation: &Simulation, extent: &Extent, mass: f64, stiffness: f64) -> f64 {
    let [gx, gy, gz] = simulation.gravity;
    let gravity = (gx * gx + gy * gy + gz * gz).sqrt();
    let mut overlap = extent.overlap;
    if gravity > 0.0 {
        let sides = [0, 1, 2].map(|axis| simulation.domain.max[axis] - simulation.domain.min[axis]);
        let floor = (gx.abs() * sides[1] * sides[2]
            + gy.abs() * sides[0] * sides[2]
            + gz.abs() * sides[0] * sides[1])
            / gravity;
        // The pressure of all particles on the floor, carried by one sphere in each square of its diameter; at least
        // one sphere's weight, at most that of all.
        let share = (4.0 * extent.rmin * extent.rmin / floor).min(1.0);
        let force = (extent.mass * share).max(mass) * gravity;
        let ratio = force / stiffness;
        overlap = overlap.max(root(ratio * ratio, 3));
    }
    if overlap <= 0.0 {
        return f64::INFINITY;
    }
    // The highest frequency of a chain of masses m and springs k_t is 2 sqrt(k_t/m).
    0.5 / (1.5 * stiffness * overlap.sqrt() / mass).sqrt()
}

/// The n-th root by Newton's method, from +, * and / alone: the same bits on every machine.
fn root(x: f64, n: i32) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return if x == 0.0 { 0.0 } else { x };
    }
    // A power of two above the root, from where Newton's steps only fall.
    let mut y = 1.0;
    while power(y, n) < x {
        y *= 2.0;
    }
    while power(0.5 * y, n) >= x && y > f64::MIN_POSITIVE {
        y *= 0.5;
    }
    loop {
        let next = (f64::from(n - 1) * y + x / power(y, n - 1)) / f64::from(n);
        if next >= y {
            return y;
        }
        y = next;
    }
}

fn power(y: f64, n: i32) -> f64 {
    (0..n).fold(1.0, |product, _| product * y)
}

fn pair_parameters(simulation: &Simulation) -> Vec<PairParameters> {
    let materials = &simulation.materials;
    let mut pairs = Vec::new();
    for (i, first) in materials.iter().enumerate() {
        for (j, second) in materials.iter().enumerate().skip(i) {
            let given = simulation.pairs.iter().find(|pair| {
                let [a, b] = &pair.materials;
                (a == &first.name && b == &second.name) || (a == &second.name && b == &first.name)
            });
            let compliance =
                |m: &crate::Material| (1.0 - m.poisson_ratio * m.poisson_ratio) / m.youngs_modulus;
            pairs.push(PairParameters {
                materials: (i as u16, j as u16),
                effective_modulus: 1.0 / (compliance(first) + compliance(second)),
                restitution: given.map_or(1.0, |pair| pair.restitution),
                friction: given.map_or(0.0, |pair| pair.friction),
                given: given.is_some(),
            });
        }
    }
    pairs
}

fn walls(simulation: &Simulation) -> Vec<PlaneWall> {
    let domain = &simulation.domain;
    let index = |name: &str| simulation.material_index(name).unwrap_or(0);
    let face_material = domain.wall_material.as_deref().map_or(0, index);
    let mut walls = Vec::new();
    for (k, face) in domain.faces.all().into_iter().enumerate() {
        if face == Face::Wall {
            let (axis, upper) = (k / 2, k % 2 == 1);
            let mut normal = [0.0; 3];
            normal[axis] = if upper { -1.0 } else { 1.0 };
            let point = if upper { domain.max } else { domain.min };
            walls.push(PlaneWall { name: Faces::NAMES[k].into(), point, normal, material: face_material });
        }
    }
    for wall in &simulation.walls {
        let [x, y, z] = wall.normal;
        // Scaled first, so that squares neither overflow nor vanish.
        let scale = x.abs().max(y.abs()).max(z.abs());
        let [x, y, z] = [x / scale, y / scale, z / scale];
        let length = (x * x + y * y + z * z).sqrt();
        let normal = [x / length, y / length, z / length];
        let (name, point) = (wall.name.clone(), wall.point);
        walls.push(PlaneWall { name, point, normal, material: index(&wall.material) });
    }
    walls
}

impl Simulation {
    /// Index of a material by name.
    pub fn material_index(&self, name: &str) -> Option<u16> {
        self.materials.iter().position(|material| material.name == name).map(|index| index as u16)
    }

    /// The materials that particles can have; with a particle file, any.
    fn particle_materials(&self) -> Vec<&crate::Material> {
        let any = self.particles.iter().any(|source| matches!(source, Source::File(_)));
        let used = |name: &str| self.particles.iter().any(|source| source.material() == name);
        self.materials.iter().filter(|material| any || used(&material.name)).collect()
    }
}

impl Damping {
    /// The impact speed [m/s] at which a constant coefficient is set; `None` for constant restitution.
    pub fn impact_speed(&self) -> Option<f64> {
        match self {
            Damping::ConstantRestitution(_) => None,
            Damping::ConstantCoefficient(damping) => Some(damping.impact_speed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_agree_with_the_library_to_two_ulps() {
        for x in [1e-300, 3.7e-17, 0.2, 1.0, 8.0, 243.0, 1e200] {
            for n in [3, 5] {
                let error = (root(x, n) / x.powf(1.0 / f64::from(n)) - 1.0).abs();
                assert!(error < 1e-13, "{x} {n}: {error:e}");
            }
        }
    }
}
