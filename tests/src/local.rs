//! Runs of `kubectl dem run --local` on this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::Context;
use serde_json::{Value, json};

use crate::programs;

/// A small job that moves a lot: a block of `counts` spheres, thrown about in a box.
pub fn a_small_job(counts: [i64; 3], steps: i64) -> Value {
    let side = |n: i64| n as f64 * 0.01;
    json!({
        "apiVersion": "granular.dev/v1alpha1", "kind": "DemJob", "metadata": {"name": "shaken"},
        "spec": {
            "ranks": 2,
            "resources": {"memoryPerRank": "64Mi", "sharedMemory": "16Mi"},
            "simulation": {"inline": {
                "domain": {"min": [0, 0, 0], "max": [2.0 * side(counts[0]), side(counts[1]), 2.0 * side(counts[2])]},
                "materials": [{"name": "glass", "density": 2500, "youngsModulus": 1e7, "poissonRatio": 0.2}],
                "pairs": [{"materials": ["glass", "glass"], "restitution": 0.8, "friction": 0.3}],
                "particles": [{"lattice": {
                    "counts": counts, "spacing": 0.01, "radius": 0.004, "material": "glass",
                    "velocity": {"random": {"maxSpeed": 2.0, "seed": 5}}
                }}],
                "time": {"end": {"steps": steps}},
                "checkpoint": {"everySteps": 0}
            }}
        }
    })
}

/// A finished local run.
pub struct LocalRun {
    /// The report, `--output json`.
    pub report: Value,
    /// Folder of the run.
    pub folder: PathBuf,
}

impl LocalRun {
    /// The solver's summary.
    pub fn summary(&self) -> &Value {
        &self.report["summary"]
    }

    /// Hash of the final state.
    ///
    /// # Errors
    /// When the summary has none.
    pub fn state_hash(&self) -> anyhow::Result<&str> {
        self.summary()["stateHash"].as_str().with_context(|| format!("no stateHash in {}", self.report))
    }

    /// A file that the report names under `files`; it exists.
    ///
    /// # Errors
    /// When the report does not name it or it does not exist.
    pub fn file(&self, key: &str) -> anyhow::Result<PathBuf> {
        let named = self.report["files"][key]
            .as_str()
            .with_context(|| format!("no {key} in {}", self.report["files"]))?;
        let path = self.folder.join(named);
        anyhow::ensure!(path.exists(), "{} does not exist", path.display());
        Ok(path)
    }
}

/// Runs a manifest in `folder` on `ranks` ranks, whatever comes of it; from a checkpoint below `start_from` if given.
///
/// # Errors
/// When the program is not built or cannot be started.
pub fn run_whatever(
    manifest: &str,
    folder: &Path,
    ranks: u32,
    start_from: Option<&Path>,
) -> anyhow::Result<Output> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join("job.yaml");
    std::fs::write(&file, manifest)?;
    let programs = programs::folder()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(programs).chain(std::env::split_paths(&path));
    let mut command = Command::new(programs::ours("kubectl-dem")?);
    command
        .env("PATH", std::env::join_paths(paths)?)
        .args(["run", "--local", "--output", "json", "--ranks", &ranks.to_string(), "--output-dir"])
        .arg(folder.join("run"))
        .arg(&file);
    if let Some(checkpoints) = start_from {
        command.arg("--start-from").arg(checkpoints);
    }
    programs::output(&mut command, "")
}

/// Runs a manifest that must end well.
///
/// # Errors
/// When it does not, with what was printed.
pub fn run(manifest: &str, folder: &Path, ranks: u32) -> anyhow::Result<LocalRun> {
    finished(folder, &run_whatever(manifest, folder, ranks, None)?)
}

/// The report of a run in `folder` that must have ended well.
///
/// # Errors
/// When it did not, with what was printed.
pub fn finished(folder: &Path, output: &Output) -> anyhow::Result<LocalRun> {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "the run failed ({}):\n{stdout}\n{stderr}", output.status);
    let report =
        serde_json::from_str(&stdout).with_context(|| format!("the report is not JSON: {stdout}"))?;
    Ok(LocalRun { report, folder: folder.to_owned() })
}
