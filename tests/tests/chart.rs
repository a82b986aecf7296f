//! The chart, the plain manifests and the alert rules, as helm, kubectl, promtool and a real API server see them.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::process::Command;

use anyhow::Context;
use dem_tests::api_server::ApiServer;
use dem_tests::{programs, project, read};
use serde::Deserialize;
use serde_json::Value;

fn helm(arguments: &[&str]) -> anyhow::Result<String> {
    programs::run(programs::tool("helm").current_dir(project()).args(arguments), "")
}

fn template(values: &[&str]) -> anyhow::Result<Vec<Value>> {
    let mut arguments = vec!["template", "dem", "charts/dem-operator", "--namespace", "dem-operator-system"];
    arguments.extend_from_slice(values);
    documents(&helm(&arguments)?)
}

fn documents(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let value = Value::deserialize(document)?;
        if !value.is_null() {
            found.push(value);
        }
    }
    Ok(found)
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents.iter().filter(|d| d["kind"] == kind).collect()
}

const ALL_ON: [&str; 6] = [
    "--set",
    "monitoring.serviceMonitor.enabled=true",
    "--set",
    "monitoring.podMonitor.enabled=true",
    "--set",
    "monitoring.prometheusRule.enabled=true",
];

#[test]
fn the_chart_passes_helms_own_checks() -> anyhow::Result<()> {
    helm(&["lint", "--strict", "charts/dem-operator"]).map(drop)
}

#[test]
fn a_wrong_value_is_refused_with_its_name() -> anyhow::Result<()> {
    for (value, named) in [
        ("replicas=-1", "replicas"),
        ("logFormat=xml", "logFormat"),
        ("workerLeaseSeconds=1", "workerLeaseSeconds"),
        ("runAsUser=0", "runAsUser"),
        ("replicaCount=2", "replicaCount"),
        ("monitoring.podMonitor.interval=fast", "interval"),
    ] {
        let refused = helm(&["template", "dem", "charts/dem-operator", "--set", value]);
        let message = format!("{:#}", refused.err().with_context(|| format!("{value} was accepted"))?);
        anyhow::ensure!(message.contains(named), "{value}: {message}");
    }
    Ok(())
}

#[test]
fn the_plain_manifests_are_the_chart() -> anyhow::Result<()> {
    programs::run(Command::new(project().join("manifests/generate")).arg("--check"), "").map(drop)
}

#[test]
fn kustomize_builds_the_plain_manifests() -> anyhow::Result<()> {
    let built =
        programs::run(programs::tool("kubectl").current_dir(project()).args(["kustomize", "manifests"]), "")?;
    let plain = documents(&read("manifests/install.yaml")?)?;
    anyhow::ensure!(documents(&built)?.len() == plain.len(), "an object is missing");
    Ok(())
}

#[test]
fn the_operator_runs_without_privileges() -> anyhow::Result<()> {
    let all = template(&[])?;
    let deployments = of_kind(&all, "Deployment");
    anyhow::ensure!(deployments.len() == 1);
    let pod = &deployments[0]["spec"]["template"]["spec"];
    anyhow::ensure!(pod["securityContext"]["runAsNonRoot"] == true, "{pod}");
    anyhow::ensure!(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
    for container in pod["containers"].as_array().context("containers")? {
        let security = &container["securityContext"];
        anyhow::ensure!(
            security["readOnlyRootFilesystem"] == true && security["allowPrivilegeEscalation"] == false
        );
        anyhow::ensure!(security["capabilities"]["drop"][0] == "ALL");
        anyhow::ensure!(container["livenessProbe"]["httpGet"]["path"] == "/livez");
        anyhow::ensure!(container["readinessProbe"]["httpGet"]["path"] == "/readyz");
    }
    Ok(())
}

#[test]
fn every_variable_that_the_chart_sets_is_one_that_the_operator_reads() -> anyhow::Result<()> {
    let arguments = read("operator/src/args.rs")?;
    let all = template(&[])?;
    let environment = &of_kind(&all, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["env"];
    let variables = environment.as_array().context("env")?;
    anyhow::ensure!(variables.len() > 10);
    for variable in variables {
        let name = variable["name"].as_str().context("a variable has a name")?;
        anyhow::ensure!(
            arguments.contains(&format!("env = \"{name}\"")),
            "{name} is not in operator/src/args.rs"
        );
    }
    Ok(())
}

#[test]
fn the_crd_stays_when_the_release_goes_and_can_be_left_out() -> anyhow::Result<()> {
    let all = template(&[])?;
    let crds = of_kind(&all, "CustomResourceDefinition");
    anyhow::ensure!(crds.len() == 1);
    anyhow::ensure!(crds[0]["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep");
    let without = template(&["--set", "crds.install=false"])?;
    anyhow::ensure!(of_kind(&without, "CustomResourceDefinition").is_empty());
    Ok(())
}

#[test]
fn monitors_and_rules_appear_when_asked_for() -> anyhow::Result<()> {
    let without = template(&[])?;
    let with = template(&ALL_ON)?;
    for kind in ["ServiceMonitor", "PodMonitor", "PrometheusRule"] {
        anyhow::ensure!(of_kind(&without, kind).is_empty() && of_kind(&with, kind).len() == 1, "{kind}");
    }
    let rules = &of_kind(&with, "PrometheusRule")[0]["spec"];
    let plain: Value = serde_yaml::from_str(&read("charts/dem-operator/files/rules.yaml")?)?;
    anyhow::ensure!(*rules == plain, "the rules of chart and file differ");
    let dashboards = of_kind(&without, "ConfigMap");
    anyhow::ensure!(dashboards[0]["metadata"]["labels"]["grafana_dashboard"] == "1");
    let dashboard: Value =
        serde_json::from_str(dashboards[0]["data"]["dem-job.json"].as_str().context("dashboard")?)?;
    anyhow::ensure!(dashboard["title"] == "DEM job");
    Ok(())
}

#[test]
fn promtool_accepts_the_rules_and_their_tests() -> anyhow::Result<()> {
    let folder = project().join("charts/dem-operator/files");
    programs::run(
        programs::tool("promtool").current_dir(&folder).args(["check", "rules", "rules.yaml"]),
        "",
    )?;
    let tests = project().join("tests/rules");
    programs::run(programs::tool("promtool").current_dir(tests).args(["test", "rules", "alerts.yaml"]), "")
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_accepts_every_object_of_the_plain_manifests() -> anyhow::Result<()> {
    let server = ApiServer::start(&[])?;
    server.kubectl(&["apply", "--server-side", "-f", "-"], &read("manifests/install.yaml")?)?;
    // And again, over itself: the way to upgrade.
    server.kubectl(&["apply", "--server-side", "-f", "-"], &read("manifests/install.yaml")?)?;
    server
        .kubectl(&["wait", "--for=condition=Established", "--timeout=20s", "crd/demjobs.granular.dev"], "")?;
    server.kubectl(&["-n", "dem-operator-system", "get", "deploy/dem-operator"], "").map(drop)
}
