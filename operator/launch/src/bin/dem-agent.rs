//! PID 1 of launcher and worker pods, wrapper of ranks, and ssh's stand-in: one static program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dem_launch::launcher::LauncherSettings;
use dem_launch::worker::WorkerSettings;
use dem_launch::{launcher, rank, rsh, worker};

/// Runs MPI ranks in pods without ssh, DNS or an API token.
#[derive(Parser)]
#[command(name = "dem-agent", version)]
struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Serve as PID 1 of a worker pod.
    Worker(WorkerSettings),
    /// Serve as PID 1 of a launcher pod.
    Launcher(LauncherSettings),
    /// Run one rank's program and record how it ends.
    Rank {
        /// Program and arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<String>,
    },
    /// Run a command line on a worker, as ssh would.
    Rsh {
        /// Flags of ssh (skipped), host address, command words.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Copy this program into a folder as dem-agent and dem-rsh.
    Install {
        /// The folder.
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let called_as = std::env::args_os().next().map(PathBuf::from);
    if called_as.as_deref().and_then(Path::file_name).is_some_and(|name| name == "dem-rsh") {
        return run_rsh(&std::env::args().skip(1).collect::<Vec<_>>());
    }
    match Arguments::parse().command {
        Subcommands::Worker(settings) => {
            start_logging();
            end("worker", in_runtime(worker::run(settings)).map(|()| 0), 1)
        }
        Subcommands::Launcher(settings) => {
            start_logging();
            end("launcher", in_runtime(launcher::run(settings)), 1)
        }
        Subcommands::Rank { program } => end("rank", rank::run(&program).map_err(Into::into), 1),
        Subcommands::Rsh { arguments } => run_rsh(&arguments),
        Subcommands::Install { folder } => end("install", install(&folder).map(|()| 0), 1),
    }
}

fn run_rsh(arguments: &[String]) -> ExitCode {
    end("rsh", in_runtime(rsh::run(arguments)), rsh::EXIT_RSH)
}

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Standard output belongs to the ranks.
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// One thread: children are to die with the thread that starts them, so it must be the main one.
fn in_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn end(what: &str, result: anyhow::Result<i32>, error_code: i32) -> ExitCode {
    let code = result.unwrap_or_else(|error| {
        eprintln!("dem-agent {what}: {error:#}");
        error_code
    });
    // Not by returning: a thread that reads standard input would be waited for.
    std::process::exit(code)
}

fn install(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let program = std::env::current_exe()?;
    for name in ["dem-agent", "dem-rsh"] {
        // Copied aside, then renamed: a program that runs there already is not disturbed.
        let part = folder.join(format!(".{name}.part"));
        std::fs::copy(&program, &part)?;
        std::fs::rename(&part, folder.join(name))?;
    }
    Ok(())
}
