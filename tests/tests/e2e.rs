//! Jobs on a real kind cluster, under the operator installed from the chart.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context;
use dem_crds::DemJob;
use dem_tests::cluster::{Cluster, OPERATOR_NAMESPACE, TestNamespace, has_condition};
use dem_tests::local::{self, a_small_job};
use dem_tests::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};

/// A job of four ranks on each of `nodes` of the cluster's four workers.
fn four_per_node(name: &str, nodes: i64, counts: [i64; 3], steps: i64) -> Value {
    let mut job = a_small_job(counts, steps);
    job["metadata"]["name"] = json!(name);
    job["spec"]["ranks"] = json!(4 * nodes);
    job["spec"]["ranksPerNode"] = json!({"max": 4});
    job["spec"]["output"] = json!({"volume": {"persistentVolumeClaim": {"claimName": "dem-results"}}});
    job
}

/// A job on three of the four nodes with checkpoints, long enough to lose something in the middle.
fn a_long_job(name: &str) -> Value {
    let mut job = four_per_node(name, 3, [24, 24, 12], 4000);
    job["spec"]["checkpoint"] = json!({"volume": {"persistentVolumeClaim": {"claimName": "dem-results"}}});
    job["spec"]["simulation"]["inline"]["checkpoint"] = json!({"everySteps": 300});
    job
}

/// The final state's hash of an unbroken run of [`a_long_job`] on this machine, on one rank.
fn unbroken(job: &Value) -> anyhow::Result<String> {
    static HASH: OnceLock<String> = OnceLock::new();
    if let Some(hash) = HASH.get() {
        return Ok(hash.clone());
    }
    let folder = tempfile::tempdir()?;
    let hash = local::run(&job.to_string(), folder.path(), 1)?.state_hash()?.to_owned();
    Ok(HASH.get_or_init(|| hash).clone())
}

/// The last checkpoint that the job's status reports.
fn last_checkpoint(job: &DemJob) -> Option<i64> {
    job.status.as_ref()?.progress.as_ref()?.last_checkpoint_step
}

/// Starts a long job and waits until it has a checkpoint; the hash of an unbroken run, which is made first.
async fn met_in_its_middle(namespace: &TestNamespace, name: &str, job: &Value) -> anyhow::Result<String> {
    let hash = unbroken(job)?;
    namespace.apply(&job.to_string())?;
    let jobs = namespace.jobs().await?;
    let limit = Duration::from_secs(180);
    wait::until(&jobs, name, "it has a checkpoint", limit, |j| last_checkpoint(j) > Some(0)).await?;
    Ok(hash)
}

/// A worker of the job, and its node, that does not hold the launcher.
fn worker_without_launcher(namespace: &TestNamespace, job: &str) -> anyhow::Result<(String, String)> {
    let node = |pod: &str| namespace.kubectl(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]);
    let launcher = node(&format!("{job}-launcher-1"))?;
    for index in 0..3 {
        let pod = format!("{job}-w{index}-1");
        let node = node(&pod)?;
        if node != launcher {
            return Ok((pod, node));
        }
    }
    anyhow::bail!("every worker is on {launcher}")
}

/// Holds a job that lost something against an unbroken run: it went on from a checkpoint, counted the loss where it
/// belongs, and ended in the same state.
async fn went_on(namespace: &TestNamespace, name: &str, hash: &str, limit: Duration) -> anyhow::Result<()> {
    let job = namespace.ended(name, "Succeeded", limit).await?;
    let status = job.status.context("status")?;
    anyhow::ensure!(status.attempts.len() == 2, "attempts: {}", serde_json::to_string(&status.attempts)?);
    anyhow::ensure!(status.attempts[1].start_step > Some(0), "attempt 2 began at the start again");
    anyhow::ensure!(
        (status.infrastructure_losses, status.program_failures) == (1, 0),
        "counted {} losses and {} failures",
        status.infrastructure_losses,
        status.program_failures
    );
    let summary = namespace.summary(name, 2)?;
    anyhow::ensure!(summary["stateHash"] == *hash, "ended in {}, unbroken in {hash}", summary["stateHash"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_the_planned_nodes_and_succeeds() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("runs").await?;
    namespace.apply(&four_per_node("tumbler", 3, [24, 24, 12], 1000).to_string())?;
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

/// Steps at which the job's attempt 1 began and ended, from its summary.
fn steps_of(namespace: &TestNamespace, job: &str) -> anyhow::Result<(Value, Value)> {
    let summary = namespace.summary(job, 1)?;
    Ok((summary["startStep"].clone(), summary["endStep"].clone()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_created_again_begins_anew_and_another_one_begins_from_its_checkpoint() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("again").await?;
    let results = json!({"persistentVolumeClaim": {"claimName": "dem-results"}});
    let mut job = four_per_node("heap", 1, [12, 12, 6], 200);
    job["spec"]["output"] = json!({"volume": results});
    job["spec"]["checkpoint"] = json!({"volume": results});
    job["spec"]["simulation"]["inline"]["checkpoint"] = json!({"everySteps": 100});
    for _ in 0..2 {
        namespace.apply(&job.to_string())?;
        namespace.ended("heap", "Succeeded", Duration::from_secs(120)).await?;
        let steps = steps_of(&namespace, "heap")?;
        anyhow::ensure!(steps == (json!(0), json!(200)), "heap began and ended at {steps:?}");
        namespace.kubectl(&["delete", "demjob", "heap"])?;
    }
    // The job whose checkpoint it is need not exist any more.
    job["metadata"]["name"] = json!("longer");
    job["spec"]["restartFrom"] = json!({"job": "heap"});
    job["spec"]["simulation"]["inline"]["time"]["end"]["steps"] = json!(300);
    namespace.apply(&job.to_string())?;
    namespace.ended("longer", "Succeeded", Duration::from_secs(120)).await?;
    let steps = steps_of(&namespace, "longer")?;
    anyhow::ensure!(steps == (json!(200), json!(300)), "longer began and ended at {steps:?}");
    let runs = std::fs::read_dir(namespace.volume()?.join("heap"))?.count();
    anyhow::ensure!(runs == 2, "{runs} folders of the two jobs named heap");
    // One that names a job without checkpoints says so, once, and is not tried again.
    job["metadata"]["name"] = json!("nowhere");
    job["spec"]["restartFrom"] = json!({"job": "nobody"});
    namespace.apply(&job.to_string())?;
    let failed = namespace.ended("nowhere", "Failed", Duration::from_secs(120)).await?;
    let status = failed.status.context("status")?;
    let failure = serde_json::to_string(&status.failure)?;
    anyhow::ensure!(status.attempts.len() == 1 && failure.contains("no checkpoint there"), "{failure}");
    anyhow::ensure!(status.reason.as_deref() == Some("ConfigError"), "{:?}", status.reason);
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

/// One run of the benchmark: inter-node ghosts and payload bytes that the solver counted, and bytes on the wire.
async fn benchmark(namespace: &TestNamespace, name: &str, mapping: &str) -> anyhow::Result<[f64; 3]> {
    let full = soak();
    let mut job: Value =
        serde_json::to_value(dem_tests::job_from(&dem_tests::read("manifests/samples/p0.yaml")?)?)?;
    job["metadata"] = json!({"name": name});
    job["spec"]["placement"]["mapping"] = json!(mapping);
    job["spec"]["output"] = json!({"volume": {"persistentVolumeClaim": {"claimName": "dem-results"}}});
    // The workers stay, so that their network counters can be read when the job has ended.
    job["spec"]["cleanPodPolicy"] = json!("None");
    if !full {
        let simulation = &mut job["spec"]["simulation"]["inline"];
        simulation["domain"]["max"] = json!([0.5, 0.5, 0.5]);
        simulation["particles"][0]["lattice"]["counts"] = json!([63, 63, 32]);
        simulation["particles"][0]["lattice"]["fit"] = json!([0.5, 0.5, 32.0 * 0.5 / 63.0]);
    }
    namespace.apply(&job.to_string())?;
    let job = namespace.ended(name, "Succeeded", Duration::from_secs(600)).await?;
    let plan = job.status.and_then(|s| s.plan).context("plan")?;
    let summary = namespace.summary(name, 1)?;
    let counted = summary["startGhosts"]["interNode"].as_i64().context("ghosts")?;
    anyhow::ensure!(Some(counted) == plan.inter_node_ghosts, "counted {counted}, planned {plan:?}");
    anyhow::ensure!(summary["startGhosts"]["interRank"].as_i64() == plan.inter_rank_ghosts, "{plan:?}");
    if full {
        let published = if mapping == "Spatial" { 27_468 } else { 41_895 };
        anyhow::ensure!(counted == published, "{mapping}: counted {counted} ghosts, expected {published}");
    }
    let payload = summary["bytes"]["interNode"].as_f64().context("bytes")?;
    let mut wire = 0.0;
    for worker in 0..3 {
        let pod = format!("{name}-w{worker}-1");
        let sent =
            namespace.kubectl(&["exec", &pod, "--", "cat", "/sys/class/net/eth0/statistics/tx_bytes"])?;
        wire += sent.trim().parse::<f64>()?;
    }
    let ratio = wire / payload;
    println!(
        "{mapping}: {counted} ghosts between nodes, payload {payload} bytes, on the wire {ratio:.3} times that"
    );
    anyhow::ensure!((1.0..=1.1).contains(&ratio), "{wire} bytes left eth0, {payload} are counted");
    namespace.kubectl(&["delete", "demjob", name])?;
    Ok([counted as f64, payload, wire])
}

#[tokio::test(flavor = "multi_thread")]
async fn ghosts_are_as_planned_and_bytes_on_the_wire_as_counted() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("benchmark").await?;
    let spatial = benchmark(&namespace, "spatial", "Spatial").await?;
    let in_order = benchmark(&namespace, "in-order", "InOrder").await?;
    anyhow::ensure!(spatial[0] < in_order[0], "mapping saves nothing: {spatial:?}, {in_order:?}");
    let (payload, wire) = (in_order[1] / spatial[1], in_order[2] / spatial[2]);
    anyhow::ensure!(
        (wire / payload - 1.0).abs() < 0.05,
        "payload {payload} times as much, wire {wire} times"
    );
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_from_its_checkpoint_when_a_worker_pod_is_deleted() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("lost-pod").await?;
    let job = a_long_job("broken");
    let hash = met_in_its_middle(&namespace, "broken", &job).await?;
    namespace.kubectl(&["delete", "pod", "broken-w1-1", "--grace-period=0", "--force"])?;
    went_on(&namespace, "broken", &hash, Duration::from_secs(300)).await?;
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_elsewhere_when_a_node_stops() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("lost-node").await?;
    let job = a_long_job("broken");
    let hash = met_in_its_middle(&namespace, "broken", &job).await?;
    let (_, node) = worker_without_launcher(&namespace, "broken")?;
    cluster.docker(&["stop", "-t", "0", &node])?;
    let went_on = went_on(&namespace, "broken", &hash, Duration::from_secs(400)).await;
    cluster.docker(&["start", &node])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "node", &node, "--timeout=120s"])?;
    cluster.repair_network()?;
    went_on?;
    namespace.finish();
    Ok(())
}

/// The dashboard's queries for a job, as Grafana would send them.
fn dashboard_queries(namespace: &str, job: &str) -> anyhow::Result<Vec<String>> {
    let dashboard: Value =
        serde_json::from_str(&dem_tests::read("charts/dem-operator/dashboards/dem-job.json")?)?;
    let mut queries = Vec::new();
    let mut open = vec![&dashboard];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                queries.extend(map.get("expr").and_then(Value::as_str).map(|expression| {
                    expression
                        .replace("$demjob", job)
                        .replace("$namespace", namespace)
                        .replace("$attempt", ".*")
                        .replace("$__rate_interval", "10s")
                }));
                open.extend(map.values());
            }
            Value::Array(list) => open.extend(list),
            _ => {}
        }
    }
    anyhow::ensure!(queries.len() >= 15, "only {} queries in the dashboard", queries.len());
    Ok(queries)
}

/// Waits until every query has an answer with data (`full`), or none has.
async fn answered(cluster: &Cluster, queries: &[String], full: bool) -> anyhow::Result<()> {
    let what = if full { "every query has data" } else { "no query has data" };
    wait::until_answer(what, Duration::from_secs(90), || async {
        for query in queries {
            let series = cluster.query(query)?;
            anyhow::ensure!(series.is_empty() != full, "{} series for {query}", series.len());
        }
        Ok(())
    })
    .await
}

/// Names of the alerts that fire for a job.
fn firing(cluster: &Cluster, namespace: &str, job: &str) -> anyhow::Result<Vec<String>> {
    let query =
        format!("ALERTS{{alertstate=\"firing\", demjob=\"{job}\", demjob_namespace=\"{namespace}\"}}");
    let series = cluster.query(&query)?;
    Ok(series.iter().filter_map(|(labels, _)| Some(labels["alertname"].as_str()?.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_has_data_while_a_job_runs_and_none_after_it() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    cluster.prometheus()?;
    let namespace = cluster.namespace("watched").await?;
    // It runs until everything is seen, however fast the machine.
    let mut job = four_per_node("watched", 3, [24, 24, 12], 1_000_000);
    job["spec"]["simulation"]["inline"]["profile"] = json!(true);
    namespace.apply(&job.to_string())?;
    let queries = dashboard_queries(&namespace.name, "watched")?;
    answered(cluster, &queries, true).await?;
    let alerts = firing(cluster, &namespace.name, "watched")?;
    anyhow::ensure!(alerts.is_empty(), "a healthy run raises {alerts:?}");
    let ranks = cluster.query(&format!("demsolver_step{{demjob_namespace=\"{}\"}}", namespace.name))?;
    anyhow::ensure!(ranks.len() == 12, "{} ranks report", ranks.len());
    for (labels, _) in &ranks {
        anyhow::ensure!(labels["job"] == "dem-operator-system/dem-operator-jobs", "{labels}");
        anyhow::ensure!(labels["namespace"] == *namespace.name && labels["demjob"] == "watched", "{labels}");
    }
    let patch = |spec: Value| {
        let patch = json!({"spec": spec}).to_string();
        namespace.kubectl(&["patch", "demjob", "watched", "--type=merge", "-p", &patch])
    };
    patch(json!({"suspend": true}))?;
    let jobs = namespace.jobs().await?;
    wait::until(&jobs, "watched", "it is suspended", Duration::from_secs(120), |job| {
        has_condition(job, "Suspended")
    })
    .await?;
    patch(json!({"simulation": {"inline": {"time": {"end": {"steps": 200}}}}, "suspend": false}))?;
    namespace.ended("watched", "Succeeded", Duration::from_secs(300)).await?;
    answered(cluster, &queries, false).await?;
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skewed_and_a_failed_job_raise_their_alerts() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    cluster.prometheus()?;
    let namespace = cluster.namespace("alerts").await?;
    namespace.apply(&dem_tests::read("manifests/samples/skewed.yaml")?)?;
    let mut failing = four_per_node("failing", 1, [4, 4, 4], 1);
    failing["spec"].as_object_mut().context("a spec")?.remove("simulation");
    failing["spec"]["program"] = json!({"command": ["/bin/sh", "-c", "echo no such luck >&2; exit 3"]});
    namespace.apply(&failing.to_string())?;
    let failed = namespace.ended("failing", "Failed", Duration::from_secs(120)).await?;
    let failure = serde_json::to_value(failed.status.and_then(|s| s.failure))?;
    anyhow::ensure!(failure["exitCode"] == 3 && failure["lastLines"][0] == "no such luck", "{failure}");
    for (job, alert) in [("failing", "DemJobFailed"), ("skewed", "DemJobImbalanced")] {
        wait::until_answer(alert, Duration::from_secs(240), || async {
            let alerts = firing(cluster, &namespace.name, job)?;
            anyhow::ensure!(alerts == [alert], "{job} raises {alerts:?}");
            Ok(())
        })
        .await?;
    }
    // Two sheets against one: L_max / L_mean = 4/3.
    let jobs = namespace.jobs().await?;
    let near = |j: &DemJob| {
        let lambda = j.status.as_ref().and_then(|s| s.imbalance.as_ref()).map(|i| i.lambda);
        lambda.is_some_and(|l| (28.0..39.0).contains(&l))
    };
    wait::until(&jobs, "skewed", "lambda is near 33 %", Duration::from_secs(60), near).await?;
    namespace.finish();
    Ok(())
}

/// Hashes of the files below a folder that are not of attempt 1, by path.
fn files_of_later_attempts(folder: &Path) -> anyhow::Result<BTreeMap<PathBuf, u64>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name == "attempt-1") {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                let mut hasher = DefaultHasher::new();
                std::fs::read(&path)?.hash(&mut hasher);
                found.insert(path, hasher.finish());
            }
        }
    }
    Ok(found)
}

/// Whether the full counts are asked for.
fn soak() -> bool {
    std::env::var_os("DEM_TESTS_SOAK").is_some()
}

/// A job loses the worker on one of its nodes to `freeze`, moves on and ends; then `thaw` wakes what was frozen, and
/// nothing of the later attempt may change. Both are given the pod and its node.
async fn wakes_and_changes_nothing(
    test: &str,
    freeze: impl Fn(&TestNamespace, &str, &str) -> anyhow::Result<()>,
    thaw: impl Fn(&TestNamespace, &str, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace(test).await?;
    let mut job = a_long_job("frozen");
    job["spec"]["cleanPodPolicy"] = json!("None");
    let hash = met_in_its_middle(&namespace, "frozen", &job).await?;
    let (pod, node) = worker_without_launcher(&namespace, "frozen")?;
    freeze(&namespace, &pod, &node)?;
    let jobs = namespace.jobs().await?;
    let moved_on = |job: &DemJob| {
        let status = job.status.as_ref();
        status.is_some_and(|s| s.attempt == Some(2) && s.state == Some(dem_crds::State::Running))
    };
    let limit = Duration::from_secs(300);
    let moved_on = wait::until(&jobs, "frozen", "attempt 2 runs", limit, moved_on).await;
    // Attempts 1 and 2 now run side by side for as long as it takes the woken ranks to notice.
    thaw(&namespace, &pod, &node)?;
    moved_on?;
    went_on(&namespace, "frozen", &hash, Duration::from_secs(400)).await?;
    let before = files_of_later_attempts(&namespace.volume()?)?;
    anyhow::ensure!(before.keys().any(|p| p.ends_with("attempt-2/summary.json")), "{before:?}");
    // The point is that nothing happens in this time: there is no condition to wait for.
    tokio::time::sleep(Duration::from_secs(if soak() { 60 } else { 20 })).await;
    let after = files_of_later_attempts(&namespace.volume()?)?;
    anyhow::ensure!(before == after, "files changed: {before:?} became {after:?}");
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-soak runs it"]
async fn a_paused_node_that_wakes_changes_nothing() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    wakes_and_changes_nothing(
        "paused",
        |_, _, node| cluster.docker(&["pause", node]).map(drop),
        |_, _, node| {
            cluster.docker(&["unpause", node])?;
            cluster.kubectl(&["wait", "--for=condition=Ready", "node", node, "--timeout=120s"])?;
            Ok(())
        },
    )
    .await
}

/// Sends a signal to a worker pod's agent alone, from its node.
fn signal_agent(pod: &str, node: &str, signal: &str) -> anyhow::Result<()> {
    // A pod's name is its host name; not every node's cgroups tell its pods apart.
    let script = format!(
        "for p in $(pgrep -f 'dem-agent worker'); do \
         grep -qx {pod} /proc/$p/root/etc/hostname && kill -{signal} $p && echo $p; done; true"
    );
    let signalled = Cluster::shared().docker(&["exec", node, "sh", "-c", &script])?;
    anyhow::ensure!(signalled.lines().count() == 1, "agents of {pod} on {node}: {signalled:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-soak runs it"]
async fn ranks_below_a_stopped_agent_change_nothing() -> anyhow::Result<()> {
    wakes_and_changes_nothing(
        "stopped",
        |_, pod, node| signal_agent(pod, node, "STOP"),
        |_, pod, node| signal_agent(pod, node, "CONT"),
    )
    .await
}

/// The step that a rank's page shows to Prometheus, read without the operator.
fn step_of_rank_0(cluster: &Cluster, namespace: &TestNamespace) -> anyhow::Result<f64> {
    let query = format!("demsolver_step{{demjob_namespace=\"{}\", rank=\"0\"}}", namespace.name);
    Ok(cluster.query(&query)?.first().context("no series of rank 0")?.1)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-soak runs it"]
async fn a_running_job_does_not_notice_that_the_operator_is_away() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    cluster.prometheus()?;
    let namespace = cluster.namespace("alone").await?;
    let away = Duration::from_secs(if soak() { 300 } else { 30 });
    let mut job = a_long_job("alone");
    job["spec"]["simulation"]["inline"]["time"]["end"] = json!({"steps": 1_000_000});
    namespace.apply(&job.to_string())?;
    let jobs = namespace.jobs().await?;
    let limit = Duration::from_secs(180);
    wait::until(&jobs, "alone", "it has a checkpoint", limit, |j| last_checkpoint(j) > Some(0)).await?;
    let scale = |replicas: &str| {
        cluster.kubectl(&["-n", OPERATOR_NAMESPACE, "scale", "deploy/dem-operator", "--replicas", replicas])
    };
    let scraped = || async { step_of_rank_0(cluster, &namespace) };
    let mut last = wait::until_answer("rank 0 is scraped", Duration::from_secs(60), scraped).await?;
    scale("0")?;
    let stepping = async {
        let started = std::time::Instant::now();
        while started.elapsed() < away {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let step = step_of_rank_0(cluster, &namespace)?;
            anyhow::ensure!(
                step > last,
                "still at step {step} after {:?} without operator",
                started.elapsed()
            );
            last = step;
        }
        Ok(last)
    }
    .await;
    scale("2")?;
    let reached = stepping?;
    println!("without operator for {} s: on to step {reached}", away.as_secs());
    let further = |j: &DemJob| {
        let progress = j.status.as_ref().and_then(|s| s.progress.as_ref());
        progress.is_some_and(|p| p.step as f64 > reached)
    };
    let job = wait::until(&jobs, "alone", "its status goes on", Duration::from_secs(90), further).await?;
    let status = job.status.context("status")?;
    anyhow::ensure!(status.attempts.len() == 1, "{}", serde_json::to_string(&status.attempts)?);
    namespace.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-soak runs it"]
async fn a_job_whose_ranks_stand_still_raises_its_alert() -> anyhow::Result<()> {
    let cluster = Cluster::shared();
    cluster.prometheus()?;
    let namespace = cluster.namespace("stalled").await?;
    let mut job = four_per_node("stalled", 1, [24, 24, 12], 1_000_000);
    job["spec"]["ranks"] = json!(2);
    namespace.apply(&job.to_string())?;
    let jobs = namespace.jobs().await?;
    let stepping = |j: &DemJob| {
        let progress = j.status.as_ref().and_then(|s| s.progress.as_ref());
        progress.is_some_and(|p| p.step > 0)
    };
    wait::until(&jobs, "stalled", "it steps", Duration::from_secs(120), stepping).await?;
    // One rank that stands still holds up all.
    let script = "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm)\" = dem-solver ]; then kill -STOP ${p#/proc/}; exit 0; fi; done; exit 1";
    namespace.kubectl(&["exec", "stalled-w0-1", "--", "sh", "-c", script])?;
    wait::until_answer("DemJobStalled", Duration::from_secs(300), || async {
        let alerts = firing(cluster, &namespace.name, "stalled")?;
        anyhow::ensure!(alerts == ["DemJobStalled"], "stalled raises {alerts:?}");
        Ok(())
    })
    .await?;
    namespace.finish();
    Ok(())
}
