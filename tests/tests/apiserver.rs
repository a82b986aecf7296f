//! What a real API server says to the CRD, the samples, and wrong manifests.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::time::Duration;

use anyhow::Context;
use dem_crds::DemJob;
use dem_tests::api_server::ApiServer;
use dem_tests::{job_from, read, samples};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

/// A job that is accepted; each test of a refusal changes one thing.
fn a_job() -> Value {
    json!({
        "apiVersion": "granular.dev/v1alpha1", "kind": "DemJob", "metadata": {"name": "hourglass"},
        "spec": {
            "ranks": 4,
            "simulation": {"inline": {
                "domain": {"min": [0, 0, 0], "max": [0.3, 0.2, 0.1]},
                "materials": [{"name": "glass", "density": 2500, "youngsModulus": 1e7, "poissonRatio": 0.2}],
                "pairs": [{"materials": ["glass", "glass"], "restitution": 0.5, "friction": 0.4}],
                "particles": [{"lattice": {"counts": [10, 8, 6], "spacing": 0.01, "radius": 0.004, "material": "glass"}}],
                "time": {"end": {"steps": 100}}
            }}
        }
    })
}

/// Sets the value at a JSON pointer, or removes it for `null`.
fn with(mut job: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
    match job.pointer_mut(parent) {
        Some(Value::Object(map)) if value.is_null() => drop(map.remove(key)),
        Some(Value::Object(map)) => drop(map.insert(key.to_owned(), value)),
        Some(Value::Array(list)) => list[key.parse::<usize>().unwrap()] = value,
        other => panic!("{pointer}: the parent is {other:?}"),
    }
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crd_is_established_without_a_warning_and_stays_small() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let crd: Value =
        serde_json::from_str(&server.kubectl(&["get", "crd", "demjobs.granular.dev", "-o", "json"], "")?)?;
    let conditions = crd["status"]["conditions"].as_array().context("conditions")?;
    for (kind, wanted) in [("Established", "True"), ("NamesAccepted", "True")] {
        let found = conditions.iter().find(|c| c["type"] == kind).with_context(|| format!("no {kind}"))?;
        anyhow::ensure!(found["status"] == wanted, "{found}");
    }
    // An invalid structural schema is stored all the same, and only a condition says so.
    anyhow::ensure!(!conditions.iter().any(|c| c["type"] == "NonStructuralSchema"), "{conditions:?}");
    let applied = server
        .kubectl_output(&["apply", "--server-side", "-f", "-"], &read("crds/demjobs.granular.dev.yaml")?)?;
    let said = String::from_utf8_lossy(&applied.stderr).into_owned();
    anyhow::ensure!(applied.status.success() && said.is_empty(), "{said}");
    let size = read("crds/demjobs.granular.dev.yaml")?.len();
    anyhow::ensure!(size < 200_000, "the CRD has {size} bytes; client-side apply ends at 262,144");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_accepted_and_read_back_as_it_was_written() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let namespace = server.namespace("samples").await?;
    let jobs = Api::<DemJob>::namespaced(server.client().await?, &namespace);
    for path in samples()? {
        let text = read(&path)?;
        let applied =
            server.kubectl_output(&["-n", &namespace, "apply", "--validate=strict", "-f", "-"], &text)?;
        let said = String::from_utf8_lossy(&applied.stderr).into_owned();
        anyhow::ensure!(applied.status.success() && said.is_empty(), "{}: {said}", path.display());
        let written = job_from(&text)?;
        let stored = jobs.get(&written.name_any()).await?;
        anyhow::ensure!(stored.spec == written.spec, "{}: the server changed the spec", path.display());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_kubectl_get_are_there_before_the_operator_says_anything() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let namespace = server.namespace("columns").await?;
    server.kubectl(&["-n", &namespace, "create", "-f", "-"], &a_job().to_string())?;
    let table = server.kubectl(&["-n", &namespace, "get", "dj"], "")?;
    let header = table.lines().next().context("a table has a header")?;
    for column in ["NAME", "STATE", "STEP", "RATE", "LEFT", "Λ", "NODES", "AGE"] {
        anyhow::ensure!(header.split_whitespace().any(|c| c == column), "no column {column}: {header}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_manifests_are_refused_at_apply_with_the_field_and_what_is_wrong() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let namespace = server.namespace("refusals").await?;
    let simulation = "/spec/simulation/inline";
    let at = |field: &str| format!("{simulation}/{field}");
    let lattice = json!({"counts": [0, 8, 6], "spacing": 0.01, "radius": 0.004, "material": "glass"});
    let random = json!({"count": 0, "seed": 1, "min": [0, 0, 0], "max": [1, 1, 1], "radius": {"min": 0.01, "max": 0.01}, "material": "glass"});
    let config_map = json!({"name": "elsewhere", "key": "simulation.yaml"});
    // What is wrong, the manifest, and what the message must name.
    let wrong: Vec<(&str, String, &str)> = [
        ("unknown key of the job", with(a_job(), "/spec/rank", json!(4)), "spec.rank"),
        (
            "unknown key of the simulation",
            with(a_job(), &at("materials/0/youngModulus"), json!(1e7)),
            "youngModulus",
        ),
        ("no ranks", with(a_job(), "/spec/ranks", Value::Null), "spec.ranks"),
        ("zero ranks", with(a_job(), "/spec/ranks", json!(0)), "spec.ranks"),
        ("half a rank", with(a_job(), "/spec/ranks", json!(1.5)), "spec.ranks"),
        ("negative radius", with(a_job(), &at("particles/0/lattice/radius"), json!(-0.004)), "radius"),
        (
            "zero particles of a lattice",
            with(a_job(), &at("particles/0"), json!({"lattice": lattice})),
            "counts",
        ),
        ("zero random particles", with(a_job(), &at("particles/0"), json!({"random": random})), "count"),
        ("no source of particles", with(a_job(), &at("particles"), json!([])), "particles"),
        ("restitution above 1", with(a_job(), &at("pairs/0/restitution"), json!(1.2)), "restitution"),
        ("negative friction", with(a_job(), &at("pairs/0/friction"), json!(-0.1)), "friction"),
        (
            "Poisson ratio above 0.5",
            with(a_job(), &at("materials/0/poissonRatio"), json!(0.7)),
            "poissonRatio",
        ),
        ("no materials", with(a_job(), &at("materials"), json!([])), "materials"),
        ("a vector of two", with(a_job(), &at("domain/max"), json!([0.3, 0.2])), "domain.max"),
        ("a face that does not exist", with(a_job(), &at("domain/faces"), json!({"xMin": "wall"})), "xMin"),
        ("a ghost layer that does not exist", with(a_job(), &at("ghostLayer"), json!("3R")), "ghostLayer"),
        ("two ends", with(a_job(), &at("time/end"), json!({"steps": 5, "seconds": 1.0})), "end"),
        (
            "simulation and program",
            with(a_job(), "/spec/program", json!({"command": ["a.out"]})),
            "exactly one of",
        ),
        ("neither simulation nor program", with(a_job(), "/spec/simulation", Value::Null), "exactly one of"),
        ("inline and configMap", with(a_job(), "/spec/simulation/configMap", config_map), "spec.simulation"),
        ("a name of 63 characters", with(a_job(), "/metadata/name", json!("n".repeat(63))), "metadata.name"),
        (
            "a memory of no quantity",
            with(a_job(), "/spec/resources", json!({"memoryPerRank": "512Mb"})),
            "memoryPerRank",
        ),
        ("no memory", with(a_job(), "/spec/resources", json!({"memoryPerRank": "0"})), "memoryPerRank"),
        (
            "two periods",
            with(a_job(), "/spec/checkpoint", json!({"everySteps": 5, "everySeconds": 5})),
            "at most one of",
        ),
        (
            "a period in seconds",
            with(a_job(), "/spec/checkpoint", json!({"everySeconds": 5})),
            "give everySteps",
        ),
        ("ranks bound", with(a_job(), "/spec/pinning", json!({"numa": "Packed"})), "spec.pinning"),
        (
            "least above most",
            with(a_job(), "/spec/ranksPerNode", json!({"min": 4, "max": 2})),
            "ranksPerNode",
        ),
        (
            "a mapping in lower case",
            with(a_job(), "/spec/placement", json!({"mapping": "spatial"})),
            "mapping",
        ),
        (
            "a program without a command",
            with(with(a_job(), "/spec/simulation", Value::Null), "/spec/program", json!({"command": []})),
            "command",
        ),
        (
            "a restart without a volume",
            with(a_job(), "/spec/restartFrom", json!({"job": "older"})),
            "restartFrom",
        ),
    ]
    .map(|(what, job, named)| (what, job.to_string(), named))
    .into_iter()
    .chain([("not a number", serde_yaml::to_string(&a_job())?.replace("0.004", ".nan"), "NaN")])
    .collect();
    anyhow::ensure!(wrong.len() >= 20);
    for (what, manifest, named) in &wrong {
        let created =
            server.kubectl_output(&["-n", &namespace, "create", "--validate=strict", "-f", "-"], manifest)?;
        let said = String::from_utf8_lossy(&created.stderr).into_owned();
        anyhow::ensure!(!created.status.success(), "{what}: accepted: {manifest}");
        anyhow::ensure!(said.contains(named), "{what}: the message does not name {named}: {said}");
    }
    let jobs = Api::<DemJob>::namespaced(server.client().await?, &namespace);
    anyhow::ensure!(jobs.list(&Default::default()).await?.items.is_empty(), "something was stored");
    // The job that they all are but for one thing is good.
    server
        .kubectl(&["-n", &namespace, "create", "--validate=strict", "-f", "-"], &a_job().to_string())
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fixed_can_be_changed_until_the_job_has_started() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let namespace = server.namespace("fixed").await?;
    let jobs = Api::<DemJob>::namespaced(server.client().await?, &namespace);
    server.kubectl(&["-n", &namespace, "create", "-f", "-"], &a_job().to_string())?;
    let patch = |change: Value| {
        let jobs = jobs.clone();
        async move { jobs.patch("hourglass", &PatchParams::default(), &Patch::Merge(&change)).await }
    };
    let gravity = |g: f64| json!({"spec": {"simulation": {"inline": {"gravity": [0, 0, g]}}}});
    patch(gravity(-1.62)).await.context("before the start gravity may change")?;
    let started = json!({"status": {"attempt": 1}});
    jobs.patch_status("hourglass", &PatchParams::default(), &Patch::Merge(&started)).await?;
    let refused = patch(gravity(-3.7)).await.err().context("gravity changed after the start")?;
    anyhow::ensure!(refused.to_string().contains("gravity is fixed once the job has started"), "{refused}");
    for allowed in [
        json!({"spec": {"ranks": 8}}),
        json!({"spec": {"suspend": true}}),
        json!({"spec": {"simulation": {"inline": {"time": {"end": {"steps": 200}}}}}}),
        json!({"spec": {"simulation": {"inline": {"outputs": {"everySteps": 10}}}}}),
    ] {
        patch(allowed.clone()).await.with_context(|| format!("{allowed} must stay possible"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_a_subresource_that_a_spec_cannot_write() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let namespace = server.namespace("status").await?;
    let job = with(a_job(), "/status", json!({"attempt": 7}));
    server.kubectl(&["-n", &namespace, "create", "-f", "-"], &job.to_string())?;
    let jobs = Api::<DemJob>::namespaced(server.client().await?, &namespace);
    let stored =
        dem_tests::wait::until(&jobs, "hourglass", "it is there", Duration::from_secs(10), |_| true).await?;
    anyhow::ensure!(
        stored.status.and_then(|s| s.attempt).is_none(),
        "the status was taken from the manifest"
    );
    Ok(())
}
