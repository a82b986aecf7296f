//! Names and labels of a job's children, in one place.

use std::collections::BTreeMap;

/// Value of [`MANAGED_BY_LABEL`], and field manager of server-side apply.
pub const MANAGER: &str = "dem-operator";
/// Value of [`NAME_LABEL`].
pub const APP: &str = "dem-job";
/// Standard label: the application.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Standard label: the tool that manages it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Label: name of the DemJob.
pub const JOB_LABEL: &str = "granular.dev/job";
/// Label: `worker` or `launcher`.
pub const ROLE_LABEL: &str = "granular.dev/role";
/// Label of workers: their index in the plan at the time of their creation.
pub const WORKER_INDEX_LABEL: &str = "granular.dev/worker-index";
/// Label of launchers: the attempt.
pub const ATTEMPT_LABEL: &str = "granular.dev/attempt";
/// Annotation of workers: what the pod was made with, so that one that still fits is kept.
pub const SHAPE_ANNOTATION: &str = "granular.dev/shape";
/// Annotation of workers: the number of ranks that the pod was made for.
pub const RANKS_ANNOTATION: &str = "granular.dev/ranks";

/// Port of the agents.
pub const AGENT_PORT: i32 = 7471;
/// Port of the workers' plain metrics.
pub const METRICS_PORT: i32 = 9471;

/// Role of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs ranks.
    Worker,
    /// Runs mpirun.
    Launcher,
}

impl Role {
    /// Value of [`ROLE_LABEL`], and command of `dem-agent`.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Worker => "worker",
            Role::Launcher => "launcher",
        }
    }
}

/// Name of a worker pod.
pub fn worker(job: &str, index: usize, incarnation: i32) -> String {
    format!("{job}-w{index}-{incarnation}")
}

/// Name of the launcher pod of an attempt.
pub fn launcher(job: &str, attempt: i32) -> String {
    format!("{job}-launcher-{attempt}")
}

/// Name of the Secret with the job's CA and the operator's certificate. Never mounted.
pub fn ca_secret(job: &str) -> String {
    format!("{job}-ca")
}

/// Name of the Secret that the pods of a role mount.
pub fn tls_secret(job: &str, role: Role) -> String {
    format!("{job}-{}-tls", role.as_str())
}

/// Folder of a job's results and checkpoints on its volumes. A job that is created again under the same name gets
/// another one: it neither goes on from the old one's checkpoints nor writes over its results.
pub fn folder(job: &str, uid: &str) -> String {
    let run = uid.split_once('-').map_or(uid, |(first, _)| first);
    format!("{job}/{run}")
}

/// Labels that every child carries.
pub fn labels(job: &str) -> BTreeMap<String, String> {
    [(NAME_LABEL, APP), (MANAGED_BY_LABEL, MANAGER), (JOB_LABEL, job)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Labels of a pod of a role.
pub fn pod_labels(job: &str, role: Role) -> BTreeMap<String, String> {
    let mut labels = labels(job);
    labels.insert(ROLE_LABEL.to_owned(), role.as_str().to_owned());
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_names_are_host_names() {
        let job = "j".repeat(dem_crds::MAX_NAME_LENGTH);
        assert_eq!(launcher(&job, 99_999).len(), 63);
        assert!(worker(&job, dem_crds::MAX_WORKERS - 1, 9_999_999).len() <= 63);
        assert!(tls_secret(&job, Role::Launcher).len() <= 63);
    }
}
