//! Launcher pods.

use k8s_openapi::api::core::v1::{ContainerPort, Pod};

use super::overlay::apply_overlay;
use super::{Settings, Size, env, metadata, pod_spec, tell_grace};
use crate::names::{self, Role};
use crate::validate::ValidatedJob;

/// The launcher pod of an attempt. It is small and goes wherever there is room: it lives in the cores that every
/// node keeps in reserve. It outlives its workers' grace period, so that it can report how the ranks stopped.
pub fn launcher_pod(job: &ValidatedJob, settings: &Settings, attempt: i32) -> Pod {
    let name = names::launcher(&job.name, attempt);
    let size = Size { millicores: 100, memory: 256 << 20 };
    let mut spec = pod_spec(job, settings, Role::Launcher, &size, 0);
    spec.hostname = Some(name.clone());
    spec.termination_grace_period_seconds = Some(settings.grace + 10);
    spec.node_selector = Some(job.node_selector.clone()).filter(|selector| !selector.is_empty());
    if let Some(container) = spec.containers.first_mut() {
        container.ports = Some(vec![ContainerPort {
            name: Some("agent".to_owned()),
            container_port: names::AGENT_PORT,
            ..ContainerPort::default()
        }]);
        container
            .env
            .get_or_insert_default()
            .extend([env("DEM_JOB", &job.name), env("DEM_NAMESPACE", &job.namespace)]);
    }
    let mut labels = names::pod_labels(&job.name, Role::Launcher);
    labels.insert(names::ATTEMPT_LABEL.to_owned(), attempt.to_string());
    let mut pod = Pod { metadata: metadata(job, name, labels), spec: Some(spec), status: None };
    apply_overlay(&mut pod, job.launcher_template.as_ref(), Role::Launcher);
    tell_grace(&mut pod);
    pod
}
