//! Overlays of pods: what users may add, and how it is merged.
//!
//! A list of what is allowed, not of what is refused: a new pod field must not open a way to another tenant's
//! Secrets, host paths or nodes by itself.

use dem_crds::PodTemplate;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, Volume, VolumeMount};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::names::Role;
use crate::validate::Problem;

/// Pod fields that an overlay may set.
const FIELDS: [&str; 6] = [
    "priorityClassName",
    "runtimeClassName",
    "terminationGracePeriodSeconds",
    "securityContext",
    "volumes",
    "containers",
];
/// Fields of the pod's security context that an overlay may set: whose files the ranks can read and write.
const SECURITY: [&str; 4] = ["runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"];
/// Fields of the main container that an overlay may set.
const CONTAINER: [&str; 4] = ["name", "env", "envFrom", "volumeMounts"];
/// Sources of volumes that an overlay may use. Not hostPath.
const SOURCES: [&str; 6] =
    ["name", "configMap", "secret", "emptyDir", "persistentVolumeClaim", "downwardAPI"];
/// Names of the operator's own volumes.
const VOLUMES: [&str; 8] = ["bin", "run", "tmp", "tls", "shm", "checkpoints", "output", "input"];
/// Paths that an overlay may not cover.
const PATHS: [&str; 4] = ["/dem", "/dev", "/tmp", "/proc"];

/// What is wrong with an overlay.
pub(crate) fn overlay_problems(field: &str, template: &PodTemplate, role: Role) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(metadata) = &template.metadata {
        for (map, name) in [(&metadata.labels, "labels"), (&metadata.annotations, "annotations")] {
            for key in map.keys().filter(|key| owned(key)) {
                problems.push(Problem::new(
                    &format!("{field}.metadata.{name}"),
                    format!("{key:?}, which the operator sets itself"),
                    "other keys",
                ));
            }
        }
    }
    let empty = Map::new();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    let at = format!("{field}.spec");
    only(&at, spec, &FIELDS, &mut problems);
    if let Some(value) = spec.get("securityContext") {
        let at = format!("{at}.securityContext");
        match value.as_object() {
            Some(context) => {
                only(&at, context, &SECURITY, &mut problems);
                for key in ["runAsUser", "runAsGroup", "fsGroup"] {
                    if let Some(id) = context.get(key)
                        && id.as_i64().is_none_or(|id| id < i64::from(key == "runAsUser"))
                    {
                        problems.push(Problem::new(
                            &format!("{at}.{key}"),
                            id,
                            "a number, not 0 for the user",
                        ));
                    }
                }
                typed::<Vec<i64>>(
                    &format!("{at}.supplementalGroups"),
                    context.get("supplementalGroups"),
                    &mut problems,
                );
            }
            None => problems.push(Problem::new(&at, value, "an object")),
        }
    }
    typed::<String>(&format!("{at}.priorityClassName"), spec.get("priorityClassName"), &mut problems);
    typed::<String>(&format!("{at}.runtimeClassName"), spec.get("runtimeClassName"), &mut problems);
    if let Some(seconds) = spec.get("terminationGracePeriodSeconds")
        && seconds.as_i64().is_none_or(|s| !(1..=86_400).contains(&s))
    {
        problems.push(Problem::new(
            &format!("{at}.terminationGracePeriodSeconds"),
            seconds,
            "a whole number from 1 to 86400",
        ));
    }
    volumes(&at, spec, &mut problems);
    containers(&at, spec, role, &mut problems);
    problems
}

fn owned(key: &str) -> bool {
    let prefix = key.split('/').next().unwrap_or_default();
    prefix.ends_with("granular.dev") || prefix == "app.kubernetes.io" || prefix.ends_with("kubernetes.io")
}

fn only(at: &str, object: &Map<String, Value>, allowed: &[&str], problems: &mut Vec<Problem>) {
    for key in object.keys().filter(|key| !allowed.contains(&key.as_str())) {
        problems.push(Problem::new(
            &format!("{at}.{key}"),
            "a field that an overlay may not set",
            format!("only {}", allowed.join(", ")),
        ));
    }
}

fn typed<T: DeserializeOwned>(at: &str, value: Option<&Value>, problems: &mut Vec<Problem>) -> Option<T> {
    match serde_json::from_value(value?.clone()) {
        Ok(value) => Some(value),
        Err(error) => {
            problems.push(Problem::new(at, error, "the same form as in a pod"));
            None
        }
    }
}

fn volumes(at: &str, spec: &Map<String, Value>, problems: &mut Vec<Problem>) {
    let at = format!("{at}.volumes");
    for volume in spec.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        if let Some(object) = volume.as_object() {
            only(&at, object, &SOURCES, problems);
        }
    }
    for volume in typed::<Vec<Volume>>(&at, spec.get("volumes"), problems).unwrap_or_default() {
        if VOLUMES.contains(&volume.name.as_str()) {
            problems.push(Problem::new(
                &at,
                format!("{:?}, a volume of the operator", volume.name),
                "another name",
            ));
        }
        foreign_secret(&at, volume.secret.as_ref().and_then(|s| s.secret_name.as_deref()), problems);
    }
}

/// The CA's key and the other role's key must not be readable by ranks.
fn foreign_secret(at: &str, secret: Option<&str>, problems: &mut Vec<Problem>) {
    if let Some(secret) = secret
        && ["-ca", "-worker-tls", "-launcher-tls"].iter().any(|own| secret.ends_with(own))
    {
        problems.push(Problem::new(
            at,
            format!("Secret {secret:?}"),
            "no Secret of a DemJob's own certificates",
        ));
    }
}

fn containers(at: &str, spec: &Map<String, Value>, role: Role, problems: &mut Vec<Problem>) {
    let at = format!("{at}.containers");
    let Some(value) = spec.get("containers") else { return };
    let role = role.as_str();
    match value.as_array().map(Vec::as_slice) {
        Some([Value::Object(container)]) if container.get("name").and_then(Value::as_str) == Some(role) => {
            let at = format!("{at}[0]");
            only(&at, container, &CONTAINER, problems);
            for variable in
                typed::<Vec<EnvVar>>(&format!("{at}.env"), container.get("env"), problems).unwrap_or_default()
            {
                if variable.name.starts_with("DEM_") {
                    problems.push(Problem::new(
                        &format!("{at}.env"),
                        format!("{:?}, a variable of the operator", variable.name),
                        "another name",
                    ));
                }
                let key = variable.value_from.as_ref().and_then(|from| from.secret_key_ref.as_ref());
                foreign_secret(&format!("{at}.env"), key.map(|key| key.name.as_str()), problems);
            }
            let at_from = format!("{at}.envFrom");
            for from in
                typed::<Vec<EnvFromSource>>(&at_from, container.get("envFrom"), problems).unwrap_or_default()
            {
                foreign_secret(
                    &at_from,
                    from.secret_ref.as_ref().map(|secret| secret.name.as_str()),
                    problems,
                );
            }
            let mounts = typed::<Vec<VolumeMount>>(
                &format!("{at}.volumeMounts"),
                container.get("volumeMounts"),
                problems,
            );
            for mount in mounts.unwrap_or_default() {
                let path = mount.mount_path.trim_end_matches('/');
                if path.is_empty()
                    || PATHS.iter().any(|own| path == *own || path.starts_with(&format!("{own}/")))
                {
                    problems.push(Problem::new(
                        &format!("{at}.volumeMounts"),
                        format!("mountPath {:?}, a path of the operator", mount.mount_path),
                        "another path",
                    ));
                }
            }
        }
        _ => problems.push(Problem::new(
            &at,
            value,
            format!("one container of name {role:?}: no others are allowed"),
        )),
    }
}

/// Adds an overlay that has no problems to a pod.
pub(super) fn apply_overlay(pod: &mut Pod, template: Option<&PodTemplate>, role: Role) {
    let Some(template) = template else { return };
    if let Some(metadata) = &template.metadata {
        pod.metadata.labels.get_or_insert_default().extend(metadata.labels.clone());
        pod.metadata.annotations.get_or_insert_default().extend(metadata.annotations.clone());
    }
    let (Some(overlay), Some(spec)) = (&template.spec, pod.spec.as_mut()) else { return };
    fn get<T: DeserializeOwned>(object: &Map<String, Value>, key: &str) -> Option<T> {
        object.get(key).and_then(|value| serde_json::from_value(value.clone()).ok())
    }
    spec.priority_class_name = get(overlay, "priorityClassName");
    spec.runtime_class_name = get(overlay, "runtimeClassName");
    if let Some(seconds) = get(overlay, "terminationGracePeriodSeconds") {
        spec.termination_grace_period_seconds = Some(seconds);
    }
    if let (Some(context), Some(own)) =
        (overlay.get("securityContext").and_then(Value::as_object), spec.security_context.as_mut())
    {
        own.run_as_user = get(context, "runAsUser").or(own.run_as_user);
        own.run_as_group = get(context, "runAsGroup").or(own.run_as_group);
        own.fs_group = get(context, "fsGroup").or(own.fs_group);
        own.supplemental_groups = get(context, "supplementalGroups");
    }
    spec.volumes.get_or_insert_default().extend(get::<Vec<Volume>>(overlay, "volumes").unwrap_or_default());
    let container = overlay.get("containers").and_then(|list| list.get(0)).and_then(Value::as_object);
    let own = spec.containers.iter_mut().find(|container| container.name == role.as_str());
    if let (Some(container), Some(own)) = (container, own) {
        let env: Vec<EnvVar> = get(container, "env").unwrap_or_default();
        let list = own.env.get_or_insert_default();
        list.retain(|ours| env.iter().all(|theirs| theirs.name != ours.name));
        list.extend(env);
        own.env_from = get(container, "envFrom");
        own.volume_mounts
            .get_or_insert_default()
            .extend(get::<Vec<VolumeMount>>(container, "volumeMounts").unwrap_or_default());
    }
}
