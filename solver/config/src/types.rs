//! The types of the simulation file. Doc comments here are what `kubectl explain` prints, so each says unit,
//! default and consequence.
//!
//! The same types sit in the CRD, which fixes their shape: unions are externally tagged enums of structs, vectors
//! are `[f64; 3]`, integers are signed, an optional field is left out and never `null`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name of a material or wall.
pub const NAME_PATTERN: &str = "^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$";

/// A granular simulation by the discrete element method: spheres in a box, SI units throughout. Says what is
/// simulated and how often results are written; where it runs (ranks, nodes, volumes) belongs to the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = crate::schema::structural)]
pub struct Simulation {
    /// The box that holds the particles, and what its six faces do.
    pub domain: Domain,
    /// Acceleration of gravity [m/s2]. Default: [0, 0, -9.81].
    #[serde(default = "standard_gravity")]
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub gravity: [f64; 3],
    /// The materials that particles and walls are made of; names are unique.
    #[schemars(length(min = 1, max = 32))]
    pub materials: Vec<Material>,
    /// How two materials collide. Every pair of materials that can meet needs an entry; the order inside a pair does
    /// not matter.
    #[schemars(length(min = 1, max = 528))]
    pub pairs: Vec<Pair>,
    /// The contact model. Default: constant restitution, no attraction.
    #[serde(default)]
    pub contact: Contact,
    /// Where the particles come from. Ids run on through the list, starting at 0.
    #[schemars(length(min = 1, max = 64))]
    pub particles: Vec<Source>,
    /// Plane walls besides the domain's own faces. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub walls: Vec<Wall>,
    /// Length of a time step, and when the run ends.
    pub time: Time,
    /// How far beyond its own box a rank knows the particles of others (the ghosts), in multiples of the largest
    /// diameter: Skin and 2R one diameter, 4R two, 6R three, each plus the skin. More costs memory and messages and
    /// changes no result. Default: Skin.
    #[serde(default)]
    pub ghost_layer: GhostLayer,
    /// The neighbour list. Affects speed only, never the result.
    #[serde(default)]
    pub neighbours: Neighbours,
    /// Moving the boundaries between ranks while the run goes on. Affects speed only, never the result.
    #[serde(default)]
    pub balance: Balance,
    /// What is written for people and programs that look at the particles.
    #[serde(default)]
    pub outputs: Outputs,
    /// Checkpoints, from which a broken or suspended run goes on. Default: every 1,000 steps, the last 2 kept.
    #[serde(default)]
    pub checkpoint: Checkpoint,
    /// Put a barrier before and after the exchange of every step, so that waiting for slower ranks (Wait1) and for
    /// their messages (Wait2) is timed separately. Slows the run. Default: false.
    #[serde(default)]
    pub profile: bool,
}

/// The box that holds the particles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Domain {
    /// Lower corner [m].
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub min: [f64; 3],
    /// Upper corner [m]; above the lower one on every axis.
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub max: [f64; 3],
    /// What each face does. Default: all Wall.
    #[serde(default)]
    pub faces: Faces,
    /// Material of the faces that are walls. Default: the first material.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub wall_material: Option<String>,
}

/// What the six faces of the domain do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Faces {
    /// Lower face in x: Open, Wall or Periodic (then xMax too). Default: Wall.
    #[serde(default)]
    pub x_min: Face,
    /// Upper face in x: Open, Wall or Periodic (then xMin too). Default: Wall.
    #[serde(default)]
    pub x_max: Face,
    /// Lower face in y: Open, Wall or Periodic (then yMax too). Default: Wall.
    #[serde(default)]
    pub y_min: Face,
    /// Upper face in y: Open, Wall or Periodic (then yMin too). Default: Wall.
    #[serde(default)]
    pub y_max: Face,
    /// Lower face in z: Open, Wall or Periodic (then zMax too). Default: Wall.
    #[serde(default)]
    pub z_min: Face,
    /// Upper face in z: Open, Wall or Periodic (then zMin too). Default: Wall.
    #[serde(default)]
    pub z_max: Face,
}

/// A face of the domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Face {
    /// Nothing is there: particles go on beyond it.
    Open,
    /// A plane wall at rest.
    #[default]
    Wall,
    /// Joined to the opposite face: what leaves here enters there.
    Periodic,
}

/// A material.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Material {
    /// Name by which pairs, particles and walls refer to it.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub name: String,
    /// Density [kg/m3].
    #[schemars(range(min = 1e-6, max = 1e9))]
    pub density: f64,
    /// Young's modulus [Pa]. The time step falls with its square root, so packings are often run with less than the
    /// real value.
    #[schemars(range(min = 1e-3, max = 1e15))]
    pub youngs_modulus: f64,
    /// Poisson's ratio, from 0 to 0.5.
    #[schemars(range(min = 0.0, max = 0.5))]
    pub poisson_ratio: f64,
}

/// How two materials collide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pair {
    /// The two materials, in any order; the same name twice for a material with itself.
    #[schemars(inner(length(min = 1, max = 63), regex(pattern = NAME_PATTERN)))]
    pub materials: [String; 2],
    /// Coefficient of restitution e: speed after over speed before a head-on impact, from 0.01 (nearly all energy
    /// lost) to 1 (none lost). You get the value you ask for; see contact.damping for the speeds at which.
    #[schemars(range(min = 0.01, max = 1.0))]
    pub restitution: f64,
    /// Coefficient of Coulomb friction; 0 for smooth contacts.
    #[schemars(range(min = 0.0, max = 10.0))]
    pub friction: f64,
}

/// The contact model: Hertz's elastic normal force, viscous damping, and Coulomb friction without memory, which
/// opposes the sliding of the moment (it slows a slope, but cannot hold it for ever).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Contact {
    /// What the damping keeps constant. Default: constantRestitution.
    #[serde(default)]
    pub damping: Damping,
    /// Cut the normal force off at zero where damping would make it attractive at the end of an impact. The
    /// restitution asked for holds either way. Default: true.
    #[serde(default = "yes")]
    pub clip: bool,
    /// How stiffly friction follows slow sliding, below the Coulomb limit. Default: auto.
    #[serde(default)]
    pub tangential_rate: TangentialRate,
}

/// What the normal damping keeps constant. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Damping {
    /// The restitution is the same at every impact speed (Tsuji, Tanaka and Ishida 1992).
    ConstantRestitution(ConstantRestitution),
    /// The damping coefficient is the same at every overlap, so that restitution rises with speed; the pair's value
    /// holds at the impact speed given here.
    ConstantCoefficient(ConstantCoefficient),
}

/// No parameters: write `{}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConstantRestitution {}

/// Damping with a constant coefficient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConstantCoefficient {
    /// Speed of approach [m/s] at which each pair's restitution holds.
    #[schemars(range(min = 1e-9, max = 1e4))]
    pub impact_speed: f64,
}

/// Tangential damping coefficient over the pair's effective mass [1/s]. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum TangentialRate {
    /// (2/7) 0.1 / time step: a contact point loses a tenth of its slip in a step, the stiffest that stays accurate.
    Auto(TangentialRateAuto),
    /// A given rate [1/s].
    PerSecond(f64),
}

/// No parameters: write `{}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TangentialRateAuto {}

/// Where particles come from. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Source {
    /// Equal spheres on a simple cubic lattice.
    Lattice(Lattice),
    /// Spheres at random places without overlap, the same ones for the same seed on every machine.
    Random(Random),
    /// Spheres from a table in a file.
    File(FileSource),
}

/// Equal spheres on a lattice. Site i on an axis has its centre at origin + (i + 0.5) * spacing; ids run along x
/// first, then y, then z. Exactly one of spacing and fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lattice {
    /// Number of sites in x, y and z.
    #[schemars(inner(range(min = 1, max = 1_000_000)))]
    pub counts: [i32; 3],
    /// Distance of neighbouring sites [m]. Less than a diameter makes the lattice start squeezed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 1e-9, max = 1e6))]
    pub spacing: Option<f64>,
    /// Sides [m] of the block that the lattice fills, in place of spacing: centres at origin + (i + 0.5) * fit / counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "[f64; 3]", inner(range(min = 1e-9, max = 1e6)))]
    pub fit: Option<[f64; 3]>,
    /// Lower corner of the block [m]. Default: domain.min.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "[f64; 3]", inner(range(min = -1e6, max = 1e6)))]
    pub origin: Option<[f64; 3]>,
    /// Radius of the spheres [m].
    #[schemars(range(min = 1e-9, max = 1e3))]
    pub radius: f64,
    /// Name of their material.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub material: String,
    /// Velocities at the start. Default: at rest.
    #[serde(default)]
    pub velocity: Velocity,
}

/// Spheres at random places, none overlapping another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Random {
    /// Number of spheres. Beyond about 30 % of the region's volume no room may be found, which is reported before the
    /// run.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub count: i64,
    /// Seed of the random numbers.
    #[schemars(range(min = 0))]
    pub seed: i64,
    /// Lower corner of the region that holds the spheres whole [m]; across a periodic face they may stick out.
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub min: [f64; 3],
    /// Upper corner of that region [m].
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub max: [f64; 3],
    /// Radii, drawn evenly between two bounds.
    pub radius: RadiusRange,
    /// Name of their material.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub material: String,
    /// Velocities at the start. Default: at rest.
    #[serde(default)]
    pub velocity: Velocity,
}

/// Bounds of radii.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RadiusRange {
    /// Smallest radius [m].
    #[schemars(range(min = 1e-9, max = 1e3))]
    pub min: f64,
    /// Largest radius [m]; the same as min for equal spheres.
    #[schemars(range(min = 1e-9, max = 1e3))]
    pub max: f64,
}

/// Spheres from a file of comma-separated values. Its first line names the columns: x, y, z, radius [m], and
/// optionally vx, vy, vz [m/s], wx, wy, wz [rad/s] and material. Empty lines and lines that begin with # are skipped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileSource {
    /// Path of the file below the job's input folder.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    /// Name of the material of spheres for which the file names none.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub material: String,
}

/// Velocities at the start. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Velocity {
    /// The same velocity for all.
    Uniform(UniformVelocity),
    /// A velocity for each from seed and id: speed evenly between 0 and maxSpeed, direction evenly over the sphere.
    Random(RandomVelocity),
}

/// The same velocity for all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UniformVelocity {
    /// Velocity [m/s].
    #[schemars(inner(range(min = -1e4, max = 1e4)))]
    pub velocity: [f64; 3],
}

/// Random velocities.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomVelocity {
    /// Largest speed [m/s].
    #[schemars(range(min = 0.0, max = 1e4))]
    pub max_speed: f64,
    /// Seed of the random numbers.
    #[schemars(range(min = 0))]
    pub seed: i64,
}

/// A plane wall at rest, without end: particles are on the side that its normal points to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wall {
    /// Name in reports; unique, and none of xMin, xMax, yMin, yMax, zMin, zMax.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub name: String,
    /// A point of the plane [m].
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub point: [f64; 3],
    /// Direction that points away from the wall into the particles; of any length but zero.
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub normal: [f64; 3],
    /// Name of its material.
    #[schemars(length(min = 1, max = 63), regex(pattern = NAME_PATTERN))]
    pub material: String,
}

/// Length of a time step, and when the run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Time {
    /// Length of a time step. Default: auto.
    #[serde(default)]
    pub step: TimeStep,
    /// When the run ends. May be changed for a run that goes on from a checkpoint.
    pub end: End,
}

/// Length of a time step. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum TimeStep {
    /// A fraction of the smallest limit that the particles, materials and speeds set.
    Auto(AutoStep),
    /// A given length [s]. Refused above the limits.
    Seconds(f64),
}

/// A time step from the limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AutoStep {
    /// Fraction of the smallest limit, from 0.001 to 0.5. Default: 0.1.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.001, max = 0.5))]
    pub fraction: f64,
}

/// When the run ends. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum End {
    /// After so many steps.
    Steps(i64),
    /// At the first step at or after this time [s].
    Seconds(f64),
}

/// Thickness of the ghost layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GhostLayer {
    /// One largest diameter and the skin: what the neighbour list needs.
    #[default]
    Skin,
    /// One largest diameter and the skin.
    #[serde(rename = "2R")]
    TwoRadii,
    /// Two largest diameters and the skin.
    #[serde(rename = "4R")]
    FourRadii,
    /// Three largest diameters and the skin.
    #[serde(rename = "6R")]
    SixRadii,
}

/// The neighbour list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Neighbours {
    /// Distance beyond contact up to which pairs are listed. The list is rebuilt when a particle has moved half of
    /// it: a thick skin makes longer lists, a thin one more rebuilds. Default: auto.
    #[serde(default)]
    pub skin: Skin,
}

/// Thickness of the skin. Exactly one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Skin {
    /// A tenth of the largest diameter.
    Auto(SkinAuto),
    /// A given thickness [m].
    Metres(f64),
}

/// No parameters: write `{}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SkinAuto {}

/// Moving the boundaries between ranks while the run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Balance {
    /// Whether boundaries move at all. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Steps between looks at the imbalance. Default: 200.
    #[serde(default = "two_hundred")]
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub every_steps: i64,
    /// Imbalance (largest load over mean load, less 1) above which boundaries move, if the gain pays for the move.
    /// Default: 0.1.
    #[serde(default = "tenth")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub threshold: f64,
}

/// What is written for people and programs that look at the particles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outputs {
    /// Steps between outputs; 0 writes the last step only. Default: 0.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub every_steps: i64,
    /// Write VTU files and a PVD collection, which ParaView opens. Default: true.
    #[serde(default = "yes")]
    pub vtu: bool,
    /// Write LAMMPS text dumps, which OVITO opens. Default: false.
    #[serde(default)]
    pub dump: bool,
    /// The picture (PNG) of the last step.
    #[serde(default)]
    pub picture: Picture,
}

/// The picture of the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Picture {
    /// What the colour of a particle shows: Rank, Speed, or None for no picture. Default: Rank.
    #[serde(default)]
    pub colour: Colour,
}

/// What the colour of a particle shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Colour {
    /// The rank that owns it.
    #[default]
    Rank,
    /// Its speed.
    Speed,
    /// No picture is drawn.
    None,
}

/// Checkpoints. A period may also stand in the job; the two must agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0 writes none but on a stop request. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0))]
    pub every_steps: Option<i64>,
    /// Number of complete checkpoints kept. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32", range(min = 1, max = 1000))]
    pub keep: Option<i32>,
}

impl Checkpoint {
    /// Steps between checkpoints when neither file nor job says.
    pub const EVERY_STEPS: i64 = 1000;
    /// Complete checkpoints kept when neither file nor job says.
    pub const KEEP: i32 = 2;
}

impl Source {
    /// Name of the material of its particles (of a file: for those that name none).
    pub fn material(&self) -> &str {
        match self {
            Source::Lattice(lattice) => &lattice.material,
            Source::Random(random) => &random.material,
            Source::File(file) => &file.material,
        }
    }

    /// Number of its particles; `None` for a file, which has to be read first.
    pub fn count(&self) -> Option<u64> {
        match self {
            Source::Lattice(lattice) => {
                Some(lattice.counts.iter().map(|&n| n.max(0) as u64).fold(1, u64::saturating_mul))
            }
            Source::Random(random) => Some(random.count.max(0) as u64),
            Source::File(_) => None,
        }
    }
}

impl GhostLayer {
    /// Number of largest diameters in the thickness.
    pub fn diameters(self) -> u32 {
        match self {
            GhostLayer::Skin | GhostLayer::TwoRadii => 1,
            GhostLayer::FourRadii => 2,
            GhostLayer::SixRadii => 3,
        }
    }
}

impl Faces {
    /// Names of the six faces, in the order of [`Faces::all`].
    pub const NAMES: [&'static str; 6] = ["xMin", "xMax", "yMin", "yMax", "zMin", "zMax"];

    /// The six faces: lower and upper in x, in y, in z.
    pub fn all(&self) -> [Face; 6] {
        [self.x_min, self.x_max, self.y_min, self.y_max, self.z_min, self.z_max]
    }

    /// Per axis, whether both faces are periodic.
    pub fn periodic(&self) -> [bool; 3] {
        let all = self.all();
        [0, 1, 2].map(|axis| all[2 * axis] == Face::Periodic && all[2 * axis + 1] == Face::Periodic)
    }
}

impl Default for Contact {
    fn default() -> Self {
        Self { damping: Damping::default(), clip: true, tangential_rate: TangentialRate::default() }
    }
}

impl Default for Damping {
    fn default() -> Self {
        Self::ConstantRestitution(ConstantRestitution {})
    }
}

impl Default for TangentialRate {
    fn default() -> Self {
        Self::Auto(TangentialRateAuto {})
    }
}

impl Default for Velocity {
    fn default() -> Self {
        Self::Uniform(UniformVelocity { velocity: [0.0; 3] })
    }
}

impl Default for TimeStep {
    fn default() -> Self {
        Self::Auto(AutoStep { fraction: 0.1 })
    }
}

impl Default for Skin {
    fn default() -> Self {
        Self::Auto(SkinAuto {})
    }
}

impl Default for Balance {
    fn default() -> Self {
        Self { enabled: true, every_steps: 200, threshold: 0.1 }
    }
}

impl Default for Outputs {
    fn default() -> Self {
        Self { every_steps: 0, vtu: true, dump: false, picture: Picture::default() }
    }
}

fn standard_gravity() -> [f64; 3] {
    [0.0, 0.0, -9.81]
}

fn yes() -> bool {
    true
}

fn tenth() -> f64 {
    0.1
}

fn two_hundred() -> i64 {
    200
}
