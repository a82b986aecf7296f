//! Jobs on a real kind cluster, under the operator installed from the chart.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use dem_tests::cluster::{Cluster, OPERATOR_NAMESPACE};
use dem_tests::local::a_small_job;
use dem_tests::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::json;

/// A job of 12 ranks, four on each of the cluster's three workers.
fn twelve_ranks(name: &str, counts: [i64; 3], steps: i64) -> serde_json::Value {
    let mut job = a_small_job(counts, steps);
    job["metadata"]["name"] = json!(name);
    job["spec"]["ranks"] = json!(12);
    job["spec"]["ranksPerNode"] = json!({"max": 4});
    job["spec"]["output"] = json!({"volume": {"persistentVolumeClaim": {"claimName": "dem-results"}}});
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_the_planned_nodes_and_succeeds() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("runs").await?;
    namespace.apply(&twelve_ranks("tumbler", [24, 24, 12], 3000).to_string())?;
    let pods = Api::<Pod>::namespaced(cluster.client().await?, &namespace.name);
    let workers = wait::until_all(
        &pods,
        "granular.dev/job=tumbler,granular.dev/role=worker",
        "three workers are bound",
        Duration::from_secs(120),
        |pods: &[Pod]| {
            pods.len() == 3 && pods.iter().all(|p| p.spec.as_ref().is_some_and(|s| s.node_name.is_some()))
        },
    )
    .await?;
    let used: BTreeMap<_, _> = workers
        .iter()
        .filter_map(|p| {
            Some((
                p.metadata.labels.as_ref()?["granular.dev/worker-index"].clone(),
                p.spec.as_ref()?.node_name.clone()?,
            ))
        })
        .collect();
    let job = namespace.ended("tumbler", "Succeeded", Duration::from_secs(300)).await?;
    let plan = serde_json::to_value(job.status.context("status")?.plan.context("plan")?)?;
    let planned: Vec<_> =
        plan["nodes"].as_array().context("nodes")?.iter().map(|n| n["name"].as_str()).collect();
    anyhow::ensure!(
        planned == used.values().map(|n| Some(n.as_str())).collect::<Vec<_>>(),
        "planned {planned:?}, used {used:?}"
    );
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_operator_run_restricted_and_one_of_them_leads() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let label = ["label", "namespace", OPERATOR_NAMESPACE, "--dry-run=server", "--overwrite"];
    // The server answers a label that would enforce with a warning for every pod that violates it.
    let said = cluster.kubectl(&[&label[..], &["pod-security.kubernetes.io/enforce=restricted"]].concat())?;
    anyhow::ensure!(!said.contains("violate"), "{said}");
    let holder = cluster.kubectl(&[
        "-n",
        OPERATOR_NAMESPACE,
        "get",
        "lease",
        "dem-operator",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ])?;
    let pods = cluster.kubectl(&["-n", OPERATOR_NAMESPACE, "get", "pods", "-o", "name"])?;
    anyhow::ensure!(
        pods.lines().any(|p| p == format!("pod/{holder}")),
        "{holder} holds the lease; there are {pods}"
    );
    Ok(())
}
