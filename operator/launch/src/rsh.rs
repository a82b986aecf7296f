//! `dem-rsh`: stands in for ssh under Open MPI (`plm_rsh_agent`) and Hydra (`-launcher-exec`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::WorkerClient;
use crate::protocol::{AGENT_PORT, CommandEnd, Frame, read_frame, write_frame};
use crate::tls::{ClientTls, Identity};

/// Environment variable: folder of the launcher's certificate.
pub const TLS_DIR_VARIABLE: &str = "DEM_TLS_DIR";
/// Environment variable: number of the attempt.
pub const ATTEMPT_VARIABLE: &str = "DEM_ATTEMPT";
/// Environment variable: its fence token.
pub const TOKEN_VARIABLE: &str = "DEM_ATTEMPT_TOKEN";
/// Environment variable: the workers' port, if not the usual one.
pub const PORT_VARIABLE: &str = "DEM_AGENT_PORT";

/// Exit code of ssh for errors of its own.
pub const EXIT_RSH: i32 = 255;
/// Flags of ssh that take a value in the next word.
const FLAGS_WITH_VALUE: &[&str] =
    &["-b", "-c", "-e", "-F", "-i", "-I", "-J", "-l", "-L", "-m", "-o", "-p", "-R", "-S", "-w", "-W"];

/// A standard stream whose reads and writes may block without holding up other tasks.
pub(crate) fn asynchronous(stream: impl AsFd) -> io::Result<tokio::fs::File> {
    Ok(tokio::fs::File::from_std(stream.as_fd().try_clone_to_owned()?.into()))
}

/// Host and command line, as ssh reads its arguments: flags are skipped, words are joined by spaces.
///
/// # Errors
/// Says what is missing.
pub fn host_and_command(arguments: &[String]) -> Result<(&str, String), String> {
    let mut words = arguments.iter();
    let host = loop {
        let word = words.next().ok_or("no host, usage: dem-rsh [flags] HOST COMMAND...")?;
        if FLAGS_WITH_VALUE.contains(&word.as_str()) {
            words.next();
        } else if !word.starts_with('-') {
            break word;
        }
    };
    let command = words.map(String::as_str).collect::<Vec<_>>().join(" ");
    if command.trim().is_empty() {
        return Err(format!("no command for host {host}, usage: dem-rsh [flags] HOST COMMAND..."));
    }
    Ok((host, command))
}

/// Runs the command on the host's agent with this process's streams.
///
/// # Errors
/// No host address, no connection, a refusal, or a connection that broke. Otherwise the command's exit code, or
/// 128 + signal.
pub async fn run(arguments: &[String]) -> anyhow::Result<i32> {
    let (host, command) = host_and_command(arguments).map_err(anyhow::Error::msg)?;
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let address: IpAddr = host.parse().with_context(|| format!("host {host:?}, must be an IP address"))?;
    let variable = |name: &str| std::env::var(name).with_context(|| format!("environment variable {name}"));
    let tls_dir = std::env::var_os(TLS_DIR_VARIABLE).map_or_else(|| PathBuf::from("/dem/tls"), PathBuf::from);
    let attempt = variable(ATTEMPT_VARIABLE)?.parse().context(ATTEMPT_VARIABLE)?;
    let token = variable(TOKEN_VARIABLE)?;
    let port = match std::env::var(PORT_VARIABLE) {
        Ok(port) => port.parse().with_context(|| format!("{PORT_VARIABLE}={port}, must be a port"))?,
        Err(_) => AGENT_PORT,
    };
    let tls = ClientTls::new(Identity::from_dir(&tls_dir)?)?;
    let client = WorkerClient::connect(SocketAddr::new(address, port), &tls).await?;
    let stream = client.exec(attempt, &token, command).await?;
    let (mut from, mut to) = tokio::io::split(stream);
    tokio::spawn(async move {
        let Ok(mut stdin) = asynchronous(std::io::stdin()) else { return };
        let mut buffer = vec![0; 32 << 10];
        // An empty frame tells the end of the input.
        while let Ok(count) = stdin.read(&mut buffer).await {
            if write_frame(&mut to, &Frame::Stdin(buffer[..count].to_vec())).await.is_err() || count == 0 {
                // Keeps the sending half open: closing it would end the command.
                std::future::pending::<()>().await;
            }
        }
    });
    let (mut stdout, mut stderr) = (asynchronous(std::io::stdout())?, asynchronous(std::io::stderr())?);
    loop {
        match read_frame(&mut from).await? {
            Frame::Stdout(bytes) => {
                stdout.write_all(&bytes).await?;
                stdout.flush().await?;
            }
            Frame::Stderr(bytes) => {
                stderr.write_all(&bytes).await?;
                stderr.flush().await?;
            }
            Frame::Message(bytes) => {
                let end: CommandEnd = serde_json::from_slice(&bytes)?;
                return Ok(end.exit_code.unwrap_or_else(|| 128 + end.signal.unwrap_or(0)));
            }
            Frame::Stdin(_) => bail!("{host} sent input instead of output"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    #[test]
    fn flags_of_open_mpi_and_hydra_are_skipped_and_quotes_reach_the_shell() {
        let open_mpi = words("-x -l me 10.0.0.7 orted -mca ess \"env\" -x");
        assert_eq!(host_and_command(&open_mpi), Ok(("10.0.0.7", "orted -mca ess \"env\" -x".to_owned())));
        let hydra = words("-x 10.0.0.7 \"/usr/bin/hydra_pmi_proxy\" --control-port 10.0.0.1:4242");
        let expected = "\"/usr/bin/hydra_pmi_proxy\" --control-port 10.0.0.1:4242".to_owned();
        assert_eq!(host_and_command(&hydra), Ok(("10.0.0.7", expected)));
    }

    #[test]
    fn a_missing_host_or_command_is_named() {
        assert!(host_and_command(&words("-x")).unwrap_err().contains("no host"));
        assert!(host_and_command(&words("10.0.0.7")).unwrap_err().contains("no command for host 10.0.0.7"));
    }
}
