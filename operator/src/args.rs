//! The only reader of the operator's flags and environment.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use dem_plan::render::Settings;

/// Controller of DemJobs: places, starts, watches and restarts MPI runs.
///
/// Every flag can be given as an environment variable.
#[derive(Clone, Debug, Parser)]
#[command(name = "dem-operator", version)]
pub struct Args {
    /// What to do instead of running the operator.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Namespace to watch; all namespaces when empty.
    #[arg(long, env = "DEM_WATCH_NAMESPACE", default_value = "")]
    pub watch_namespace: String,

    /// Namespace of the operator itself: its Lease lives there, and jobs admit its pods.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub namespace: String,

    /// Name of this replica, unique among replicas: holder of the Lease and reporter of events.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,

    /// Image of the launcher and workers of simulation jobs that name none.
    #[arg(long, env = "DEM_SOLVER_IMAGE", default_value = "dem-operator/solver:latest")]
    pub solver_image: String,

    /// Image that carries `/dem-agent`, which an init container installs into every pod of a job.
    #[arg(long, env = "DEM_AGENT_IMAGE", default_value = "dem-operator/operator:latest")]
    pub agent_image: String,

    /// `imagePullPolicy` of that init container; the cluster's default when absent.
    #[arg(long, env = "DEM_AGENT_PULL_POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub agent_pull_policy: Option<String>,

    /// User that pods run as when image and templates name none.
    #[arg(long, env = "DEM_RUN_AS_USER", default_value_t = 10001)]
    pub run_as_user: i64,

    /// Pods of a namespace with this value of `kubernetes.io/metadata.name` may scrape the jobs' figures; all
    /// namespaces when empty.
    #[arg(long, env = "DEM_SCRAPER_NAMESPACE", default_value = "")]
    pub scraper_namespace: String,

    /// Address of /metrics, /livez and /readyz.
    #[arg(long, env = "DEM_HTTP_ADDRESS", default_value = "0.0.0.0:8080")]
    pub http_address: SocketAddr,

    /// Jobs reconciled at the same time.
    #[arg(long, env = "DEM_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,

    /// Pods of one job created at the same time.
    #[arg(long, env = "DEM_CREATE_PARALLELISM", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub create_parallelism: u16,

    /// Seconds between two looks at a running job's launcher.
    #[arg(long, env = "DEM_POLL_SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub poll_seconds: u64,

    /// Least seconds between two writes of a running job's progress.
    #[arg(long, env = "DEM_PROGRESS_SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub progress_seconds: u64,

    /// Seconds that a launcher may go on without the operator or the API server.
    #[arg(long, env = "DEM_LAUNCHER_LEASE_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..=86400))]
    pub launcher_lease_seconds: u32,

    /// Seconds that a worker's ranks may go on without the launcher.
    #[arg(long, env = "DEM_WORKER_LEASE_SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    pub worker_lease_seconds: u32,

    /// Seconds that ranks may take to write a checkpoint and stop.
    #[arg(long, env = "DEM_GRACE_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub grace_seconds: u32,

    /// Waiting ranks give up the CPU: for nodes that share real cores, as test clusters do.
    #[arg(long, env = "DEM_YIELD_WHEN_IDLE", default_value_t = false)]
    pub yield_when_idle: bool,

    /// Value of `app.kubernetes.io/name` of the operator's own pods, which the jobs' NetworkPolicies admit.
    #[arg(long, env = "DEM_OPERATOR_NAME", default_value = "dem-operator")]
    pub operator_name: String,

    /// Form of the logs.
    #[arg(long, env = "DEM_LOG_FORMAT", default_value = "json")]
    pub log_format: LogFormat,

    /// Which logs: `tracing` directives.
    #[arg(long, env = "DEM_LOG", default_value = "info")]
    pub log: String,
}

impl Args {
    /// What rendering needs to know of the installation.
    pub fn settings(&self) -> Settings {
        let scraper = Some(self.scraper_namespace.clone()).filter(|name| !name.is_empty());
        Settings {
            agent_image: self.agent_image.clone(),
            agent_pull_policy: self.agent_pull_policy.clone(),
            solver_image: self.solver_image.clone(),
            run_as_user: self.run_as_user,
            worker_lease: self.worker_lease_seconds.into(),
            launcher_lease: self.launcher_lease_seconds.into(),
            grace: self.grace_seconds.into(),
            yield_when_idle: self.yield_when_idle,
            operator_namespace: self.namespace.clone(),
            operator_labels: [("app.kubernetes.io/name".to_owned(), self.operator_name.clone())].into(),
            scraper_namespace_labels: scraper
                .map(|name| ("kubernetes.io/metadata.name".to_owned(), name))
                .into_iter()
                .collect(),
        }
    }

    /// Time between two looks at a running job's launcher.
    pub fn poll(&self) -> Duration {
        Duration::from_secs(self.poll_seconds)
    }

    /// Least time between two writes of a running job's progress.
    pub fn progress_interval(&self) -> Duration {
        Duration::from_secs(self.progress_seconds)
    }
}

/// What the program can do besides running the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Print the operator's permissions as a ClusterRole and a Role.
    Rbac,
}

/// Form of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For a terminal.
    Text,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_consistent_and_every_one_has_a_variable() {
        Args::command().debug_assert();
        for arg in Args::command().get_arguments() {
            if !["help", "version"].contains(&arg.get_id().as_str()) {
                assert!(arg.get_env().is_some(), "{} has no environment variable", arg.get_id());
            }
        }
    }
}
