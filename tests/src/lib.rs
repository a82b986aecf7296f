//! Fixtures of the tests that need more than one crate: built programs, a real API server, a real cluster.
//!
//! Tests sit at the weakest tier that proves their point; nothing here imitates a part of Kubernetes. Every wait is
//! for a condition, has a time limit, and says what was there instead when it runs out.

pub mod api_server;
pub mod cluster;
pub mod local;
pub mod programs;
pub mod wait;

use std::path::{Path, PathBuf};

/// Root of the project.
pub fn project() -> &'static Path {
    // The crate is one folder below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// A file of the project, as text.
///
/// # Errors
/// When it cannot be read, with its path.
pub fn read(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = project().join(path);
    std::fs::read_to_string(&path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
}

/// The sample manifests that hold a DemJob, sorted by name.
///
/// # Errors
/// When the folder cannot be read.
pub fn samples() -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(project().join("manifests/samples"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "yaml") && read(&path)?.contains("kind: DemJob") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The DemJob of a manifest. By way of JSON, as the API server reads it: `serde_yaml` alone wants tags for our unions.
///
/// # Errors
/// When the text is no DemJob.
pub fn job_from(manifest: &str) -> anyhow::Result<dem_crds::DemJob> {
    let value: serde_json::Value = serde_yaml::from_str(manifest)?;
    Ok(serde_json::from_value(value)?)
}
