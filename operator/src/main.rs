//! The operator's program.

use clap::Parser;
use dem_operator::args::{Args, Command};
use dem_operator::{rbac, run, telemetry};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(Command::Rbac) = args.command {
        print!("{}", rbac::manifests()?);
        return Ok(());
    }
    telemetry::init(args.log_format, &args.log)?;
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        asked.cancel();
    });
    run::run(args, stop).await
}
