//! A real kube-apiserver and etcd for one test binary, and a namespace for each of its tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde::Deserialize;

use crate::programs;

/// A running API server.
pub struct ApiServer {
    folder: PathBuf,
}

/// One request in the server's audit log.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// Who asked.
    pub user: AuditUser,
    /// What is meant; absent for paths without a resource.
    pub object_ref: Option<AuditObject>,
    /// How it ended; absent while it goes on.
    pub response_status: Option<AuditStatus>,
}

/// Who asked.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// Name, for example `system:serviceaccount:dem-operator-system:dem-operator`.
    pub username: String,
}

/// What a request is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditObject {
    /// API group; empty for the core group.
    pub api_group: String,
    /// Resource, plural.
    pub resource: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// Namespace; empty for none.
    pub namespace: String,
    /// Name; empty for lists.
    pub name: String,
}

/// How a request ended.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditStatus {
    /// HTTP status.
    pub code: u16,
}

impl Audit {
    /// Whether the request changes something.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

impl ApiServer {
    /// Starts a server with `options` of `tests/cluster/api up`, ended when this process ends. The first start on a
    /// machine builds it (about 7 minutes).
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(options: &[&str]) -> anyhow::Result<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let folder = std::env::temp_dir().join(format!("dem-api-{pid}-{number}"));
        programs::run(
            programs::script("api")
                .args(["up", "--for", &pid.to_string(), "--dir"])
                .arg(&folder)
                .args(options),
            "",
        )
        .context("start an API server")?;
        Ok(Self { folder })
    }

    /// The server of this test binary, with the CRD applied; started by the first test that asks.
    ///
    /// # Panics
    /// When it does not come up: no test can run without it.
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<ApiServer> = OnceLock::new();
        SERVER.get_or_init(|| {
            let started = Self::start(&[]).and_then(|server| {
                server.kubectl(
                    &["apply", "--server-side", "-f", "-"],
                    &crate::read("crds/demjobs.granular.dev.yaml")?,
                )?;
                server.kubectl(
                    &["wait", "--for=condition=Established", "--timeout=20s", "crd/demjobs.granular.dev"],
                    "",
                )?;
                Ok(server)
            });
            match started {
                Ok(server) => server,
                Err(e) => panic!("{e:#}"),
            }
        })
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// A client as administrator. Each test makes its own: a client belongs to its test's runtime.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> anyhow::Result<Client> {
        client(&self.kubeconfig()).await
    }

    /// kubectl as administrator, must succeed.
    ///
    /// # Errors
    /// When kubectl fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> anyhow::Result<String> {
        programs::run(self.kubectl_command().args(arguments), input)
    }

    /// kubectl as administrator, whatever comes of it.
    ///
    /// # Errors
    /// When kubectl cannot be started.
    pub fn kubectl_output(&self, arguments: &[&str], input: &str) -> anyhow::Result<Output> {
        programs::output(self.kubectl_command().args(arguments), input)
    }

    fn kubectl_command(&self) -> Command {
        let mut command = programs::tool("kubectl");
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// A new namespace, named after the test.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn namespace(&self, test: &str) -> anyhow::Result<String> {
        new_namespace(&self.client().await?, test).await
    }

    /// The audit log so far, in order; requests that go on are not in it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit(&self) -> anyhow::Result<Vec<Audit>> {
        let text = std::fs::read_to_string(self.folder.join("audit.log"))?;
        // The last line may be half written.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// A client for a kubeconfig's current context.
///
/// # Errors
/// When the file cannot be used.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).with_context(|| kubeconfig.display().to_string())?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Makes a namespace that enforces restricted pod security.
///
/// # Errors
/// When it cannot be made.
pub async fn new_namespace(client: &Client, test: &str) -> anyhow::Result<String> {
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name =
        Some(format!("{}-", test.replace('_', "-").chars().take(50).collect::<String>()));
    namespace.metadata.labels =
        Some([("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())].into());
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    made.metadata.name.context("the server names the namespace")
}
