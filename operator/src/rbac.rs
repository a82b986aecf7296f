//! Every permission of the operator, in one table.
//!
//! Chart and manifests are generated from it, and a test on a real API server compares it with the audit log:
//! nothing granted is unused, nothing used is missing. `dem-operator rbac` prints it.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::ObjectMeta;

/// Where a permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In every namespace whose jobs are served.
    Jobs,
    /// In the operator's own namespace.
    Own,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource, with its subresource.
    pub resource: &'static str,
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Where.
    pub scope: Scope,
    /// What it is for.
    pub why: &'static str,
}

const fn jobs(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Permission {
    Permission { group, resource, verbs, scope: Scope::Jobs, why }
}

/// The table. Server-side apply of an object that does not exist is authorised as `patch` and `create`, though
/// the audit log names only `patch`.
pub const PERMISSIONS: &[Permission] = &[
    jobs(
        "granular.dev",
        "demjobs",
        &["list", "watch", "delete"],
        "what to run; deleted when its time to live ends",
    ),
    jobs("granular.dev", "demjobs/status", &["patch"], "conditions, plan, progress"),
    jobs(
        "",
        "pods",
        &["list", "watch", "create", "delete"],
        "launchers and workers; capacity taken by others",
    ),
    jobs("", "nodes", &["list", "watch"], "capacity, labels, taints and health for placement"),
    jobs("", "secrets", &["get", "create"], "certificates of a job, by name; never listed"),
    jobs("", "configmaps", &["get", "create", "patch"], "simulation files, by name; a job's plan"),
    jobs("", "persistentvolumeclaims", &["get"], "access modes of the volumes that a job names"),
    jobs("networking.k8s.io", "networkpolicies", &["create", "patch"], "who may reach a job's pods"),
    jobs("events.k8s.io", "events", &["create"], "one event per transition"),
    Permission {
        group: "coordination.k8s.io",
        resource: "leases",
        verbs: &["get", "create", "update"],
        scope: Scope::Own,
        why: "leader election",
    },
];

/// The rules of one scope, in the table's order.
pub fn rules(scope: Scope) -> Vec<PolicyRule> {
    PERMISSIONS
        .iter()
        .filter(|p| p.scope == scope)
        .map(|p| PolicyRule {
            api_groups: Some(vec![p.group.to_owned()]),
            resources: Some(vec![p.resource.to_owned()]),
            verbs: p.verbs.iter().map(|v| (*v).to_owned()).collect(),
            ..PolicyRule::default()
        })
        .collect()
}

/// Both roles as YAML documents, named `dem-operator`.
///
/// # Errors
/// When they cannot be written as YAML.
pub fn manifests() -> Result<String, serde_yaml::Error> {
    let metadata = || ObjectMeta { name: Some("dem-operator".to_owned()), ..ObjectMeta::default() };
    let cluster =
        ClusterRole { metadata: metadata(), rules: Some(rules(Scope::Jobs)), ..ClusterRole::default() };
    let own = Role { metadata: metadata(), rules: Some(rules(Scope::Own)) };
    Ok(format!("{}---\n{}", serde_yaml::to_string(&cluster)?, serde_yaml::to_string(&own)?))
}

/// Whether the table grants `verb` on `resource` of `group`.
pub fn grants(group: &str, resource: &str, verb: &str) -> bool {
    PERMISSIONS.iter().any(|p| p.group == group && p.resource == resource && p.verbs.contains(&verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_permission_is_a_wildcard_or_lists_secrets() {
        for p in PERMISSIONS {
            assert!(!p.verbs.contains(&"*") && p.resource != "*" && p.group != "*");
        }
        assert!(!grants("", "secrets", "list") && !grants("", "secrets", "watch"));
    }

    #[test]
    fn a_resource_stands_in_the_table_once() {
        let mut seen = std::collections::BTreeSet::new();
        assert!(PERMISSIONS.iter().all(|p| seen.insert((p.group, p.resource))));
        assert_eq!(rules(Scope::Jobs).len() + rules(Scope::Own).len(), PERMISSIONS.len());
    }
}
