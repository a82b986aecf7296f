//! From the simulation file to what the time loop needs.

use dem_config::{Prepared, Seed, prepare};
use dem_core::{
    ContactModel, Damping, Kernel, Material, MaterialTable, Model, PairProperties, Particles, Periodic,
    Quanta, Sphere, Wall,
};
use dem_decomp::Box3;

use crate::args::KernelChoice;
use crate::failure::Failure;
use crate::job::Job;
use crate::layout::Space;
use crate::summary::ExpectedRestitution;

/// Speeds [m/s] at which the expected restitution is told when it depends on speed, as multiples of the stated one.
const SPEEDS: [f64; 3] = [0.1, 1.0, 10.0];

/// What a run never changes.
pub struct Setup {
    /// The physics.
    pub model: Model,
    /// The geometry of decompositions.
    pub space: Space,
    /// Number of particles.
    pub particles: u64,
    /// Last step.
    pub end_step: u64,
    /// Steps between checkpoints, 0 for none.
    pub checkpoint_every: u64,
    /// Complete checkpoints kept.
    pub checkpoint_keep: usize,
    /// Hash of the part of the simulation file that must not change once a run has started, and of its particle files.
    pub fixed: blake3::Hash,
    prepared: Prepared,
}

/// The physics of a simulation.
///
/// # Errors
/// What is wrong with its materials or radii.
pub fn model(simulation: &dem_config::Simulation, prepared: &Prepared) -> Result<Model, String> {
    let materials: Vec<Material> = simulation
        .materials
        .iter()
        .map(|m| Material {
            density: m.density,
            youngs_modulus: m.youngs_modulus,
            poisson_ratio: m.poisson_ratio,
        })
        .collect();
    let pairs: Vec<PairProperties> = prepared
        .pairs
        .iter()
        .map(|p| PairProperties { materials: p.materials, restitution: p.restitution, friction: p.friction })
        .collect();
    let damping = match simulation.contact.damping.impact_speed() {
        None => Damping::ConstantRestitution,
        Some(impact_speed) => Damping::ConstantCoefficient { impact_speed },
    };
    let contact =
        ContactModel { damping, clip: simulation.contact.clip, tangential_rate: prepared.tangential_rate };
    let materials = MaterialTable::new(&materials, &pairs, contact).map_err(|e| e.to_string())?;
    let quanta = Quanta::new(prepared.guard_force, prepared.rmin, prepared.rmax, materials.max_friction())
        .map_err(|e| e.to_string())?;
    let walls =
        prepared.walls.iter().map(|w| Wall { point: w.point, normal: w.normal, material: w.material });
    Ok(Model {
        dt: prepared.dt,
        gravity: simulation.gravity,
        periodic: Periodic {
            min: simulation.domain.min,
            max: simulation.domain.max,
            axes: prepared.periodic,
        },
        materials,
        walls: walls.collect(),
        quanta,
        rounding: true,
        overlap_limit: prepared.overlap_limit,
        skin: prepared.skin,
        max_radius: prepared.rmax,
        kernel: Kernel::detect(),
    })
}

/// The restitution to expect of each given pair of materials, at several speeds where it depends on speed.
pub fn expected_restitution(
    simulation: &dem_config::Simulation,
    prepared: &Prepared,
    materials: &MaterialTable,
) -> Vec<ExpectedRestitution> {
    let speeds = match simulation.contact.damping.impact_speed() {
        None => vec![1.0],
        Some(speed) => SPEEDS.iter().map(|factor| factor * speed).collect(),
    };
    let given = prepared.pairs.iter().filter(|pair| pair.given);
    given
        .flat_map(|pair| {
            let (a, b) = pair.materials;
            let names = [a, b].map(|m| prepared.materials[usize::from(m)].clone());
            speeds.iter().map(move |&speed| ExpectedRestitution {
                materials: names.clone(),
                speed,
                restitution: materials.expected_restitution(a, b, speed),
            })
        })
        .collect()
}

impl Setup {
    /// Prepares a job; the same on every rank.
    ///
    /// # Errors
    /// Problems of the simulation, one a line, and a kernel that this processor does not have.
    pub fn new(job: &Job) -> Result<Self, Failure> {
        let prepared = prepare(&job.simulation, &job.particle_files).map_err(|problems| {
            Failure::Input(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        })?;
        let mut model = model(&job.simulation, &prepared).map_err(Failure::Input)?;
        model.rounding = job.rounding;
        let (name, kernel) = match job.kernel {
            KernelChoice::Auto => ("auto", Some(model.kernel)),
            KernelChoice::Portable => ("portable", Some(Kernel::PORTABLE)),
            KernelChoice::Avx2 => ("avx2", Kernel::avx2()),
            KernelChoice::Avx512 => ("avx512", Kernel::avx512()),
        };
        model.kernel = kernel
            .ok_or_else(|| Failure::Input(format!("--kernel {name}: this processor does not have it")))?;

        let mut fixed = blake3::Hasher::new();
        fixed.update(job.simulation.fixed_part().as_bytes());
        for (path, text) in &job.particle_files {
            fixed.update(path.as_bytes()).update(&[0]).update(blake3::hash(text.as_bytes()).as_bytes());
        }
        let (min, max) = prepared.region;
        let domain = &job.simulation.domain;
        Ok(Self {
            space: Space {
                domain: Box3::new(domain.min, domain.max),
                periodic: prepared.periodic,
                region: Box3::new(min, max),
                thickness: prepared.ghost_thickness,
            },
            particles: prepared.particles.count(),
            end_step: prepared.end_step,
            checkpoint_every: prepared.checkpoint_every,
            checkpoint_keep: prepared.checkpoint_keep,
            fixed: fixed.finalize(),
            model,
            prepared,
        })
    }

    /// Makes this rank's share of the particles at the start: a block of consecutive ids, wherever they lie.
    pub fn generate(&self, rank: u32, ranks: u32, particles: &mut Particles) {
        let (rank, ranks) = (u64::from(rank), u64::from(ranks));
        let first = |rank: u64| (u128::from(self.particles) * u128::from(rank) / u128::from(ranks)) as u64;
        for seed in self.prepared.particles.range(first(rank)..first(rank + 1)) {
            let Seed { id, position, radius, velocity, spin, material } = seed;
            // A centre on an upper periodic face is the same place as on the lower one, where the loop wants it.
            let [x, y, z] = position;
            let mut place = [x, y, z, 0.0];
            self.model.periodic.wrap(&mut place, &mut [0; 4]);
            let position = [place[0], place[1], place[2]];
            let density = self.model.materials.materials()[usize::from(material)].density;
            particles.push(&Sphere { id, position, radius, velocity, spin, material }, density);
        }
    }

    /// The restitution to expect.
    pub fn expected_restitution(&self, simulation: &dem_config::Simulation) -> Vec<ExpectedRestitution> {
        expected_restitution(simulation, &self.prepared, &self.model.materials)
    }
}
