//! Programs that cargo built beside the running test, and others that tests run.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};

/// The folder of this build's programs: `target/debug` when the test was built with the dev profile.
///
/// # Errors
/// When this program does not run from a cargo target folder.
pub fn folder() -> anyhow::Result<PathBuf> {
    let running = std::env::current_exe()?;
    let parent = running.parent().context("a program is in a folder")?;
    let folder =
        if parent.ends_with("deps") { parent.parent().context("deps has a parent")? } else { parent };
    if !folder.join("deps").is_dir() {
        bail!("{} is not in a cargo target folder", running.display());
    }
    Ok(folder.to_owned())
}

/// The cargo target folder.
///
/// # Errors
/// When this program does not run from one.
pub fn target() -> anyhow::Result<PathBuf> {
    Ok(folder()?.parent().context("a profile's folder has a parent")?.to_owned())
}

/// A program of this workspace, of the same build as the test.
///
/// # Errors
/// When it is not built: cargo builds for a test only the programs of the test's own package.
pub fn ours(name: &str) -> anyhow::Result<PathBuf> {
    let path = folder()?.join(name);
    if !path.exists() {
        bail!("{} is not built: run `cargo build --workspace --bins`", path.display());
    }
    Ok(path)
}

/// Runs a command to its end with `input` as standard input; its output, whatever the exit code.
///
/// # Errors
/// When it cannot be started.
pub fn output(command: &mut Command, input: &str) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {name}"))?;
    let mut stdin = child.stdin.take().context("stdin is piped")?;
    let input = input.to_owned();
    // Written beside the reading of the output, so that neither pipe can fill up. A command that reads nothing
    // closes its end early, which is its right.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().with_context(|| format!("wait for {name}"))?;
    let _ = writer.join();
    Ok(output)
}

/// Runs a command that must succeed; its standard output.
///
/// # Errors
/// When it cannot be started or exits with another code than 0, with what it said.
pub fn run(command: &mut Command, input: &str) -> anyhow::Result<String> {
    let line = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|a| a.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    let output = output(command, input)?;
    if !output.status.success() {
        bail!(
            "`{line}` failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A script of `tests/cluster`.
pub fn script(name: &str) -> Command {
    Command::new(crate::project().join("tests/cluster").join(name))
}

/// The cluster scripts' cache.
pub fn cache() -> PathBuf {
    std::env::var_os("CLUSTER_CACHE").map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
        home.join(".cache/dem-operator-cluster")
    })
}

/// A program of the test cluster (kubectl, helm, kind, promtool...), from the cluster's cache if it is there.
pub fn tool(name: &str) -> Command {
    let built = cache().join("bin").join(name);
    Command::new(if built.exists() { built } else { PathBuf::from(name) })
}
