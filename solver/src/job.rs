//! What a run is asked to do: read once, by rank 0, and the same on every rank.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dem_comm::Comm;
use dem_config::Source;
use dem_decomp::PlanFile;
use serde::{Deserialize, Serialize};

use crate::args::{KernelChoice, Restart, RunArgs};
use crate::failure::Failure;

/// Everything that a run needs besides its communicator and its counter page.
#[derive(Clone, Debug)]
pub struct Job {
    /// The simulation file, parsed and valid.
    pub simulation: dem_config::Simulation,
    /// Text of the particle files that it names, by path.
    pub particle_files: BTreeMap<String, String>,
    /// The plan, if there is one.
    pub plan: Option<PlanFile>,
    /// Number of the attempt.
    pub attempt: u64,
    /// Folder for results.
    pub output: PathBuf,
    /// Folder for checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// Whether to go on from a checkpoint of this run.
    pub restart: Restart,
    /// Where the run begins instead of at step 0: a folder of, or with, checkpoints.
    pub start_from: Option<PathBuf>,
    /// Instructions to use.
    pub kernel: KernelChoice,
    /// False to show that rounding matters.
    pub rounding: bool,
    /// Particle to move by one unit in the last place.
    pub perturb: Option<u64>,
    /// Rebuild lists at every multiple of so many steps as well.
    pub phase: Option<u64>,
    /// Rank and step to panic in.
    pub panic: Option<(u32, u64)>,
}

/// The texts that rank 0 reads for all.
#[derive(Serialize, Deserialize)]
enum Texts {
    Read { simulation: String, plan: Option<String>, particles: BTreeMap<String, String> },
    Failed { message: String, unreadable: bool },
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// Reads the particle files that `simulation` names from `folder`.
///
/// # Errors
/// Says which file cannot be read.
pub fn read_particle_files(
    simulation: &dem_config::Simulation,
    folder: &Path,
) -> Result<BTreeMap<String, String>, String> {
    let paths = simulation.particles.iter().filter_map(|source| match source {
        Source::File(file) => Some(&file.path),
        _ => None,
    });
    paths.map(|path| Ok((path.clone(), read(&folder.join(path))?))).collect()
}

/// The folder that particle files are in.
pub fn input_folder(input_dir: Option<&Path>, simulation: &Path) -> PathBuf {
    input_dir.or(simulation.parent()).unwrap_or(Path::new(".")).to_path_buf()
}

/// Parses a simulation file's text; problems are listed one a line.
///
/// # Errors
/// [`Failure::Input`].
pub fn parse(path: &Path, text: &str) -> Result<dem_config::Simulation, Failure> {
    dem_config::Simulation::from_yaml(text).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(|p| format!("{}: {p}", path.display())).collect();
        Failure::Input(lines.join("\n"))
    })
}

impl Texts {
    fn read(args: &RunArgs) -> Self {
        let input = |message| Self::Failed { message, unreadable: false };
        let simulation = match read(&args.simulation) {
            Ok(text) => text,
            Err(message) => return input(message),
        };
        let plan = match args.plan.as_deref().map(read).transpose() {
            Ok(plan) => plan,
            Err(message) => return input(message),
        };
        // A wrong file is reported by every rank's own parsing.
        let folder = input_folder(args.input_dir.as_deref(), &args.simulation);
        let particles = match dem_config::Simulation::from_yaml(&simulation) {
            Ok(parsed) => read_particle_files(&parsed, &folder),
            Err(_) => Ok(BTreeMap::new()),
        };
        match particles {
            Ok(particles) => Self::Read { simulation, plan, particles },
            Err(message) => Self::Failed { message, unreadable: true },
        }
    }
}

impl Job {
    /// Reads files on rank 0 and makes the same job on every rank.
    ///
    /// # Errors
    /// The same on every rank: unreadable or wrong files, a plan for another number of ranks.
    pub fn load(args: &RunArgs, comm: &mut Comm) -> Result<Self, Failure> {
        let internal = |e: serde_json::Error| Failure::Input(format!("input files: {e}"));
        let texts = if comm.rank() == 0 {
            serde_json::to_vec(&Texts::read(args)).map_err(internal)?
        } else {
            Vec::new()
        };
        let texts = comm.broadcast(texts)?;
        let (simulation, plan, particle_files) = match serde_json::from_slice(&texts).map_err(internal)? {
            Texts::Read { simulation, plan, particles } => (simulation, plan, particles),
            Texts::Failed { message, unreadable: true } => return Err(Failure::Unreadable(message)),
            Texts::Failed { message, unreadable: false } => return Err(Failure::Input(message)),
        };
        let plan = plan.map(|text| PlanFile::from_json(&text)).transpose();
        let plan = plan.map_err(|e| Failure::Input(e.to_string()))?;
        if let Some(ranks) = plan.as_ref().map(|plan| plan.ranks).filter(|ranks| *ranks != comm.size()) {
            let (found, path) = (comm.size(), args.plan.as_deref().unwrap_or(Path::new("plan")));
            return Err(Failure::Input(format!(
                "{}: made for {ranks} ranks, this run has {found}",
                path.display()
            )));
        }
        Ok(Self {
            simulation: parse(&args.simulation, &simulation)?,
            particle_files,
            plan,
            attempt: args.attempt,
            output: args.output.clone(),
            checkpoints: args.checkpoints.clone(),
            restart: args.restart,
            start_from: args.start_from.clone(),
            kernel: args.kernel,
            rounding: !args.no_rounding,
            perturb: args.perturb,
            phase: args.phase,
            panic: args.panic,
        })
    }
}
