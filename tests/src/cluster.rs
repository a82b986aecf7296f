//! A real kind cluster with the operator installed from the chart.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, bail};
use dem_crds::DemJob;
use kube::{Api, Client};

use crate::{api_server, programs, wait};

/// The namespace of the operator.
pub const OPERATOR_NAMESPACE: &str = "dem-operator-system";

/// A running cluster.
pub struct Cluster {
    name: String,
    kubeconfig: PathBuf,
}

impl Cluster {
    /// The cluster `dem` of four workers of four free CPUs (a job on three of them can lose one), with the operator of this build installed; made by the
    /// first test that asks, kept for the next run.
    ///
    /// # Panics
    /// When it does not come up: no test can run without it.
    pub fn shared() -> &'static Self {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(|| {
            match Self::start("dem", &["--workers", "4"]).and_then(|c| c.install(&[]).map(|()| c)) {
                Ok(cluster) => cluster,
                Err(e) => panic!("{e:#}"),
            }
        })
    }

    /// Starts a cluster, or takes the one of that name and make; `options` as in `tests/cluster/up`.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(name: &str, options: &[&str]) -> anyhow::Result<Self> {
        let printed = programs::run(programs::script("up").args(["--name", name]).args(options), "")?;
        let kubeconfig = printed.lines().last().context("the script prints the kubeconfig's path")?;
        Ok(Self { name: name.to_owned(), kubeconfig: kubeconfig.into() })
    }

    /// Installs or upgrades the operator; the images must be loaded (`manifests/images/build --profile dev --load`).
    ///
    /// # Errors
    /// When helm fails or the operator does not become ready.
    pub fn install(&self, helm: &[&str]) -> anyhow::Result<()> {
        programs::run(programs::script("install").arg(&self.name).args(helm), "")?;
        Ok(())
    }

    /// Runs Prometheus in the cluster.
    ///
    /// # Errors
    /// When it does not become ready.
    pub fn prometheus(&self) -> anyhow::Result<()> {
        programs::run(programs::script("prometheus").arg(&self.name), "").map(drop)
    }

    /// The answer of Prometheus to an instant query: for each series its labels and value.
    ///
    /// # Errors
    /// When Prometheus does not answer or refuses the query.
    pub fn query(&self, expression: &str) -> anyhow::Result<Vec<(serde_json::Value, f64)>> {
        let path = format!(
            "/api/v1/namespaces/monitoring/services/prometheus:http/proxy/api/v1/query?query={}",
            percent_encoded(expression)
        );
        let answer: serde_json::Value = serde_json::from_str(&self.kubectl(&["get", "--raw", &path])?)?;
        let series =
            answer["data"]["result"].as_array().with_context(|| format!("Prometheus says {answer}"))?;
        series
            .iter()
            .map(|s| {
                let value = s["value"][1].as_str().context("a sample is a string")?.parse()?;
                Ok((s["metric"].clone(), value))
            })
            .collect()
    }

    /// A client as administrator.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> anyhow::Result<Client> {
        api_server::client(&self.kubeconfig).await
    }

    /// kubectl as administrator, must succeed.
    ///
    /// # Errors
    /// When kubectl fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl_with(arguments, "")
    }

    /// As [`Self::kubectl`], with standard input.
    ///
    /// # Errors
    /// When kubectl fails, with what it said.
    pub fn kubectl_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        programs::run(
            programs::tool("kubectl").arg("--kubeconfig").arg(&self.kubeconfig).args(arguments),
            input,
        )
    }

    /// The kubeconfig's path.
    pub fn kubeconfig(&self) -> &PathBuf {
        &self.kubeconfig
    }

    /// docker on a node's container, for stopping and pausing nodes.
    ///
    /// # Errors
    /// When docker fails.
    pub fn docker(&self, arguments: &[&str]) -> anyhow::Result<String> {
        programs::run(Command::new("docker").args(arguments), "")
    }

    /// Makes the pod network whole again after a node was started.
    ///
    /// # Errors
    /// When a node does not answer.
    pub fn repair_network(&self) -> anyhow::Result<()> {
        programs::run(programs::script("network").arg(&self.name), "").map(drop)
    }

    /// A new namespace with a ReadWriteMany claim `dem-results`; deleted when the value is dropped. A test ends with
    /// [`TestNamespace::finish`]: without it the test has failed, and jobs, events and logs are printed first.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn namespace(&'static self, test: &str) -> anyhow::Result<TestNamespace> {
        let name = api_server::new_namespace(&self.client().await?, test).await?;
        let namespace = TestNamespace { cluster: self, name, finished: false };
        programs::run(programs::script("volume").args([&self.name, &namespace.name]), "")?;
        Ok(namespace)
    }
}

/// A namespace of one test.
pub struct TestNamespace {
    cluster: &'static Cluster,
    /// Its name.
    pub name: String,
    finished: bool,
}

impl TestNamespace {
    /// The test has passed.
    pub fn finish(mut self) {
        self.finished = true;
    }

    /// Applies manifests here.
    ///
    /// # Errors
    /// When the server refuses one.
    pub fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        self.kubectl_with(&["apply", "--server-side", "-f", "-"], manifests).map(drop)
    }

    /// kubectl in this namespace.
    ///
    /// # Errors
    /// When kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.kubectl_with(arguments, "")
    }

    fn kubectl_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        self.cluster.kubectl_with(&[&["-n", self.name.as_str()], arguments].concat(), input)
    }

    /// The DemJobs of this namespace.
    ///
    /// # Errors
    /// When no client can be made.
    pub async fn jobs(&self) -> anyhow::Result<Api<DemJob>> {
        Ok(Api::namespaced(self.cluster.client().await?, &self.name))
    }

    /// Waits until a job has ended; the job. Fails at once when it ended in another way than `condition`
    /// (`Succeeded` or `Failed`).
    ///
    /// # Errors
    /// When it ended otherwise or not in time.
    pub async fn ended(&self, job: &str, condition: &str, limit: Duration) -> anyhow::Result<DemJob> {
        let jobs = self.jobs().await?;
        let ended = wait::until(&jobs, job, "it has ended", limit, |j| {
            has_condition(j, "Succeeded") || has_condition(j, "Failed")
        })
        .await?;
        if !has_condition(&ended, condition) {
            bail!("{job} is not {condition}: {}", serde_json::to_string_pretty(&ended.status)?);
        }
        Ok(ended)
    }

    /// Folder on this machine of the claim `dem-results`.
    ///
    /// # Errors
    /// When the claim is not bound.
    pub fn volume(&self) -> anyhow::Result<PathBuf> {
        let volume = self.kubectl(&["get", "pvc", "dem-results", "-o", "jsonpath={.spec.volumeName}"])?;
        let path = self.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.hostPath.path}"])?;
        let folder = path.strip_prefix("/tmp/hostpath_pv/").with_context(|| format!("volume at {path}"))?;
        Ok(programs::cache().join(format!("cluster-{}/volumes", self.cluster.name)).join(folder))
    }

    /// The solver's summary of an attempt of a job that exists, from the claim `dem-results`.
    ///
    /// # Errors
    /// When there is none.
    pub fn summary(&self, job: &str, attempt: u32) -> anyhow::Result<serde_json::Value> {
        let folder = self.kubectl(&["get", "demjob", job, "-o", "jsonpath={.status.folder}"])?;
        let path = self.volume()?.join(format!("{folder}/attempt-{attempt}/summary.json"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// What there is to know about this namespace, for people.
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let operator = ["-n", OPERATOR_NAMESPACE, "logs", "deploy/dem-operator", "--tail=60", "--all-pods"];
        for (what, output) in [
            ("jobs", self.kubectl(&["get", "demjobs", "-o", "yaml"])),
            ("pods", self.kubectl(&["get", "pods", "-o", "wide"])),
            ("events", self.kubectl(&["get", "events", "--sort-by=.lastTimestamp"])),
            (
                "pod logs",
                self.kubectl(&[
                    "logs",
                    "-l",
                    "app.kubernetes.io/name=dem-job",
                    "--all-containers",
                    "--prefix",
                    "--tail=40",
                ]),
            ),
            ("operator's log", self.cluster.kubectl(&operator)),
        ] {
            let output = output.unwrap_or_else(|e| format!("{e:#}"));
            text += &format!("--- {what} of {}\n{output}\n", self.name);
        }
        text
    }
}

impl Drop for TestNamespace {
    fn drop(&mut self) {
        if !self.finished {
            eprintln!("{}", self.dump());
        }
        if let Err(e) = self.cluster.kubectl(&["delete", "namespace", &self.name, "--wait=false"]) {
            eprintln!("{e:#}");
        }
    }
}

/// Whether a condition of the job is true.
pub fn has_condition(job: &DemJob, condition: &str) -> bool {
    job.status
        .as_ref()
        .is_some_and(|s| s.conditions.iter().any(|c| c.type_ == condition && c.status == "True"))
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect()
}
