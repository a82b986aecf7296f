//! `kubectl dem`, also usable as a plain command.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use dem_operator::cli;

/// Plans and runs DemJobs from the command line.
#[derive(Debug, Parser)]
#[command(name = "kubectl-dem", bin_name = "kubectl dem", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show where a DemJob's ranks would run and what they would exchange, without running anything.
    Plan {
        /// Manifest with one DemJob.
        file: PathBuf,
        /// `cluster` for the cluster of the current context, or a file with the output of
        /// `kubectl get nodes,pods -A -o json`.
        #[arg(long, default_value = "cluster")]
        nodes: String,
        /// Form of the answer.
        #[arg(short, long, default_value = "table")]
        output: PlanOutput,
    },
    /// Run a DemJob.
    Run {
        /// On this machine, without a cluster.
        #[arg(long, required = true)]
        local: bool,
        /// Manifest with one DemJob.
        file: PathBuf,
        /// Number of ranks instead of the manifest's.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(dem_crds::MAX_RANKS)))]
        ranks: Option<u32>,
        /// Folder for everything that the run writes; one used before goes on from its last checkpoint. Default: a
        /// new one in the working directory.
        #[arg(long)]
        output_dir: Option<PathBuf>,
        /// Begin from a checkpoint instead of at step 0: its folder, or a folder of runs, of which the last one's newest
        /// complete checkpoint counts. Takes the place of spec.restartFrom, whose checkpoint is on a cluster's volume.
        #[arg(long, value_name = "DIR")]
        start_from: Option<PathBuf>,
        /// Form of the report.
        #[arg(short, long, default_value = "text")]
        output: RunOutput,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanOutput {
    Table,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RunOutput {
    Text,
    Json,
}

#[tokio::main]
async fn main() -> ExitCode {
    match execute(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn execute(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Plan { file, nodes, output } => {
            let plan = cli::plan::plan(&file, &nodes).await?;
            match output {
                PlanOutput::Table => print!("{}", plan.table()),
                PlanOutput::Json => println!("{}", serde_json::to_string_pretty(&plan)?),
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { local: _, file, ranks, output_dir, start_from, output } => {
            let run = cli::local::prepare(&file, ranks, output_dir, start_from)?;
            let report = cli::local::run(&run).await?;
            match output {
                RunOutput::Text => print!("{}", cli::local::text(&report)),
                RunOutput::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            }
            Ok(ExitCode::from(u8::try_from(report.exit_code).unwrap_or(1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
    }
}
