//! `dem-solver run`: start, run, and end so that every rank ends and the exit code tells why.

use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dem_comm::{Comm, Communicator, Mpi, Serial};
use dem_page::State;

use crate::args::RunArgs;
use crate::counters::Counters;
use crate::failure::{Failure, exit};
use crate::job::Job;
use crate::simulation::{End, Simulation};
use crate::stop;

/// Runs a simulation on this rank and returns its exit code. Any rank's failure ends all ranks.
pub fn run(args: &RunArgs) -> i32 {
    let communicator: Result<Box<dyn Communicator>, _> =
        if dem_comm::launched() { Mpi::start().map(|mpi| Box::new(mpi) as _) } else { Ok(Box::new(Serial)) };
    let mut comm = match communicator {
        Ok(inner) => Comm::new(inner),
        Err(error) => {
            eprintln!("dem-solver: {error}");
            return exit::INTERNAL;
        }
    };
    let rank = comm.rank();
    start_logging(rank);
    let page = match open_page(args, &comm) {
        Ok(page) => Arc::new(page),
        Err(failure) => return abort(&mut comm, None, &failure),
    };
    install_panic_hook(rank, Arc::clone(&page));
    stop::install();

    let job = match Job::load(args, &mut comm) {
        Ok(job) => job,
        Err(failure @ Failure::Comm(_)) => return abort(&mut comm, Some(&page), &failure),
        // Every rank came to the same result, so rank 0 can speak for all and nobody waits.
        Err(failure) => {
            if rank == 0 {
                eprintln!("dem-solver: {failure}");
            }
            page.finish(State::Failed, failure.exit_code() as u64, &failure.to_string());
            return failure.exit_code();
        }
    };
    match execute(job, &mut comm, &page) {
        Ok(End::Done) => {
            page.finish(State::Done, exit::DONE as u64, "");
            exit::DONE
        }
        Ok(End::Stopped { step }) => {
            let message = format!("stopped on request at step {step}, after a checkpoint");
            if rank == 0 {
                tracing::info!("{message}");
            }
            page.finish(State::Stopped, exit::STOPPED as u64, &message);
            exit::STOPPED
        }
        Ok(End::Violated { message }) => {
            eprintln!("dem-solver: {message}");
            page.finish(State::Failed, exit::GUARD as u64, &message);
            exit::GUARD
        }
        Err(failure) => abort(&mut comm, Some(&page), &failure),
    }
}

fn execute(job: Job, comm: &mut Comm, page: &Arc<Counters>) -> Result<End, Failure> {
    Simulation::start(job, comm, page)?.run()
}

fn start_logging(rank: u32) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only if a subscriber is set already, and then there is one.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .try_init();
    if rank == 0
        && dem_comm::launched()
        && let Some(library) = dem_comm::library_version()
    {
        tracing::info!("{}", library.split(',').next().unwrap_or(&library).trim());
    }
}

fn open_page(args: &RunArgs, comm: &Comm) -> Result<Counters, Failure> {
    let page = match &args.pages {
        Some(folder) => Counters::shared(folder, comm.rank())?,
        None => Counters::private()?,
    };
    page.init(args.attempt, comm.rank(), comm.size(), std::process::id());
    Ok(page)
}

/// A panic on one rank must end the job: the others would wait for its messages for ever.
fn install_panic_hook(rank: u32, page: Arc<Counters>) {
    std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        let step = page.step.load(Ordering::Relaxed);
        let reason = info.payload_as_str().unwrap_or("no message");
        let message = format!("rank {rank}: panic in step {}{place}: {reason}", step + 1);
        eprintln!("dem-solver: {message}");
        page.finish(State::Failed, exit::INTERNAL as u64, &message);
        dem_comm::abort_world(exit::INTERNAL);
    }));
}

/// Ends all ranks because of this rank's failure; its page names the cause.
fn abort(comm: &mut Comm, page: Option<&Counters>, failure: &Failure) -> i32 {
    let message = format!("rank {}: {failure}", comm.rank());
    eprintln!("dem-solver: {message}");
    if let Some(page) = page {
        page.finish(State::Failed, failure.exit_code() as u64, &message);
    }
    comm.abort(failure.exit_code());
    failure.exit_code()
}

/// Name of this host.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "unknown".into())
}
