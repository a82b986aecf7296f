//! What the schema cannot see: references between fields, and physics that cannot run.

use std::collections::BTreeSet;

use crate::generate::lattice_pitch;
use crate::prepare::{Extent, OVERLAP_GUARD_FRACTION, derive};
use crate::problem::unknown;
use crate::{
    Damping, End, Face, Faces, Problem, Simulation, Skin, Source, TangentialRate, TimeStep, Velocity,
};

/// Most particles of one simulation; ids and counters have room for more, memory has not.
pub const MAX_PARTICLES: u64 = 1_000_000_000;

/// Share of its volume that random placement without overlap cannot exceed: it jams at 0.38 for equal spheres
/// (Cooper 1988), somewhat above for mixtures.
const MAX_RANDOM_FRACTION: f64 = 0.45;

const AXES: [&str; 3] = ["x", "y", "z"];

impl Simulation {
    /// Problems of a simulation whose fields have the right shape; with `derived`, also those of what follows from
    /// it, if it is otherwise sound and its particles do not come from a file.
    pub(crate) fn consistency(&self, derived: bool) -> Vec<Problem> {
        let mut check = Check { simulation: self, problems: Vec::new() };
        check.domain();
        check.materials();
        check.pairs();
        check.walls();
        check.particles();
        check.time();
        let mut problems = check.problems;
        if derived
            && problems.is_empty()
            && !self.particles.iter().any(|source| matches!(source, Source::File(_)))
        {
            problems.extend(derive(self, &Extent::of_specification(self)).err().into_iter().flatten());
        }
        problems
    }
}

struct Check<'a> {
    simulation: &'a Simulation,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn add(
        &mut self,
        path: impl Into<String>,
        found: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) {
        self.problems.push(Problem::new(path, found, expected));
    }

    fn domain(&mut self) {
        let domain = &self.simulation.domain;
        for (axis, name) in AXES.iter().enumerate() {
            if domain.min[axis] >= domain.max[axis] {
                let found = format!(
                    "{} in {name}, where the lower corner has {}",
                    domain.max[axis], domain.min[axis]
                );
                self.add(format!("domain.max[{axis}]"), found, "an upper corner above the lower one");
            }
            let [low, high] = [domain.faces.all()[2 * axis], domain.faces.all()[2 * axis + 1]];
            if (low == Face::Periodic) != (high == Face::Periodic) {
                let [alone, other] = if low == Face::Periodic { ["Min", "Max"] } else { ["Max", "Min"] };
                let found = format!("Periodic, while {name}{other} is not");
                self.add(
                    format!("domain.faces.{name}{alone}"),
                    found,
                    "Periodic on both opposite faces or on none",
                );
            }
        }
        if let Some(name) = &domain.wall_material {
            self.known_material("domain.wallMaterial", name);
        }
    }

    fn known_material(&mut self, path: impl Into<String>, name: &str) -> bool {
        let names: Vec<&str> =
            self.simulation.materials.iter().map(|material| material.name.as_str()).collect();
        let known = names.contains(&name);
        if !known {
            self.problems.push(unknown(path, "material", name, &names));
        }
        known
    }

    fn materials(&mut self) {
        let mut seen = BTreeSet::new();
        for (i, material) in self.simulation.materials.iter().enumerate() {
            if !seen.insert(&material.name) {
                self.add(
                    format!("materials[{i}].name"),
                    format!("`{}` a second time", material.name),
                    "a new name",
                );
            }
        }
    }

    fn pairs(&mut self) {
        let mut given = BTreeSet::new();
        for (i, pair) in self.simulation.pairs.iter().enumerate() {
            let path = format!("pairs[{i}].materials");
            let mut known = true;
            for (k, name) in pair.materials.iter().enumerate() {
                known &= self.known_material(format!("{path}[{k}]"), name);
            }
            let [first, second] = &pair.materials;
            if !given.insert(unordered(first, second)) && known {
                self.add(path, format!("the pair {first} and {second} a second time"), "each pair once");
            }
        }
        let particles: BTreeSet<&str> = self.simulation.particles.iter().map(Source::material).collect();
        let walls: BTreeSet<&str> = self.simulation.wall_materials().into_iter().collect();
        let mut needed = BTreeSet::new();
        for &particle in &particles {
            for &other in particles.union(&walls) {
                needed.insert(unordered(particle, other));
            }
        }
        let names: BTreeSet<&str> =
            self.simulation.materials.iter().map(|material| material.name.as_str()).collect();
        for (first, second) in needed {
            let known = names.contains(first) && names.contains(second);
            if known && !given.contains(&(first, second)) {
                let expected = format!("an entry for the materials {first} and {second}, which can meet");
                self.add("pairs", "none", expected);
            }
        }
    }

    fn walls(&mut self) {
        let periodic = self.simulation.domain.faces.periodic();
        let mut seen: BTreeSet<&str> = Faces::NAMES.into_iter().collect();
        for (i, wall) in self.simulation.walls.iter().enumerate() {
            if !seen.insert(&wall.name) {
                let expected = "a name of its own, none of the six faces'";
                self.add(format!("walls[{i}].name"), format!("`{}`, which is taken", wall.name), expected);
            }
            self.known_material(format!("walls[{i}].material"), &wall.material);
            if wall.normal == [0.0; 3] {
                self.add(format!("walls[{i}].normal"), "[0, 0, 0]", "a direction");
            }
            for axis in 0..3 {
                if periodic[axis] && wall.normal[axis] != 0.0 {
                    let found = format!("{} along {}, a periodic axis", wall.normal[axis], AXES[axis]);
                    self.add(format!("walls[{i}].normal[{axis}]"), found, "0: walls run along periodic axes");
                }
            }
        }
    }

    fn particles(&mut self) {
        let simulation = self.simulation;
        let domain = &simulation.domain;
        let mut count = 0_u64;
        for (i, source) in simulation.particles.iter().enumerate() {
            let path = format!("particles[{i}]");
            count = count.saturating_add(source.count().unwrap_or(1));
            match source {
                Source::Lattice(lattice) => {
                    let path = format!("{path}.lattice");
                    self.known_material(format!("{path}.material"), &lattice.material);
                    self.positive(format!("{path}.radius"), lattice.radius);
                    self.speed(&format!("{path}.velocity"), &lattice.velocity);
                    if lattice.spacing.is_some() == lattice.fit.is_some() {
                        let found =
                            if lattice.fit.is_some() { "spacing and fit" } else { "neither spacing nor fit" };
                        self.add(&path, found, "exactly one of them");
                        continue;
                    }
                    self.lattice(&path, lattice);
                }
                Source::Random(random) => {
                    let path = format!("{path}.random");
                    self.known_material(format!("{path}.material"), &random.material);
                    self.positive(format!("{path}.radius.min"), random.radius.min);
                    self.speed(&format!("{path}.velocity"), &random.velocity);
                    if random.radius.max < random.radius.min {
                        let expected = format!("at least radius.min, {}", random.radius.min);
                        self.add(format!("{path}.radius.max"), random.radius.max, expected);
                        continue;
                    }
                    self.random(&path, random);
                }
                Source::File(file) => {
                    self.known_material(format!("{path}.file.material"), &file.material);
                    let outside = file.path.starts_with('/') || file.path.split('/').any(|part| part == "..");
                    if outside || file.path.contains('\0') {
                        let found = format!("`{}`", crate::problem::shorten(&file.path));
                        self.add(
                            format!("{path}.file.path"),
                            found,
                            "a path below the input folder, without `..`",
                        );
                    }
                }
            }
        }
        if count > MAX_PARTICLES {
            self.add("particles", format!("{count} in all"), format!("at most {MAX_PARTICLES}"));
        }
        if let Skin::Metres(metres) = simulation.neighbours.skin
            && !(metres > 0.0 && metres <= 1e6)
        {
            self.add("neighbours.skin.metres", metres, "above 0 m");
        }
        if domain.min.iter().zip(domain.max).any(|(&low, high)| low >= high) {
            return;
        }
        self.periodic_sides();
    }

    fn positive(&mut self, path: String, value: f64) {
        if value <= 0.0 {
            self.add(path, value, "above 0");
        }
    }

    fn speed(&mut self, path: &str, velocity: &Velocity) {
        if let Velocity::Random(random) = velocity
            && random.max_speed < 0.0
        {
            self.add(format!("{path}.random.maxSpeed"), random.max_speed, "at least 0 m/s");
        }
    }

    fn lattice(&mut self, path: &str, lattice: &crate::Lattice) {
        let domain = &self.simulation.domain;
        let periodic = domain.faces.periodic();
        let origin = lattice.origin.unwrap_or(domain.min);
        let pitch = lattice_pitch(lattice);
        let guard = OVERLAP_GUARD_FRACTION * lattice.radius;
        for axis in 0..3 {
            let last = f64::from(lattice.counts[axis]) - 0.5;
            let [low, high] = [origin[axis] + 0.5 * pitch[axis], origin[axis] + last * pitch[axis]];
            let beyond = if periodic[axis] { high >= domain.max[axis] } else { high > domain.max[axis] };
            if low < domain.min[axis] || beyond {
                let name = AXES[axis];
                let found = format!("centres from {low} to {high} m in {name}");
                let expected =
                    format!("centres inside the domain, {} to {}", domain.min[axis], domain.max[axis]);
                self.add(path, found, expected);
            }
            let mut gap = if lattice.counts[axis] > 1 { pitch[axis] } else { f64::INFINITY };
            if periodic[axis] {
                gap = gap.min(domain.max[axis] - domain.min[axis] - (high - low));
            }
            let overlap = 2.0 * lattice.radius - gap;
            if overlap > guard {
                let found = format!("neighbours {gap} m apart in {}, an overlap of {overlap} m", AXES[axis]);
                self.add(path, found, format!("an overlap below the guard, {guard} m (0.3 of the radius)"));
            }
        }
    }

    fn random(&mut self, path: &str, random: &crate::Random) {
        let domain = &self.simulation.domain;
        let periodic = domain.faces.periodic();
        let mut volume = 1.0;
        for axis in 0..3 {
            let [low, high] = [random.min[axis], random.max[axis]];
            let whole = periodic[axis] && low == domain.min[axis] && high == domain.max[axis];
            volume *= high - low;
            if low >= high {
                self.add(format!("{path}.max[{axis}]"), high, format!("above min, {low}"));
                return;
            }
            if low < domain.min[axis] || high > domain.max[axis] {
                let found = format!("{low} to {high} in {}", AXES[axis]);
                let expected = format!("inside the domain, {} to {}", domain.min[axis], domain.max[axis]);
                self.add(path, found, expected);
            }
            if !whole && high - low < 2.0 * random.radius.max {
                let found = format!("a region {} m wide in {}", high - low, AXES[axis]);
                self.add(path, found, format!("room for a sphere of {} m diameter", 2.0 * random.radius.max));
            }
        }
        // The mean of r^3 for r even between a and b is (a + b)(a^2 + b^2)/4.
        let [a, b] = [random.radius.min, random.radius.max];
        let solid =
            random.count as f64 * (4.0 / 3.0) * std::f64::consts::PI * (a + b) * (a * a + b * b) / 4.0;
        if solid > MAX_RANDOM_FRACTION * volume {
            let found =
                format!("{} spheres that fill {:.0} % of the region", random.count, 100.0 * solid / volume);
            self.add(format!("{path}.count"), found, "at most about 30 %, as no room is found for more");
        }
    }

    fn periodic_sides(&mut self) {
        let simulation = self.simulation;
        let radii = simulation.particles.iter().filter_map(|source| match source {
            Source::Lattice(lattice) => Some(lattice.radius),
            Source::Random(random) => Some(random.radius.max),
            Source::File(_) => None,
        });
        let largest = radii.fold(0.0, f64::max);
        self.problems.extend(periodic_side_problems(simulation, largest));
    }

    fn time(&mut self) {
        if let TimeStep::Seconds(seconds) = self.simulation.time.step
            && !(seconds > 0.0 && seconds < 1e6)
        {
            self.add("time.step.seconds", seconds, "above 0 s");
        }
        match self.simulation.time.end {
            End::Steps(steps) if steps < 1 => self.add("time.end.steps", steps, "at least 1"),
            End::Steps(steps) if steps > 1_000_000_000_000 => {
                self.add("time.end.steps", steps, "at most 1e12")
            }
            End::Seconds(seconds) if !(seconds > 0.0 && seconds < 1e9) => {
                self.add("time.end.seconds", seconds, "above 0 s");
            }
            _ => {}
        }
        if let TangentialRate::PerSecond(rate) = self.simulation.contact.tangential_rate
            && !(0.0..1e15).contains(&rate)
        {
            self.add("contact.tangentialRate.perSecond", rate, "at least 0 1/s");
        }
        if let Damping::ConstantCoefficient(damping) = &self.simulation.contact.damping
            && damping.impact_speed <= 0.0
        {
            self.add("contact.damping.constantCoefficient.impactSpeed", damping.impact_speed, "above 0 m/s");
        }
    }
}

/// A particle must not meet two images of the same neighbour: sides below two list ranges on periodic axes.
pub(crate) fn periodic_side_problems(simulation: &Simulation, largest_radius: f64) -> Vec<Problem> {
    let range = 2.0 * largest_radius + simulation.skin_for(largest_radius);
    let domain = &simulation.domain;
    let mut problems = Vec::new();
    for (axis, name) in AXES.iter().enumerate() {
        let side = domain.max[axis] - domain.min[axis];
        if domain.faces.periodic()[axis] && side < 2.0 * range {
            let expected = format!("at least {} m: twice the largest diameter and skin", 2.0 * range);
            problems.push(Problem::new(
                format!("domain.max[{axis}]"),
                format!("a periodic side of {side} m in {name}"),
                expected,
            ));
        }
    }
    problems
}

fn unordered<'a>(first: &'a str, second: &'a str) -> (&'a str, &'a str) {
    if first <= second { (first, second) } else { (second, first) }
}

impl Simulation {
    /// Names of the materials of all walls, faces included.
    pub(crate) fn wall_materials(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.walls.iter().map(|wall| wall.material.as_str()).collect();
        if self.domain.faces.all().contains(&Face::Wall) {
            let first = self.materials.first().map(|material| material.name.as_str());
            names.extend(self.domain.wall_material.as_deref().or(first));
        }
        names
    }

    /// Skin [m] for a largest radius [m].
    pub(crate) fn skin_for(&self, largest_radius: f64) -> f64 {
        match self.neighbours.skin {
            Skin::Auto(_) => 0.1 * 2.0 * largest_radius,
            Skin::Metres(metres) => metres,
        }
    }
}
