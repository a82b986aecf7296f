//! What is shipped is in step with the code. Needs no cluster and no program but cargo.
//!
//! `DEM_UPDATE=1 cargo test -p dem-tests --test packaging` rewrites the generated files.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use dem_operator::rbac;
use dem_tests::{job_from, programs, project, read, samples};
use promql_parser::parser::{Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};

/// Compares a generated file with what it should hold, or rewrites it under `DEM_UPDATE`.
fn is_current(path: &str, wanted: &str) -> anyhow::Result<()> {
    if std::env::var_os("DEM_UPDATE").is_some() {
        std::fs::write(project().join(path), wanted)?;
    }
    let found = read(path)?;
    anyhow::ensure!(found == wanted, "{path} is stale: run `make manifests`");
    Ok(())
}

#[test]
fn the_chart_carries_the_crd_that_the_types_generate() -> anyhow::Result<()> {
    let wanted = read("crds/demjobs.granular.dev.yaml")?;
    is_current("charts/dem-operator/files/demjobs.granular.dev.yaml", &wanted)?;
    // The chart's template adds an annotation after exactly this text.
    anyhow::ensure!(
        wanted.matches("metadata:\n  name: demjobs.granular.dev\n").count() == 1,
        "the CRD's metadata changed"
    );
    Ok(())
}

#[test]
fn the_chart_grants_what_the_operators_table_says() -> anyhow::Result<()> {
    for (path, scope) in [("rules-jobs.yaml", rbac::Scope::Jobs), ("rules-own.yaml", rbac::Scope::Own)] {
        let wanted = serde_yaml::to_string(&rbac::rules(scope))?;
        is_current(&format!("charts/dem-operator/files/{path}"), &wanted)?;
    }
    Ok(())
}

#[test]
fn every_sample_is_a_demjob_of_the_types_without_a_problem() -> anyhow::Result<()> {
    let samples = samples()?;
    anyhow::ensure!(samples.len() >= 5, "only {} samples", samples.len());
    for path in samples {
        let job = job_from(&read(&path)?).with_context(|| path.display().to_string())?;
        let Some(dem_crds::SimulationSource::Inline(simulation)) = &job.spec.simulation else {
            anyhow::bail!("{}: no inline simulation", path.display());
        };
        let problems = simulation.validate();
        anyhow::ensure!(problems.is_empty(), "{}: {problems:?}", path.display());
        let prepared = dem_config::prepare(simulation, &dem_config::Files::new())
            .map_err(|problems| anyhow::anyhow!("{}: {problems:?}", path.display()))?;
        anyhow::ensure!(prepared.end_step > 0, "{}: does not run", path.display());
    }
    Ok(())
}

/// Names of metrics in the source files that make them.
fn metrics() -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (path, prefix) in
        [("operator/launch/src/metrics.rs", "demsolver_"), ("operator/src/metrics.rs", "demoperator_")]
    {
        let text = read(path)?;
        for (at, _) in text.match_indices(prefix) {
            let is_start = !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let name: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            if is_start && name.len() > prefix.len() {
                names.insert(name);
            }
        }
    }
    anyhow::ensure!(names.len() > 20, "found only {names:?}");
    Ok(names)
}

/// Collects the selectors of an expression.
#[derive(Default)]
struct Selectors(Vec<VectorSelector>);

impl ExprVisitor for Selectors {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Self::Error> {
        match expression {
            Expr::VectorSelector(selector) => self.0.push(selector.clone()),
            Expr::MatrixSelector(selector) => self.0.push(selector.vs.clone()),
            _ => {}
        }
        Ok(true)
    }
}

/// Parses an expression and checks that it names metrics that exist, and no constant that hides missing data.
fn check_expression(place: &str, text: &str, metrics: &BTreeSet<String>) -> anyhow::Result<()> {
    let plain = text.replace("$__rate_interval", "1m").replace("$__range", "1h");
    let parsed = promql_parser::parser::parse(&plain).map_err(|e| anyhow::anyhow!("{place}: {e}: {text}"))?;
    anyhow::ensure!(!plain.contains("vector("), "{place}: a constant hides missing data: {text}");
    let mut selectors = Selectors::default();
    let Ok(_) = walk_expr(&mut selectors, &parsed);
    anyhow::ensure!(!selectors.0.is_empty(), "{place}: names no metric: {text}");
    for selector in selectors.0 {
        let name = selector.name.with_context(|| format!("{place}: a selector without a name: {text}"))?;
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(&name);
        anyhow::ensure!(
            metrics.contains(&name) || metrics.contains(family),
            "{place}: no metric {name}: {text}"
        );
    }
    Ok(())
}

/// Every string under the key `key`, anywhere in a JSON value.
fn strings<'a>(value: &'a serde_json::Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(map) => {
            for (k, v) in map {
                match v {
                    serde_json::Value::String(s) if k == key => found.push(s),
                    _ => strings(v, key, found),
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|v| strings(v, key, found)),
        _ => {}
    }
}

#[test]
fn every_query_of_the_dashboard_parses_and_names_metrics_that_exist() -> anyhow::Result<()> {
    let metrics = metrics()?;
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("charts/dem-operator/dashboards/dem-job.json")?)?;
    let mut queries = Vec::new();
    strings(&dashboard, "expr", &mut queries);
    anyhow::ensure!(queries.len() >= 15, "only {} queries", queries.len());
    for query in queries {
        check_expression("dem-job.json", query, &metrics)?;
    }
    let mut variables = Vec::new();
    strings(&dashboard["templating"], "query", &mut variables);
    for variable in variables.iter().filter_map(|v| v.strip_prefix("label_values(")) {
        let selector = variable.rsplit_once(',').context("label_values has a label")?.0;
        check_expression("dem-job.json variable", selector, &metrics)?;
    }
    Ok(())
}

#[test]
fn panels_have_their_own_places_and_say_what_they_show() -> anyhow::Result<()> {
    let dashboard: serde_json::Value =
        serde_json::from_str(&read("charts/dem-operator/dashboards/dem-job.json")?)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap_or_default();
        anyhow::ensure!(
            !title.is_empty() && panel["description"].as_str().is_some_and(|d| d.len() > 5),
            "{title}: no text"
        );
        anyhow::ensure!(ids.insert(panel["id"].as_i64()), "{title}: its id is taken");
        let place = |k: &str| panel["gridPos"][k].as_i64().with_context(|| format!("{title}: gridPos.{k}"));
        let (x, y, w, h) = (place("x")?, place("y")?, place("w")?, place("h")?);
        anyhow::ensure!(x + w <= 24, "{title}: beyond the grid");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            anyhow::ensure!(taken.insert(cell), "{title}: overlaps another panel at {cell:?}");
        }
    }
    Ok(())
}

#[test]
fn every_alert_parses_and_names_metrics_that_exist() -> anyhow::Result<()> {
    let metrics = metrics()?;
    let rules: serde_json::Value = serde_yaml::from_str(&read("charts/dem-operator/files/rules.yaml")?)?;
    let mut expressions = Vec::new();
    strings(&rules, "expr", &mut expressions);
    anyhow::ensure!(expressions.len() >= 3, "only {} alerts", expressions.len());
    expressions.iter().try_for_each(|e| check_expression("rules.yaml", e, &metrics))
}

/// Names of all packages that a package is built from.
fn built_from(package: &str) -> anyhow::Result<BTreeSet<String>> {
    let tree = programs::run(
        Command::new(env!("CARGO")).current_dir(project()).args([
            "tree",
            "--offline",
            "--locked",
            "-e",
            "normal",
            "--prefix",
            "none",
            "-f",
            "{p}",
            "-p",
            package,
        ]),
        "",
    )?;
    Ok(tree.lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).collect())
}

#[test]
fn crates_depend_one_way_and_pure_ones_have_no_way_to_do_io() -> anyhow::Result<()> {
    // Crate, our crates that it may be built from, and packages that would give it what it must not have.
    let kubernetes = ["kube", "kube-client", "k8s-openapi"];
    let io = ["tokio", "nix", "hyper", "rustls", "kube-client", "mpi", "mio", "socket2", "rand"];
    let none: [&str; 0] = [];
    let rules: [(&str, &[&str], &[&str]); 10] = [
        ("dem-page", &none, &io),
        ("dem-decomp", &none, &io),
        ("dem-core", &none, &io),
        ("dem-config", &none, &io),
        ("dem-comm", &["dem-core", "dem-decomp"], &kubernetes),
        ("dem-solver", &["dem-comm", "dem-core", "dem-decomp", "dem-config", "dem-page"], &kubernetes),
        ("dem-crds", &["dem-config"], &["tokio", "hyper", "kube-client", "mpi"]),
        (
            "dem-plan",
            &["dem-decomp", "dem-crds", "dem-config"],
            &["tokio", "hyper", "kube-client", "mpi", "rand"],
        ),
        ("dem-launch", &["dem-page"], &kubernetes),
        (
            "dem-operator",
            &["dem-config", "dem-crds", "dem-decomp", "dem-plan", "dem-launch", "dem-page"],
            &["mpi"],
        ),
    ];
    let locked = read("Cargo.lock")?;
    for (package, ours, never) in rules {
        for name in never {
            // A misspelt name would forbid nothing.
            anyhow::ensure!(
                locked.contains(&format!("name = \"{name}\"\n")),
                "no package {name} in Cargo.lock"
            );
        }
        for found in built_from(package)? {
            anyhow::ensure!(!never.contains(&found.as_str()), "{package} is built from {found}");
            let is_ours = found.starts_with("dem-") && found != package;
            anyhow::ensure!(
                !is_ours || ours.contains(&found.as_str()),
                "{package} must not depend on {found}"
            );
        }
    }
    Ok(())
}

#[test]
fn one_provider_of_cryptography_is_built_in() -> anyhow::Result<()> {
    for package in ["dem-operator", "dem-launch"] {
        let all = built_from(package)?;
        anyhow::ensure!(
            all.contains("ring") && !all.contains("aws-lc-rs"),
            "{package}: rustls cannot choose"
        );
    }
    Ok(())
}

#[test]
fn every_crate_takes_version_lints_and_licence_from_the_workspace() -> anyhow::Result<()> {
    let workspace: Vec<String> = read("Cargo.toml")?
        .lines()
        .filter_map(|l| l.trim().strip_prefix('"').and_then(|l| l.strip_suffix("\",")).map(str::to_owned))
        .filter(|m| Path::new(project()).join(m).join("Cargo.toml").exists())
        .collect();
    anyhow::ensure!(workspace.len() == 11, "members: {workspace:?}");
    for member in workspace {
        let manifest = read(format!("{member}/Cargo.toml"))?;
        for line in ["version.workspace = true", "license.workspace = true", "[lints]\nworkspace = true"] {
            anyhow::ensure!(manifest.contains(line), "{member}/Cargo.toml lacks `{line}`");
        }
    }
    Ok(())
}
