//! Particles from lattices, random placement and files: the same on every machine, since only +, -, *, / and sqrt
//! are used on numbers that an own generator makes.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::problem::{shorten, unknown};
use crate::{FileSource, Lattice, Problem, Random, Simulation, Source, Velocity};

/// Text of particle files by the path that the simulation gives.
pub type Files = BTreeMap<String, String>;

/// Attempts to find room for one sphere.
const ATTEMPTS: u32 = 10_000;

/// Problems of one particle file reported at most.
const MAX_PROBLEMS: usize = 20;

/// A particle at the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seed {
    /// Number in the whole simulation, from 0.
    pub id: u64,
    /// Centre [m].
    pub position: [f64; 3],
    /// Radius [m].
    pub radius: f64,
    /// Velocity [m/s].
    pub velocity: [f64; 3],
    /// Angular velocity [rad/s].
    pub spin: [f64; 3],
    /// Index of the material.
    pub material: u16,
}

/// All particles of a simulation at the start. A lattice takes no memory and gives any range of ids at once; random
/// and file sources hold their particles.
#[derive(Clone, Debug)]
pub struct ParticleSource {
    blocks: Vec<Block>,
    region: ([f64; 3], [f64; 3]),
}

#[derive(Clone, Debug)]
struct Block {
    ids: Range<u64>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Lattice { lattice: Lattice, origin: [f64; 3], material: u16 },
    Placed(Vec<Seed>),
}

impl ParticleSource {
    /// The particles of a valid simulation.
    ///
    /// # Errors
    /// Problems of particle files, by line and column, and of random placement that finds no room.
    pub fn new(simulation: &Simulation, files: &Files) -> Result<Self, Vec<Problem>> {
        let mut source = Self { blocks: Vec::new(), region: ([0.0; 3], [0.0; 3]) };
        for (i, part) in simulation.particles.iter().enumerate() {
            let first = source.count();
            let material = simulation.material_index(part.material()).unwrap_or(0);
            let content = match part {
                Source::Lattice(lattice) => {
                    let origin = lattice.origin.unwrap_or(simulation.domain.min);
                    Content::Lattice { lattice: lattice.clone(), origin, material }
                }
                Source::Random(random) => Content::Placed(
                    place(simulation, random, material, &source, &format!("particles[{i}].random"))
                        .map_err(|problem| vec![problem])?,
                ),
                Source::File(file) => {
                    let Some(text) = files.get(&file.path) else {
                        let found = format!("no text for `{}`", shorten(&file.path));
                        return Err(vec![Problem::new(
                            format!("particles[{i}].file.path"),
                            found,
                            "a readable file",
                        )]);
                    };
                    Content::Placed(read(simulation, file, text, first)?)
                }
            };
            let count = match &content {
                Content::Lattice { lattice, .. } => lattice.counts.iter().map(|&n| n as u64).product(),
                Content::Placed(seeds) => seeds.len() as u64,
            };
            source.blocks.push(Block { ids: first..first + count, content });
        }
        source.region = source.bounds();
        Ok(source)
    }

    /// Number of particles.
    pub fn count(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.ids.end)
    }

    /// Memory that this takes [bytes], the same on every rank: all particles of a file or at random places, and next to
    /// nothing for those of a lattice.
    pub fn bytes(&self) -> u64 {
        let placed = |block: &Block| match &block.content {
            Content::Lattice { .. } => 0,
            Content::Placed(seeds) => std::mem::size_of_val(seeds.as_slice()) as u64,
        };
        self.blocks.iter().map(placed).sum()
    }

    /// The box that the sources fill [m]: a lattice its block of cells, others the bounds of their spheres.
    pub fn region(&self) -> ([f64; 3], [f64; 3]) {
        self.region
    }

    /// The particle `id`.
    ///
    /// # Panics
    /// If there is no such particle.
    pub fn seed(&self, id: u64) -> Seed {
        let block = self.blocks.partition_point(|block| block.ids.end <= id);
        self.blocks[block].seed(id)
    }

    /// The particles of a range of ids, in order.
    ///
    /// # Panics
    /// If the range goes beyond [`ParticleSource::count`].
    pub fn range(&self, ids: Range<u64>) -> impl Iterator<Item = Seed> + '_ {
        assert!(ids.end <= self.count(), "ids {ids:?} go beyond {}", self.count());
        self.blocks.iter().flat_map(move |block| {
            let (start, end) = (block.ids.start.max(ids.start), block.ids.end.min(ids.end));
            (start..end).map(|id| block.seed(id))
        })
    }

    fn bounds(&self) -> ([f64; 3], [f64; 3]) {
        let (mut min, mut max) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
        let mut grow = |low: [f64; 3], high: [f64; 3]| {
            for axis in 0..3 {
                min[axis] = min[axis].min(low[axis]);
                max[axis] = max[axis].max(high[axis]);
            }
        };
        for block in &self.blocks {
            match &block.content {
                Content::Lattice { lattice, origin, .. } => {
                    let far = |k: usize| match (lattice.fit, lattice.spacing) {
                        (Some(fit), _) => fit[k],
                        (None, spacing) => f64::from(lattice.counts[k]) * spacing.unwrap_or(0.0),
                    };
                    grow(*origin, [0, 1, 2].map(|k| origin[k] + far(k)));
                }
                Content::Placed(seeds) => {
                    for seed in seeds {
                        grow(seed.position.map(|x| x - seed.radius), seed.position.map(|x| x + seed.radius));
                    }
                }
            }
        }
        (min, max)
    }
}

impl Block {
    fn seed(&self, id: u64) -> Seed {
        let index = id - self.ids.start;
        match &self.content {
            Content::Placed(seeds) => seeds[index as usize],
            Content::Lattice { lattice, origin, material } => {
                let [nx, ny, _] = lattice.counts.map(|n| n as u64);
                let site = [index % nx, index / nx % ny, index / (nx * ny)];
                Seed {
                    id,
                    position: [0, 1, 2].map(|k| {
                        let i = site[k] as f64 + 0.5;
                        match (lattice.fit, lattice.spacing) {
                            (Some(fit), _) => origin[k] + i * fit[k] / f64::from(lattice.counts[k]),
                            (None, spacing) => origin[k] + i * spacing.unwrap_or(0.0),
                        }
                    }),
                    radius: lattice.radius,
                    velocity: start_velocity(&lattice.velocity, id),
                    spin: [0.0; 3],
                    material: *material,
                }
            }
        }
    }
}

/// Distance of neighbouring sites per axis [m].
pub(crate) fn lattice_pitch(lattice: &Lattice) -> [f64; 3] {
    match (lattice.fit, lattice.spacing) {
        (Some(fit), _) => [0, 1, 2].map(|k| fit[k] / f64::from(lattice.counts[k].max(1))),
        (None, spacing) => [spacing.unwrap_or(0.0); 3],
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Even in [0, 1): the upper 53 bits as a fraction.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        // Rounding may reach `high`; callers accept it.
        low + self.unit() * (high - low)
    }
}

fn start_velocity(velocity: &Velocity, id: u64) -> [f64; 3] {
    match velocity {
        Velocity::Uniform(uniform) => uniform.velocity,
        Velocity::Random(random) => {
            // A stream of its own for every id, so that any id can be made alone.
            let key = SplitMix64(random.seed as u64).next();
            let mut numbers = SplitMix64(SplitMix64(key ^ id).next());
            let speed = random.max_speed * numbers.unit();
            // A direction even over the sphere: a point of the cube that lies in the ball (von Neumann 1951).
            loop {
                let [x, y, z] = [(); 3].map(|()| numbers.between(-1.0, 1.0));
                let square = x * x + y * y + z * z;
                if square <= 1.0 && square > 1e-4 {
                    let scale = speed / square.sqrt();
                    return [x * scale, y * scale, z * scale];
                }
            }
        }
    }
}

/// A uniform grid over the domain that finds spheres near a point.
struct Grid<'a> {
    simulation: &'a Simulation,
    periodic: [bool; 3],
    cells: [usize; 3],
    size: [f64; 3],
    /// Last sphere of each cell, and for each sphere the one before it; `u32::MAX` for none.
    head: Vec<u32>,
    before: Vec<u32>,
    spheres: Vec<([f64; 3], f64)>,
}

impl<'a> Grid<'a> {
    fn new(simulation: &'a Simulation, largest_radius: f64, expected: usize) -> Self {
        let domain = &simulation.domain;
        let sides = [0, 1, 2].map(|k| domain.max[k] - domain.min[k]);
        // Cells at least a diameter wide, and not many more than spheres.
        let mut width = 2.0 * largest_radius;
        let count = |width: f64| sides.map(|side| (side / width).floor().max(1.0));
        while count(width).iter().product::<f64>() > (4 * expected).max(4096) as f64 {
            width *= 1.25;
        }
        let cells = count(width).map(|n| n as usize);
        Self {
            simulation,
            periodic: domain.faces.periodic(),
            cells,
            size: [0, 1, 2].map(|k| sides[k] / cells[k] as f64),
            head: vec![u32::MAX; cells.iter().product()],
            before: Vec::with_capacity(expected),
            spheres: Vec::with_capacity(expected),
        }
    }

    fn cell(&self, position: [f64; 3]) -> [usize; 3] {
        [0, 1, 2].map(|k| {
            let offset = (position[k] - self.simulation.domain.min[k]) / self.size[k];
            (offset.max(0.0) as usize).min(self.cells[k] - 1)
        })
    }

    fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.cells[1] + y) * self.cells[0] + x
    }

    fn insert(&mut self, position: [f64; 3], radius: f64) {
        let cell = self.index(self.cell(position));
        self.before.push(self.head[cell]);
        self.head[cell] = self.spheres.len() as u32;
        self.spheres.push((position, radius));
    }

    fn is_free(&self, position: [f64; 3], radius: f64) -> bool {
        let centre = self.cell(position);
        let axis = |k: usize| self.nearby(k, centre[k]);
        let (xs, ys, zs) = (axis(0), axis(1), axis(2));
        for &z in zs.iter().flatten() {
            for &y in ys.iter().flatten() {
                for &x in xs.iter().flatten() {
                    let mut at = self.head[self.index([x, y, z])];
                    while at != u32::MAX {
                        let (other, other_radius) = self.spheres[at as usize];
                        let reach = radius + other_radius;
                        if self.square_distance(position, other) < reach * reach {
                            return false;
                        }
                        at = self.before[at as usize];
                    }
                }
            }
        }
        true
    }

    /// The cell and its neighbours along an axis, each once.
    fn nearby(&self, axis: usize, cell: usize) -> [Option<usize>; 3] {
        let n = self.cells[axis];
        let wrap = self.periodic[axis] && n > 2;
        let below = if cell > 0 { Some(cell - 1) } else { wrap.then_some(n - 1) };
        let above = if cell + 1 < n { Some(cell + 1) } else { wrap.then_some(0) };
        [below, Some(cell), above]
    }

    fn square_distance(&self, a: [f64; 3], b: [f64; 3]) -> f64 {
        let domain = &self.simulation.domain;
        let mut sum = 0.0;
        for k in 0..3 {
            let mut way = (a[k] - b[k]).abs();
            if self.periodic[k] {
                way = way.min(domain.max[k] - domain.min[k] - way);
            }
            sum += way * way;
        }
        sum
    }
}

/// Places spheres one after the other at random, where no earlier one (of this source or those before it) is.
fn place(
    simulation: &Simulation,
    random: &Random,
    material: u16,
    earlier: &ParticleSource,
    path: &str,
) -> Result<Vec<Seed>, Problem> {
    let domain = &simulation.domain;
    let periodic = domain.faces.periodic();
    let first = earlier.count();
    let expected = (first + random.count as u64) as usize;
    let largest = earlier.range(0..first).map(|seed| seed.radius).fold(random.radius.max, f64::max);
    let mut grid = Grid::new(simulation, largest, expected);
    for seed in earlier.range(0..first) {
        grid.insert(seed.position, seed.radius);
    }
    let mut numbers = SplitMix64(random.seed as u64);
    let mut seeds = Vec::with_capacity(random.count as usize);
    for id in first..first + random.count as u64 {
        let radius = numbers.between(random.radius.min, random.radius.max).min(random.radius.max);
        let bounds = [0, 1, 2].map(|k| {
            let whole = periodic[k] && random.min[k] == domain.min[k] && random.max[k] == domain.max[k];
            let margin = if whole { 0.0 } else { radius };
            (random.min[k] + margin, random.max[k] - margin, whole)
        });
        let position = (0..ATTEMPTS).find_map(|_| {
            let position = bounds.map(|(low, high, _)| numbers.between(low, high));
            // A periodic coordinate lies below the upper face.
            let inside = bounds.iter().zip(position).all(|(&(_, high, whole), x)| !whole || x < high);
            (inside && grid.is_free(position, radius)).then_some(position)
        });
        let Some(position) = position else {
            let found = format!("{} spheres, of which only {} found room", random.count, seeds.len());
            return Err(Problem::new(
                format!("{path}.count"),
                found,
                "fewer or smaller spheres, or a larger region: random placement fills 30 % with ease, never 40 %",
            ));
        };
        grid.insert(position, radius);
        let velocity = start_velocity(&random.velocity, id);
        seeds.push(Seed { id, position, radius, velocity, spin: [0.0; 3], material });
    }
    Ok(seeds)
}

/// Names of the columns of a particle file; the first four are needed.
const COLUMNS: [&str; 11] = ["x", "y", "z", "radius", "vx", "vy", "vz", "wx", "wy", "wz", "material"];
const MATERIAL: usize = 10;

/// Reads a particle file.
fn read(
    simulation: &Simulation,
    file: &FileSource,
    text: &str,
    first: u64,
) -> Result<Vec<Seed>, Vec<Problem>> {
    let name = shorten(&file.path);
    let default = simulation.material_index(&file.material).unwrap_or(0);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim()));
    let mut lines = lines.by_ref().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let Some((number, header)) = lines.next() else {
        return Err(vec![Problem::new(
            name,
            "nothing",
            "a first line x,y,z,radius and one line per particle",
        )]);
    };
    let columns = read_header(header, &format!("{name}, line {number}"))?;
    let mut problems = Vec::new();
    let mut seeds: Vec<Seed> = Vec::new();
    for (number, line) in lines {
        if problems.len() >= MAX_PROBLEMS {
            break;
        }
        if first + seeds.len() as u64 >= crate::validate::MAX_PARTICLES {
            let expected = format!("at most {} particles", crate::validate::MAX_PARTICLES);
            problems.push(Problem::new(format!("{name}, line {number}"), "one more particle", expected));
            break;
        }
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != columns.len() {
            let expected = format!("{}, as in the first line", columns.len());
            problems.push(Problem::new(
                format!("{name}, line {number}"),
                format!("{} values", cells.len()),
                expected,
            ));
            continue;
        }
        let before = problems.len();
        let id = first + seeds.len() as u64;
        let mut values = [0.0; MATERIAL];
        let mut material = default;
        for (&column, cell) in columns.iter().zip(cells) {
            let place = || format!("{name}, line {number}, column {}", COLUMNS[column]);
            if column == MATERIAL {
                match simulation.material_index(cell) {
                    Some(index) => material = index,
                    None => {
                        let known: Vec<&String> = simulation.materials.iter().map(|m| &m.name).collect();
                        problems.push(unknown(place(), "material", cell, &known));
                    }
                }
                continue;
            }
            match cell.parse::<f64>() {
                Ok(value) if value.is_finite() && value.abs() <= 1e6 => values[column] = value,
                _ => problems.push(Problem::new(
                    place(),
                    format!("`{}`", shorten(cell)),
                    "a number, at most 1e6",
                )),
            }
        }
        if problems.len() > before {
            continue;
        }
        let [x, y, z, radius, vx, vy, vz, wx, wy, wz] = values;
        if !(1e-9..=1e3).contains(&radius) {
            let place = format!("{name}, line {number}, column radius");
            problems.push(Problem::new(place, radius, "1e-9 to 1000 m"));
        }
        problems.extend(outside(simulation, [x, y, z], &format!("{name}, line {number}")));
        let (position, velocity, spin) = ([x, y, z], [vx, vy, vz], [wx, wy, wz]);
        seeds.push(Seed { id, position, radius, velocity, spin, material });
    }
    if seeds.is_empty() && problems.is_empty() {
        problems.push(Problem::new(name, "no particles", "at least one line below the first"));
    }
    problems.extend(missing_pairs(simulation, &seeds));
    if problems.is_empty() { Ok(seeds) } else { Err(problems) }
}

/// For each column of the file, its place in [`COLUMNS`].
fn read_header(header: &str, place: &str) -> Result<Vec<usize>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut columns = Vec::new();
    for name in header.split(',').map(str::trim).take(64) {
        match COLUMNS.iter().position(|&column| column == name) {
            Some(column) if columns.contains(&column) => {
                problems.push(Problem::new(place, format!("column {name} twice"), "each column once"));
            }
            Some(column) => columns.push(column),
            None => problems.push(unknown(place, "column", name, &COLUMNS)),
        }
    }
    for (column, name) in COLUMNS.iter().enumerate().take(4) {
        if !columns.contains(&column) && problems.is_empty() {
            problems.push(Problem::new(place, format!("no column {name}"), "columns x, y, z and radius"));
        }
    }
    if problems.is_empty() { Ok(columns) } else { Err(problems) }
}

fn outside(simulation: &Simulation, position: [f64; 3], place: &str) -> Option<Problem> {
    let domain = &simulation.domain;
    let periodic = domain.faces.periodic();
    let axis = (0..3).find(|&k| {
        let x = position[k];
        x < domain.min[k] || if periodic[k] { x >= domain.max[k] } else { x > domain.max[k] }
    })?;
    let [low, high] = [domain.min[axis], domain.max[axis]];
    let path = format!("{place}, column {}", COLUMNS[axis]);
    Some(Problem::new(path, position[axis], format!("inside the domain, {low} to {high} m")))
}

/// The pairs that the materials of a file's particles need.
fn missing_pairs(simulation: &Simulation, seeds: &[Seed]) -> Vec<Problem> {
    let name = |index: usize| simulation.materials[index].name.as_str();
    let mut used = vec![false; simulation.materials.len()];
    for seed in seeds {
        used[usize::from(seed.material)] = true;
    }
    let mut can_meet = used.clone();
    for material in simulation.particles.iter().map(Source::material).chain(simulation.wall_materials()) {
        if let Some(index) = simulation.material_index(material) {
            can_meet[usize::from(index)] = true;
        }
    }
    let mut problems = Vec::new();
    for first in (0..used.len()).filter(|&i| used[i]) {
        for second in (0..used.len()).filter(|&j| can_meet[j] && !(used[j] && j < first)) {
            let [a, b] = [name(first), name(second)];
            let given = simulation.pairs.iter().any(|pair| {
                let [c, d] = &pair.materials;
                (c == a && d == b) || (c == b && d == a)
            });
            if !given {
                let expected = format!("an entry for the materials {a} and {b}, which can meet");
                problems.push(Problem::new("pairs", "none", expected));
            }
        }
    }
    problems
}
