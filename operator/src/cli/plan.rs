//! `kubectl dem plan`, and the plan of a local run: the operator's own code on a snapshot.

use std::path::Path;

use anyhow::{Context, bail};
use dem_config::{Files, Source};
use dem_crds::DemJob;
use dem_plan::render::Settings;
use dem_plan::validate::{ClaimFacts, References, ValidatedJob, references, validate};
use dem_plan::{ClusterView, Plan};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::cli::manifest::Manifest;
use crate::gather::read_references;
use crate::placement;

/// Plans the job of a manifest on a cluster: `cluster` for that of the current context, otherwise a snapshot file.
///
/// # Errors
/// When the manifest or snapshot cannot be read, the job is invalid (every problem, one a line), or does not fit.
pub async fn plan(file: &Path, nodes: &str) -> anyhow::Result<Plan> {
    let mut manifest = Manifest::read(file)?;
    let (cluster, references) = if nodes == "cluster" {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_default().await.context("find the cluster of the current context")?;
        let namespace = manifest.job.namespace().unwrap_or_else(|| client.default_namespace().to_owned());
        let mut references = read_references(&client, &manifest.job, &namespace).await?;
        references.config_maps.extend(beside(&manifest).config_maps);
        (view(&client).await?, references)
    } else {
        let text = std::fs::read_to_string(nodes).with_context(|| {
            format!("read {nodes}; expected `cluster`, or a file with the output of `kubectl get nodes,pods -A -o json`")
        })?;
        (ClusterView::from_json(&text).with_context(|| nodes.to_owned())?, beside(&manifest))
    };
    manifest.job.metadata.uid.get_or_insert_default();
    let job = validated(&manifest.job, &references)?;
    let files = particle_files(&job, file.parent().unwrap_or(Path::new(".")))?;
    place(&job, &files, &cluster)
}

/// Everything that can be known of a job's references without a cluster: ConfigMaps of the same file. Claims are taken
/// to be there and shareable.
pub fn beside(manifest: &Manifest) -> References {
    let mut known = References::default();
    for map in &manifest.config_maps {
        known.config_maps.insert(map.name_any(), map.data.clone().unwrap_or_default());
    }
    for claim in references(&manifest.job.spec).1 {
        let facts = ClaimFacts { access_modes: vec!["ReadWriteMany".to_owned()], deleting: false };
        known.claims.insert(claim, facts);
    }
    known
}

/// The job, checked as the operator checks it.
///
/// # Errors
/// All problems, one a line.
pub fn validated(job: &DemJob, references: &References) -> anyhow::Result<ValidatedJob> {
    match validate(job, references, &Settings::default()) {
        Ok(job) => Ok(job),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(|p| format!("  {p}")).collect();
            bail!("DemJob {} cannot run:\n{}", job.name_any(), lines.join("\n"))
        }
    }
}

/// The simulation's particle files as far as they are found under `folder`; without one the plan assumes an even
/// filling.
///
/// # Errors
/// When a file is there and cannot be read.
pub fn particle_files(job: &ValidatedJob, folder: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    let dem_plan::validate::Workload::Simulation { simulation, .. } = &job.workload else { return Ok(files) };
    for source in &simulation.particles {
        if let Source::File(source) = source {
            let path = folder.join(&source.path);
            if path.is_file() {
                let text =
                    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
                files.insert(source.path.clone(), text);
            }
        }
    }
    Ok(files)
}

/// Places the job.
///
/// # Errors
/// Why it does not fit.
pub fn place(job: &ValidatedJob, files: &Files, cluster: &ClusterView) -> anyhow::Result<Plan> {
    placement::halo(job, files)
        .and_then(|halo| placement::place(job, halo, cluster))
        .map_err(anyhow::Error::msg)
}

async fn view(client: &Client) -> anyhow::Result<ClusterView> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await.context("list nodes")?;
    let pods = Api::<Pod>::all(client.clone()).list(&all).await.context("list pods of all namespaces")?;
    Ok(ClusterView::from_objects(&nodes.items, &pods.items)?)
}
