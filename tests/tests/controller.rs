//! The operator's program against a real API server, under its own service account and role.
//!
//! There is no kubelet in this tier: [`Kubelet`] does its part for one namespace, with real agents as the pods'
//! processes on loopback addresses and a real `mpirun` between them.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails where it stands")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use dem_crds::{Cost, DemJob, State, conditions, reasons};
use dem_operator::rbac;
use dem_plan::status::condition;
use dem_tests::api_server::{ApiServer, Audit};
use dem_tests::{job_from, programs, wait};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

/// Longest wait for anything that takes a launch.
const LAUNCH: Duration = Duration::from_secs(90);
/// Longest wait for a decision.
const SOON: Duration = Duration::from_secs(30);

/// A replica of the operator; ends with this.
struct Operator {
    child: Child,
    namespace: String,
    /// Holds the kubeconfig and the replicas' logs.
    folder: Arc<tempfile::TempDir>,
    log: PathBuf,
}

impl Operator {
    /// Starts the built program as the user that the generated roles are for.
    async fn start(server: &ApiServer) -> anyhow::Result<Self> {
        let namespace = server.namespace("operator").await?;
        let bindings = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount",
             "metadata": {"name": "dem-operator", "namespace": namespace}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
             "metadata": {"name": "dem-operator"},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dem-operator"},
             "subjects": [{"kind": "ServiceAccount", "name": "dem-operator", "namespace": namespace}]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
             "metadata": {"name": "dem-operator", "namespace": namespace},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dem-operator"},
             "subjects": [{"kind": "ServiceAccount", "name": "dem-operator", "namespace": namespace}]},
        ]});
        server.kubectl(&["-n", &namespace, "apply", "-f", "-"], &rbac::manifests()?)?;
        server.kubectl(&["apply", "-f", "-"], &bindings.to_string())?;
        let token =
            server.kubectl(&["-n", &namespace, "create", "token", "dem-operator", "--duration=2h"], "")?;
        let mut config: Value = serde_yaml::from_str(&std::fs::read_to_string(server.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("kubeconfig"), serde_yaml::to_string(&config)?)?;
        Self::replica(namespace, Arc::new(folder), 0)
    }

    /// Starts another replica beside this one.
    fn beside(&self) -> anyhow::Result<Self> {
        Self::replica(self.namespace.clone(), self.folder.clone(), 1)
    }

    fn replica(namespace: String, folder: Arc<tempfile::TempDir>, number: u8) -> anyhow::Result<Self> {
        let log = folder.path().join(format!("log-{number}"));
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new(programs::ours("dem-operator")?)
            .env("KUBECONFIG", folder.path().join("kubeconfig"))
            .env("POD_NAMESPACE", &namespace)
            .env("POD_NAME", format!("dem-operator-{number}"))
            .env("DEM_HTTP_ADDRESS", format!("127.0.0.1:{port}"))
            .env("DEM_LOG_FORMAT", "text")
            .args(["--poll-seconds", "1", "--progress-seconds", "1", "--worker-lease-seconds", "3"])
            .args(["--grace-seconds", "10"])
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?)
            .spawn()?;
        Ok(Self { child, namespace, folder, log })
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }

    /// What the operator asked of the server so far.
    fn requests(&self, server: &ApiServer) -> anyhow::Result<Vec<Audit>> {
        let user = format!("system:serviceaccount:{}:dem-operator", self.namespace);
        Ok(server.audit()?.into_iter().filter(|entry| entry.user.username == user).collect())
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(120)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A namespace with nodes of its own, and what a test does in it.
#[derive(Clone)]
struct Lab {
    client: Client,
    namespace: String,
    /// Third part of the pods' loopback addresses.
    number: u8,
}

impl Lab {
    async fn new(server: &ApiServer, name: &str, number: u8) -> anyhow::Result<Self> {
        Ok(Self { client: server.client().await?, namespace: server.namespace(name).await?, number })
    }

    fn jobs(&self) -> Api<DemJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn node_name(&self, index: usize) -> String {
        format!("{}-{index}", self.namespace)
    }

    /// A node that is ready, with two free cores above the reserve.
    async fn node(&self, index: usize) -> anyhow::Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let name = self.node_name(index);
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"lab": self.namespace}}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        // Admission gives every new node the taint `not-ready`, which a controller takes away elsewhere.
        let bare = Patch::Merge(json!({"spec": {"taints": null}}));
        nodes.patch(&name, &PatchParams::default(), &bare).await?;
        let amounts = json!({"cpu": "3", "memory": "4Gi", "pods": "110"});
        let ready = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
             "lastHeartbeatTime": null, "lastTransitionTime": null}]}});
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await?;
        Ok(())
    }

    /// A job of two ranks on two nodes that runs a shell line; `spec` is merged into it.
    async fn job(&self, name: &str, line: &str, spec: Value) -> anyhow::Result<()> {
        let mut job = json!({"apiVersion": "granular.dev/v1alpha1", "kind": "DemJob", "metadata": {"name": name},
            "spec": {"ranks": 2, "ranksPerNode": {"max": 1}, "program": {"command": ["sh", "-c", line]},
                     "placement": {"nodeSelector": {"lab": self.namespace}}}});
        for (key, value) in spec.as_object().context("a spec is an object")? {
            job["spec"][key] = value.clone();
        }
        if job["spec"]["program"].is_null() {
            job["spec"].as_object_mut().context("a spec is an object")?.remove("program");
        }
        self.create(&job).await
    }

    async fn create(&self, job: &Value) -> anyhow::Result<()> {
        self.jobs().create(&PostParams::default(), &job_from(&job.to_string())?).await?;
        Ok(())
    }

    async fn change(&self, name: &str, spec: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.jobs().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for a state.
    async fn state(&self, name: &str, state: State, limit: Duration) -> anyhow::Result<DemJob> {
        let holds = |job: &DemJob| job.status.as_ref().and_then(|s| s.state) == Some(state);
        wait::until(&self.jobs(), name, &format!("it is {state:?}"), limit, holds).await
    }

    /// Waits for a false condition with this reason; its message.
    async fn refusal(&self, name: &str, type_: &str, reason: &str) -> anyhow::Result<String> {
        let found = |job: &DemJob| {
            let condition = condition(job.status.as_ref()?, type_)?;
            (condition.status == "False" && condition.reason == reason).then(|| condition.message.clone())
        };
        let what = format!("{type_} is False because of {reason}");
        let job = wait::until(&self.jobs(), name, &what, SOON, |job| found(job).is_some()).await?;
        found(&job).context("just seen")
    }

    async fn pod_count(&self) -> anyhow::Result<usize> {
        Ok(self.pods().list(&ListParams::default()).await?.items.len())
    }
}

/// One launch at a time, as in the tests of the agents: the daemons of several `mpirun` on one machine share the few
/// ports that are pinned for the pods of one job.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Binds and runs the pods of one namespace.
struct Kubelet(JoinHandle<()>, #[expect(dead_code, reason = "held")] tokio::sync::MutexGuard<'static, ()>);

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The process of a pod; ends with it.
struct Process {
    child: Child,
    folder: tempfile::TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Kubelet {
    async fn start(lab: &Lab) -> Self {
        let (lab, turn) = (lab.clone(), TURN.lock().await);
        let task = tokio::spawn(async move {
            let (mut processes, mut made) = (BTreeMap::new(), 0);
            let mut ticks = tokio::time::interval(Duration::from_millis(200));
            loop {
                ticks.tick().await;
                if let Err(error) = look(&lab, &mut processes, &mut made).await {
                    eprintln!("kubelet of {}: {error:#}", lab.namespace);
                }
            }
        });
        Self(task, turn)
    }
}

async fn look(lab: &Lab, processes: &mut BTreeMap<String, Process>, made: &mut u8) -> anyhow::Result<()> {
    for pod in lab.pods().list(&ListParams::default()).await?.items {
        let (name, uid) = (pod.name_any(), pod.uid().context("uid")?);
        let status = pod.status.clone().unwrap_or_default();
        let role = pod.labels().get("granular.dev/role").cloned().context("role")?;
        if pod.metadata.deletion_timestamp.is_some() {
            // A kubelet reports that the containers have ended, and at once removes the pod.
            if processes.remove(&uid).is_some() && status.phase.as_deref() == Some("Running") {
                let state = json!({"terminated": {"exitCode": 137, "message": ""}});
                set_status(lab, &name, "Failed", None, &role, state).await?;
            }
            lab.pods().delete(&name, &DeleteParams::default().grace_period(0)).await?;
            continue;
        }
        if status.phase.as_deref() == Some("Running") {
            let Some(process) = processes.get_mut(&uid) else { continue };
            if let Some(ended) = process.child.try_wait()? {
                let message = std::fs::read_to_string(process.folder.path().join("termination-log"));
                let code = ended.code().unwrap_or(137);
                let phase = if code == 0 { "Succeeded" } else { "Failed" };
                let state = json!({"terminated": {"exitCode": code, "message": message.unwrap_or_default()}});
                set_status(lab, &name, phase, None, &role, state).await?;
            }
            continue;
        }
        if status.phase.as_deref() != Some("Pending") {
            continue;
        }
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()) {
            let spec = serde_json::to_value(&pod.spec)?;
            let wanted = spec.pointer(
                "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0",
            );
            let node = wanted.and_then(Value::as_str).map_or_else(|| lab.node_name(0), str::to_owned);
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
            lab.pods()
                .create_subresource::<Value, Value>("binding", &name, &PostParams::default(), &binding)
                .await?;
        }
        *made += 1;
        let address = format!("127.77.{}.{made}", lab.number);
        let process = run_agent(lab, &pod, &role, &address).await?;
        processes.insert(uid, process);
        set_status(lab, &name, "Running", Some(&address), &role, json!({"running": {}})).await?;
    }
    Ok(())
}

async fn set_status(
    lab: &Lab,
    pod: &str,
    phase: &str,
    address: Option<&str>,
    container: &str,
    state: Value,
) -> anyhow::Result<()> {
    let running = phase == "Running";
    let mut status = json!({"phase": phase, "containerStatuses": [{"name": container, "image": "i", "imageID": "",
        "ready": running, "restartCount": 0, "state": state}]});
    if let Some(address) = address {
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{ "ip": address }]);
    }
    let patch = Patch::Merge(json!({ "status": status }));
    lab.pods().patch_status(pod, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Runs what the pod's main container would: the agent, with the certificates that the pod mounts.
async fn run_agent(lab: &Lab, pod: &Pod, role: &str, address: &str) -> anyhow::Result<Process> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let job = pod.labels().get("granular.dev/job").context("job label")?;
    let secrets = Api::<Secret>::namespaced(lab.client.clone(), &lab.namespace);
    let secret = secrets.get(&format!("{job}-{role}-tls")).await?;
    for name in ["tls", "tmp"] {
        std::fs::create_dir(at(name))?;
    }
    for (key, text) in secret.data.context("certificates")? {
        std::fs::write(at("tls").join(key), text.0)?;
    }
    let bin = at("bin");
    programs::run(Command::new(programs::ours("dem-agent")?).arg("install").arg(&bin), "")?;
    let mut command = Command::new(bin.join("dem-agent"));
    command.arg(role).arg("--tls-dir").arg(at("tls")).arg("--run-root").arg(at("run"));
    command.arg("--tmp-dir").arg(at("tmp")).args(["--grace-seconds", "5"]);
    command.arg("--listen").arg(format!("{address}:7471"));
    if role == "worker" {
        command.arg("--metrics-listen").arg(format!("{address}:9471"));
        command.arg("--pages-root").arg(at("pages"));
    } else {
        command.arg("--agent-program").arg(bin.join("dem-agent"));
        command.arg("--rsh-program").arg(bin.join("dem-rsh"));
        command.arg("--termination-log").arg(at("termination-log"));
    }
    let log = File::create(at("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Process { child: command.spawn()?, folder })
}

async fn a_job_runs_to_its_end_and_its_time_to_live_deletes_it(lab: Lab) -> anyhow::Result<()> {
    let _kubelet = two_nodes(&lab).await?;
    lab.job("drum", "sleep 3", json!({"ttlSecondsAfterFinished": 5})).await?;
    let status = lab.state("drum", State::Succeeded, LAUNCH).await?.status.context("status")?;
    ensure!(status.attempts.len() == 1 && status.attempts[0].running_at.is_some(), "{status:#?}");
    ensure!((status.program_failures, status.infrastructure_losses) == (0, 0));
    let gone = async || match lab.jobs().get_opt("drum").await? {
        None => Ok(()),
        Some(_) => bail!("it is still there"),
    };
    wait::until_answer("the job is deleted", SOON, gone).await
}

async fn two_nodes(lab: &Lab) -> anyhow::Result<Kubelet> {
    lab.node(0).await?;
    lab.node(1).await?;
    Ok(Kubelet::start(lab).await)
}

async fn a_program_failure_ends_the_job_and_names_the_culprit(lab: Lab) -> anyhow::Result<()> {
    let _kubelet = two_nodes(&lab).await?;
    let line = "sleep 2; if [ $OMPI_COMM_WORLD_RANK = 1 ]; then echo no such grain; exit 3; fi; sleep 60";
    lab.job("drum", line, json!({})).await?;
    let status = lab.state("drum", State::Failed, LAUNCH).await?.status.context("status")?;
    let failure = status.failure.clone().context("failure")?;
    ensure!((failure.rank, failure.exit_code) == (Some(1), Some(3)), "{failure:#?}");
    ensure!(failure.last_lines.iter().any(|line| line.contains("no such grain")), "{failure:#?}");
    ensure!(failure.node == Some(lab.node_name(1)), "{failure:#?}");
    ensure!((status.program_failures, status.infrastructure_losses) == (1, 0), "{status:#?}");
    Ok(())
}

async fn a_deleted_worker_costs_an_infrastructure_loss_and_the_job_goes_on(lab: Lab) -> anyhow::Result<()> {
    let _kubelet = two_nodes(&lab).await?;
    lab.job("drum", "sleep 10", json!({})).await?;
    let running = lab.state("drum", State::Running, LAUNCH).await?;
    let worker = running.status.context("status")?.workers[1].pod.clone();
    lab.pods().delete(&worker, &DeleteParams::default()).await?;
    let status = lab.state("drum", State::Succeeded, LAUNCH).await?.status.context("status")?;
    ensure!(status.attempt == Some(2), "{status:#?}");
    ensure!(status.attempts[0].cost == Some(Cost::InfrastructureLoss), "{status:#?}");
    ensure!((status.program_failures, status.infrastructure_losses) == (0, 1), "{status:#?}");
    Ok(())
}

async fn a_running_job_is_suspended_and_resumed(lab: Lab) -> anyhow::Result<()> {
    let _kubelet = two_nodes(&lab).await?;
    lab.job("drum", "sleep 600", json!({})).await?;
    lab.state("drum", State::Running, LAUNCH).await?;
    lab.change("drum", json!({"suspend": true})).await?;
    let status = lab.state("drum", State::Suspended, LAUNCH).await?.status.context("status")?;
    ensure!((status.program_failures, status.infrastructure_losses) == (0, 0), "{status:#?}");
    ensure!(lab.pod_count().await? == 0, "a suspended job has pods");
    lab.change("drum", json!({"suspend": false})).await?;
    let status = lab.state("drum", State::Running, LAUNCH).await?.status.context("status")?;
    ensure!(status.attempt == Some(2), "{status:#?}");
    // A deadline that the job is past stops it.
    lab.change("drum", json!({"activeDeadlineSeconds": 1})).await?;
    let status = lab.state("drum", State::Failed, LAUNCH).await?.status.context("status")?;
    ensure!(status.reason.as_deref() == Some(reasons::ACTIVE_DEADLINE), "{status:#?}");
    Ok(())
}

async fn a_job_waits_for_nodes_says_what_is_missing_and_starts_with_them(lab: Lab) -> anyhow::Result<()> {
    lab.node(0).await?;
    lab.job("drum", "sleep 1", json!({"startDeadlineSeconds": 300})).await?;
    let message = lab.refusal("drum", conditions::PLANNED, reasons::UNPLACEABLE).await?;
    ensure!(message.contains("rank"), "{message}");
    ensure!(lab.pod_count().await? == 0, "a waiting job has pods");
    lab.node(1).await?;
    lab.state("drum", State::Starting, SOON).await?;
    wait::until_all(&lab.pods(), "", "two workers and a launcher exist", SOON, |pods| pods.len() == 3)
        .await?;
    Ok(())
}

async fn a_job_of_another_controller_is_left_alone(lab: Lab) -> anyhow::Result<()> {
    lab.node(0).await?;
    lab.node(1).await?;
    lab.job("drum", "sleep 1", json!({"managedBy": "kueue.x-k8s.io/multikueue"})).await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let job = lab.jobs().get("drum").await?;
    ensure!(job.status.is_none() && lab.pod_count().await? == 0, "{job:#?}");
    Ok(())
}

/// A simulation file, wrong in one place.
fn simulation_file(radius: &str, restitution: &str, extra: &str) -> String {
    format!(
        "domain: {{min: [0, 0, 0], max: [1, 1, 1]}}
materials: [{{name: glass, density: 2500, youngsModulus: 1.0e7, poissonRatio: 0.2}}]
pairs: [{{materials: [glass, glass], restitution: {restitution}, friction: 0.4}}]
particles: [{{lattice: {{counts: [4, 4, 4], spacing: 0.01, radius: {radius}, material: glass}}}}]
time: {{end: {{steps: 100}}}}
{extra}"
    )
}

async fn what_the_server_cannot_see_is_refused_by_one_condition(lab: Lab) -> anyhow::Result<()> {
    lab.node(0).await?;
    lab.node(1).await?;
    let files = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {
        "unknown": simulation_file("0.004", "0.5", "gravitiy: [0, 0, -9.81]"),
        "negative": simulation_file("-0.004", "0.5", ""),
        "nan": simulation_file(".nan", "0.5", ""),
        "bouncy": simulation_file("0.004", "1.5", ""),
        "twice": simulation_file("0.004", "0.5", "time: {end: {steps: 5}}"),
        "text": "just a text",
        "good": simulation_file("0.004", "0.5", "checkpoint: {everySteps: 10}"),
    }});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "single"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(lab.client.clone(), &lab.namespace)
        .create(&PostParams::default(), &serde_json::from_value(files)?)
        .await?;
    Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::namespaced(lab.client.clone(), &lab.namespace)
        .create(&PostParams::default(), &serde_json::from_value(claim)?)
        .await?;
    let file =
        |key: &str| json!({"program": null, "simulation": {"configMap": {"name": "files", "key": key}}});
    let volume = |name: &str| json!({"volume": {"persistentVolumeClaim": {"claimName": name}}});
    // What is wrong, and what the message must name.
    let wrong: Vec<(&str, Value, &str)> = vec![
        ("no-map", json!({"program": null, "simulation": {"configMap": {"name": "nowhere"}}}), "nowhere"),
        ("no-key", file("absent"), "absent"),
        ("unknown-key", file("unknown"), "gravitiy"),
        ("negative-radius", file("negative"), "radius"),
        ("nan-radius", file("nan"), "radius"),
        ("restitution", file("bouncy"), "restitution"),
        ("duplicate-key", file("twice"), "time"),
        ("no-mapping", file("text"), "spec.simulation.configMap"),
        ("no-claim", json!({"output": volume("nothing")}), "nothing"),
        ("single-node-claim", json!({"output": volume("single")}), "ReadWriteMany"),
        (
            "host-path",
            json!({"workerTemplate": {"spec": {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}}}),
            "hostPath",
        ),
        ("host-network", json!({"launcherTemplate": {"spec": {"hostNetwork": true}}}), "hostNetwork"),
        ("queue", json!({"queue": {"name": "nightly"}}), "spec.queue"),
        ("exclusive", json!({"sharing": "ExclusiveNode"}), "spec.sharing"),
        ("host-mode", json!({"network": {"mode": "Host"}}), "spec.network.mode"),
        ("pod-affinity", json!({"placement": {"affinity": {"podAffinity": {}}}}), "podAffinity"),
        (
            "grid",
            json!({"program": {"command": ["a"], "haloGraph": {"grid": {"counts": [3, 1, 1]}}}}),
            "counts",
        ),
        (
            "halo-map",
            json!({"program": {"command": ["a"], "haloGraph": {"configMap": {"name": "none"}}}}),
            "none",
        ),
    ];
    let mut accepted = Vec::new();
    for (name, spec, named) in &wrong {
        match lab.job(name, "sleep 1", spec.clone()).await {
            Ok(()) => accepted.push((*name, *named)),
            // The schema sees some of them, which is earlier still.
            Err(error) => ensure!(format!("{error:#}").contains(named), "{name}: {error:#}"),
        }
    }
    ensure!(accepted.len() >= 12, "{accepted:?}");
    for (name, named) in &accepted {
        let message = lab.refusal(name, conditions::ADMITTED, reasons::INVALID_SPEC).await?;
        ensure!(message.contains(named), "{name}: does not name {named}: {message}");
    }
    // More ranks than there are cores is no mistake: nodes may come.
    lab.job("too-many", "sleep 1", json!({"ranks": 64, "ranksPerNode": null})).await?;
    let message = lab.refusal("too-many", conditions::PLANNED, reasons::UNPLACEABLE).await?;
    ensure!(message.contains("64"), "{message}");
    ensure!(lab.pod_count().await? == 0, "a job that cannot run has pods");
    // No loop: nothing is written while nothing changes.
    let versions = async || -> anyhow::Result<BTreeMap<String, Option<String>>> {
        let jobs = lab.jobs().list(&ListParams::default()).await?.items;
        Ok(jobs.iter().map(|job| (job.name_any(), job.resource_version())).collect())
    };
    let before = versions().await?;
    tokio::time::sleep(Duration::from_secs(35)).await;
    ensure!(versions().await? == before, "a refused job was written again");
    Ok(())
}

/// Jobs that need nothing, and no write by the operator.
async fn an_idle_cluster_sees_no_write(
    server: &ApiServer,
    operator: &Operator,
    lab: &Lab,
) -> anyhow::Result<()> {
    let soak = std::env::var_os("DEM_TESTS_SOAK").is_some();
    let (finished, suspended, seconds) = if soak { (200, 20, 60) } else { (20, 5, 15) };
    for number in 0..suspended {
        lab.job(&format!("suspended-{number}"), "sleep 1", json!({"suspend": true})).await?;
    }
    let end = json!({"status": {"state": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Succeeded", "status": "True", "reason": "Completed", "message": "done",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    for number in 0..finished {
        let name = format!("finished-{number}");
        lab.job(&name, "sleep 1", json!({"suspend": true})).await?;
    }
    for number in 0..finished {
        let name = format!("finished-{number}");
        lab.state(&name, State::Suspended, LAUNCH).await?;
        lab.jobs().patch_status(&name, &PatchParams::default(), &Patch::Merge(&end)).await?;
    }
    for number in 0..suspended {
        lab.state(&format!("suspended-{number}"), State::Suspended, SOON).await?;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let writes = |requests: Vec<Audit>| -> Vec<Audit> {
        let lease = |r: &Audit| r.object_ref.as_ref().is_some_and(|o| o.resource == "leases");
        requests.into_iter().filter(|r| r.writes() && !lease(r)).collect()
    };
    let before = writes(operator.requests(server)?).len();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = writes(operator.requests(server)?);
    let new: Vec<&str> = after[before.min(after.len())..].iter().map(|r| r.request_uri.as_str()).collect();
    ensure!(new.is_empty(), "{finished} finished and {suspended} suspended jobs, {seconds} s: {new:#?}");
    println!("{finished} finished and {suspended} suspended jobs: 0 writes in {seconds} s");
    Ok(())
}

/// A leader that stands still is replaced, and writes nothing when it wakes: it ends.
async fn a_leader_that_stands_still_is_replaced(mut leader: Operator, lab: Lab) -> anyhow::Result<()> {
    let leases = Api::<Lease>::namespaced(lab.client.clone(), &leader.namespace);
    let holder = async || -> anyhow::Result<String> {
        let spec = leases.get("dem-operator").await?.spec.context("spec")?;
        spec.holder_identity.context("nobody")
    };
    ensure!(holder().await? == "dem-operator-0");
    let _kubelet = two_nodes(&lab).await?;
    lab.job("drum", "sleep 600", json!({})).await?;
    let running = lab.state("drum", State::Running, LAUNCH).await?.status.context("status")?;
    let other = leader.beside()?;
    leader.signal(Signal::SIGSTOP)?;
    let replaced = async || match holder().await?.as_str() {
        "dem-operator-1" => Ok(()),
        holder => bail!("{holder} leads"),
    };
    wait::until_answer("the other replica leads", Duration::from_secs(40), replaced).await?;
    // It knows the job that runs, and goes on with it.
    lab.change("drum", json!({"suspend": true})).await?;
    let stopped = lab.state("drum", State::Suspended, LAUNCH).await;
    let stopped = stopped.with_context(|| format!("the new leader's log:\n{}", other.log()))?;
    let status = stopped.status.clone().context("status")?;
    ensure!(status.attempts.len() == running.attempts.len(), "{status:#?}");
    leader.signal(Signal::SIGCONT)?;
    let woken = tokio::time::Instant::now();
    let status = loop {
        match leader.child.try_wait()? {
            Some(status) => break status,
            None => ensure!(woken.elapsed() < SOON, "the old leader goes on"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    ensure!(!status.success(), "the old leader took the loss of its lease for a normal end");
    ensure!(lab.jobs().get("drum").await?.resource_version() == stopped.resource_version(), "it wrote");
    drop(other);
    Ok(())
}

/// Grants and use are the same.
fn the_role_is_what_is_needed(requests: &[Audit]) -> anyhow::Result<()> {
    let denied: Vec<String> = requests
        .iter()
        .filter(|r| r.response_status.as_ref().is_some_and(|s| s.code == 403))
        .map(|r| format!("{} {}", r.verb, r.request_uri))
        .collect();
    ensure!(denied.is_empty(), "not granted: {denied:#?}");
    let mut used = BTreeSet::new();
    for request in requests {
        let Some(object) = &request.object_ref else { continue };
        let resource = if object.subresource.is_empty() {
            object.resource.clone()
        } else {
            format!("{}/{}", object.resource, object.subresource)
        };
        let created = request.response_status.as_ref().is_some_and(|s| s.code == 201);
        used.insert((object.api_group.clone(), resource.clone(), request.verb.clone()));
        if created {
            used.insert((object.api_group.clone(), resource, "create".to_owned()));
        }
    }
    for permission in rbac::PERMISSIONS {
        for verb in permission.verbs {
            let key = (permission.group.to_owned(), permission.resource.to_owned(), (*verb).to_owned());
            ensure!(used.contains(&key), "granted and never used: {key:?}; used: {used:#?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_on_a_real_api_server_under_its_own_role() -> anyhow::Result<()> {
    let server = ApiServer::shared();
    let operator = Operator::start(server).await?;
    let mut scenarios = JoinSet::new();
    let mut number = 0;
    macro_rules! scenario {
        ($name:ident) => {
            number += 1;
            let lab = Lab::new(server, stringify!($name), number).await?;
            scenarios.spawn(async move { (stringify!($name), $name(lab).await) });
        };
    }
    scenario!(a_job_runs_to_its_end_and_its_time_to_live_deletes_it);
    scenario!(a_program_failure_ends_the_job_and_names_the_culprit);
    scenario!(a_deleted_worker_costs_an_infrastructure_loss_and_the_job_goes_on);
    scenario!(a_running_job_is_suspended_and_resumed);
    scenario!(a_job_waits_for_nodes_says_what_is_missing_and_starts_with_them);
    scenario!(a_job_of_another_controller_is_left_alone);
    scenario!(what_the_server_cannot_see_is_refused_by_one_condition);
    let mut failures = Vec::new();
    while let Some(ended) = scenarios.join_next().await {
        let (name, result) = ended?;
        match result {
            Ok(()) => println!("{name} ... ok"),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    if failures.is_empty() {
        let lab = Lab::new(server, "idle", number + 1).await?;
        if let Err(error) = an_idle_cluster_sees_no_write(server, &operator, &lab).await {
            failures.push(format!("idle: {error:#}"));
        }
        if let Err(error) = the_role_is_what_is_needed(&operator.requests(server)?) {
            failures.push(format!("role: {error:#}"));
        }
    }
    ensure!(failures.is_empty(), "{}\n\noperator's log:\n{}", failures.join("\n\n"), operator.log());
    a_leader_that_stands_still_is_replaced(operator, Lab::new(server, "leader", number + 2).await?).await?;
    println!("a_leader_that_stands_still_is_replaced ... ok");
    Ok(())
}
