//! DemJob manifests as files.

use std::path::Path;

use anyhow::{Context, bail};
use dem_crds::DemJob;
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// A DemJob and the ConfigMaps that stand beside it in the same file.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The job.
    pub job: DemJob,
    /// ConfigMaps of the file, which may hold the job's simulation.
    pub config_maps: Vec<ConfigMap>,
}

impl Manifest {
    /// Reads a file of one or more YAML (or JSON) documents, exactly one of them a DemJob. Kinds other than
    /// ConfigMap are passed over: they matter to a cluster only.
    ///
    /// # Errors
    /// When the file cannot be read, a document is no YAML or a DemJob or ConfigMap is malformed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// As [`Manifest::read`], from text.
    ///
    /// # Errors
    /// See there.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (mut job, mut config_maps) = (None, Vec::new());
        for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
            let at = || format!("document {}", number + 1);
            // YAML's own value refuses a key that stands twice. Then by way of JSON, as the API server reads it:
            // `serde_yaml` alone wants tags for our unions.
            let value = serde_yaml::Value::deserialize(document).with_context(at)?;
            let value = serde_json::to_value(value).with_context(at)?;
            match value.get("kind").and_then(|k| k.as_str()) {
                Some("DemJob") => {
                    if job.is_some() {
                        bail!("{}: found a second DemJob; a file holds one", at());
                    }
                    let version = value.get("apiVersion").and_then(|v| v.as_str()).unwrap_or_default();
                    if version != "granular.dev/v1alpha1" {
                        bail!("{}: apiVersion: found `{version}`, expected `granular.dev/v1alpha1`", at());
                    }
                    job = Some(strictly(value).with_context(at)?);
                }
                Some("ConfigMap") => config_maps.push(strictly(value).with_context(at)?),
                _ => {}
            }
        }
        match job {
            Some(job) => Ok(Self { job, config_maps }),
            None => bail!("found no document with `kind: DemJob`"),
        }
    }
}

/// Reads an object, and refuses fields that its type does not have, as `kubectl apply` does.
fn strictly<T: DeserializeOwned>(value: serde_json::Value) -> anyhow::Result<T> {
    let mut unknown = Vec::new();
    let object = serde_ignored::deserialize(value, |path| unknown.push(path.to_string()))?;
    // An optional part shows as `?` in a path. The type of a custom resource knows its own version and kind.
    let unknown = unknown.iter().map(|path| path.replace(".?", ""));
    let unknown: Vec<String> = unknown.filter(|path| path != "apiVersion" && path != "kind").collect();
    match unknown.as_slice() {
        [] => Ok(object),
        fields => bail!("unknown field {}", fields.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "apiVersion: granular.dev/v1alpha1\nkind: DemJob\nmetadata: {name: drum}\nspec:\n  \
                       simulation: {configMap: {name: drum}}\n  ranks: 2\n";

    #[test]
    fn a_job_and_the_config_map_beside_it_are_found_and_other_kinds_passed_over() {
        let text = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: sand}}\n---\n{JOB}---\napiVersion: v1\nkind: ConfigMap\n\
             metadata: {{name: drum}}\ndata: {{simulation.yaml: x}}\n"
        );
        let manifest = Manifest::parse(&text).unwrap();
        assert_eq!((manifest.job.spec.ranks, manifest.config_maps.len()), (2, 1));
    }

    #[test]
    fn a_simulation_inline_is_read_without_yaml_tags() {
        let sample = include_str!("../../../manifests/samples/packing.yaml");
        assert!(Manifest::parse(sample).unwrap().job.spec.simulation.is_some());
    }

    #[test]
    fn two_jobs_no_job_and_another_version_are_refused() {
        let error = |text: &str| format!("{:#}", Manifest::parse(text).unwrap_err());
        assert!(error(&format!("{JOB}---\n{JOB}")).contains("document 2: found a second DemJob"));
        assert!(error("kind: Pod\n").contains("no document"));
        assert!(error(&JOB.replace("v1alpha1", "v9")).contains("found `granular.dev/v9`"));
    }
    #[test]
    fn a_field_that_is_misspelt_or_stands_twice_is_refused_by_its_path() {
        let error = |text: &str| format!("{:#}", Manifest::parse(text).unwrap_err());
        let text = error(&JOB.replace("ranks: 2", "ranks: 2\n  checkpoint: {everyStep: 5}\n  rank: 3"));
        assert!(text.contains("unknown field spec.checkpoint.everyStep, spec.rank"), "{text}");
        let text = error(&JOB.replace("ranks: 2", "ranks: 2\n  ranks: 3"));
        assert!(text.contains("duplicate entry with key \"ranks\""), "{text}");
    }
}
