//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Simulates granular matter by the discrete element method, alone or under mpirun.
#[derive(Debug, Parser)]
#[command(name = "dem-solver", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a simulation.
    Run(Box<RunArgs>),
    /// Check a simulation file and print what a run would take, without running.
    Check(CheckArgs),
    /// Print the JSON schema of the simulation file.
    Schema,
}

/// Where a run starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    /// From the newest complete checkpoint of this or an earlier attempt, or from the beginning.
    Auto,
    /// From the beginning.
    Never,
}

fn rank_and_step(text: &str) -> Result<(u32, u64), String> {
    let parsed = text.split_once(':').and_then(|(rank, step)| Some((rank.parse().ok()?, step.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?}: expected RANK:STEP, for example 1:10"))
}

/// Arguments of `run`.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    /// Simulation file (YAML).
    #[arg(long, value_name = "FILE")]
    pub simulation: PathBuf,
    /// Plan that says which rank computes which subdomain (plan.json).
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Number of this attempt: outputs and checkpoints are written under it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub attempt: u64,
    /// Folder for results.
    #[arg(long, value_name = "DIR", default_value = "output")]
    pub output: PathBuf,
    /// Folder for checkpoints. Without it none are written.
    #[arg(long, value_name = "DIR")]
    pub checkpoints: Option<PathBuf>,
    /// Folder, in shared memory, for the ranks' counter pages.
    #[arg(long, value_name = "DIR")]
    pub pages: Option<PathBuf>,
    /// Whether to go on from a checkpoint of this run.
    #[arg(long, value_enum, default_value_t = Restart::Auto)]
    pub restart: Restart,
    /// Where the run begins instead of at step 0: a checkpoint's folder, a folder of checkpoints, or a folder of runs,
    /// of which the last one's newest complete checkpoint counts.
    #[arg(long, value_name = "DIR")]
    pub start_from: Option<PathBuf>,
    /// Folder that the simulation file's particle files are in. Default: the simulation file's own.
    #[arg(long, value_name = "DIR")]
    pub input_dir: Option<PathBuf>,
    /// Instructions to use; all give the same result to the last bit.
    #[arg(long, value_enum, default_value_t = KernelChoice::Auto)]
    pub kernel: KernelChoice,
    /// Do not round contributions, to show that the result then depends on the rank count.
    #[arg(long, hide = true)]
    pub no_rounding: bool,
    /// Move the particle with this id by one unit in the last place of x before the start.
    #[arg(long, value_name = "ID", hide = true)]
    pub perturb: Option<u64>,
    /// Rebuild neighbour lists at every multiple of so many steps as well.
    #[arg(long, value_name = "STEPS", hide = true)]
    pub phase: Option<u64>,
    /// Panic on this rank in this step, to show that all ranks end.
    #[arg(long, value_name = "RANK:STEP", hide = true, value_parser = rank_and_step)]
    pub panic: Option<(u32, u64)>,
}

/// Which instructions the contact kernel uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelChoice {
    /// The widest that the processor has.
    Auto,
    /// Those of every processor.
    Portable,
    /// AVX2.
    Avx2,
    /// AVX-512.
    Avx512,
}

/// Arguments of `check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Simulation file (YAML).
    pub file: PathBuf,
    /// Ranks that memory is estimated for.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,
    /// Folder that the simulation file's particle files are in. Default: the simulation file's own.
    #[arg(long, value_name = "DIR")]
    pub input_dir: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}
