//! Assembly of the CustomResourceDefinition: what the derive makes of the types, then bounds, list types and
//! CEL rules, each in one table.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::DemJob;

/// Longest string where the type says nothing [characters].
const STRING_BOUND: u64 = 1024;
/// Longest list where the type says nothing.
const LIST_BOUND: u64 = 64;
/// Most entries of a map where the type says nothing.
const MAP_BOUND: u64 = 64;

/// A validation rule in the Common Expression Language.
pub struct Rule {
    /// Where it stands: property names from the root, `[]` for a list's items.
    pub at: &'static [&'static str],
    /// The expression that must hold.
    pub expression: &'static str,
    /// What the user reads when it does not.
    pub message: &'static str,
    /// The field to blame, below `at`.
    pub field: Option<&'static str>,
}

/// True in a rule at the root when the job has started.
macro_rules! not_started_or {
    ($rest:literal) => {
        concat!("!has(oldSelf.status) || !has(oldSelf.status.attempt) || (", $rest, ")")
    };
}
/// True in a rule at the root when the job has not started, or old and new simulation are not both inline.
macro_rules! fixed {
    ($field:literal) => {
        concat!(
            "!has(oldSelf.status) || !has(oldSelf.status.attempt) || !has(oldSelf.spec.simulation)",
            " || !has(oldSelf.spec.simulation.inline) || !has(self.spec.simulation)",
            " || !has(self.spec.simulation.inline) || ",
            "(has(self.spec.simulation.inline.",
            $field,
            ") == has(oldSelf.spec.simulation.inline.",
            $field,
            ") && (!has(self.spec.simulation.inline.",
            $field,
            ") || self.spec.simulation.inline.",
            $field,
            " == oldSelf.spec.simulation.inline.",
            $field,
            "))"
        )
    };
}

/// All CEL rules. `dem-plan` checks the same again, for objects that were stored under older rules.
pub const RULES: &[Rule] = &[
    Rule {
        at: &[],
        expression: "size(self.metadata.name) <= 48 && !self.metadata.name.contains('.')",
        message: "metadata.name must have at most 48 characters and no dot: pods are named <name>-launcher-<attempt>, a host name of at most 63",
        field: None,
    },
    Rule {
        at: &[],
        expression: not_started_or!(
            "has(self.spec.simulation) == has(oldSelf.spec.simulation) && has(self.spec.program) == has(oldSelf.spec.program)"
        ),
        message: "simulation and program cannot be exchanged once the job has started; create a new DemJob",
        field: Some(".spec"),
    },
    Rule {
        at: &[],
        expression: not_started_or!(
            "!has(self.spec.simulation) || !has(oldSelf.spec.simulation) || has(self.spec.simulation.inline) == has(oldSelf.spec.simulation.inline)"
        ),
        message: "inline and configMap cannot be exchanged once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("domain"),
        message: "domain is fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("gravity"),
        message: "gravity is fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("materials"),
        message: "materials are fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("pairs"),
        message: "pairs are fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("contact"),
        message: "the contact model is fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("particles"),
        message: "particles are fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("walls"),
        message: "walls are fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &[],
        expression: fixed!("time.step"),
        message: "the time step is fixed once the job has started; create a new DemJob",
        field: Some(".spec.simulation"),
    },
    Rule {
        at: &["spec"],
        expression: "has(self.simulation) != has(self.program)",
        message: "give exactly one of simulation and program",
        field: None,
    },
    Rule {
        at: &["spec"],
        expression: "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        message: "managedBy cannot be changed; create a new DemJob",
        field: Some(".managedBy"),
    },
    Rule {
        at: &["spec"],
        expression: "!has(self.ranksPerNode) || !has(self.ranksPerNode.max) || !has(self.ranksPerNode.min) || self.ranksPerNode.min <= self.ranksPerNode.max",
        message: "ranksPerNode.min must not be above ranksPerNode.max",
        field: Some(".ranksPerNode"),
    },
    Rule {
        at: &["spec"],
        expression: "!has(self.ranksPerNode) || !has(self.ranksPerNode.min) || self.ranksPerNode.min <= self.ranks",
        message: "ranksPerNode.min must not be above ranks",
        field: Some(".ranksPerNode"),
    },
    Rule {
        at: &["spec"],
        expression: "!has(self.program) || !has(self.program.haloGraph) || !has(self.program.haloGraph.grid) || self.program.haloGraph.grid.counts[0] * self.program.haloGraph.grid.counts[1] * self.program.haloGraph.grid.counts[2] == self.ranks",
        message: "the product of program.haloGraph.grid.counts must be ranks",
        field: Some(".program"),
    },
    Rule {
        at: &["spec", "checkpoint"],
        expression: "!(has(self.everySteps) && has(self.everySeconds))",
        message: "give at most one of everySteps and everySeconds",
        field: None,
    },
    Rule {
        at: &["spec", "checkpoint"],
        expression: "!(has(self.volume) && has(self.s3))",
        message: "give at most one of volume and s3",
        field: None,
    },
    Rule {
        at: &["spec"],
        expression: "!has(self.restartFrom) || (has(self.checkpoint) && (has(self.checkpoint.volume) || has(self.checkpoint.s3)))",
        message: "restartFrom needs checkpoint.volume (or s3), where that checkpoint is kept",
        field: Some(".restartFrom"),
    },
    Rule {
        at: &["spec", "restartFrom"],
        expression: "!has(self.job) || self.job.matches('^[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?$')",
        message: "job must be the name of a DemJob",
        field: Some(".job"),
    },
    Rule {
        at: &["spec", "restartFrom"],
        expression: "!has(self.path) || (self.path != '' && !self.path.startsWith('/') && !self.path.split('/').exists(p, p == '..'))",
        message: "path must be relative to the checkpoint volume, without ..",
        field: Some(".path"),
    },
    Rule {
        at: &["spec", "resources", "memoryPerRank"],
        expression: "quantity(self).isGreaterThan(quantity('0'))",
        message: "must be above 0",
        field: None,
    },
    Rule {
        at: &["spec", "network"],
        expression: "self.mode == 'Cni'",
        message: "mode must be Cni: this version of the operator has no other network yet",
        field: Some(".mode"),
    },
    Rule {
        at: &["spec", "sharing"],
        expression: "self == 'Shared'",
        message: "must be Shared: this version of the operator has no other sharing yet",
        field: None,
    },
    Rule {
        at: &["spec", "pinning"],
        expression: "self.policy == 'Core' && self.numa == 'Balanced' && self.onConflict == 'Fail'",
        message: "this version of the operator does not bind ranks yet; leave spec.pinning out",
        field: None,
    },
    Rule {
        at: &["spec", "checkpoint"],
        expression: "!has(self.everySeconds)",
        message: "this version of the operator checkpoints by steps; give everySteps",
        field: Some(".everySeconds"),
    },
    Rule {
        at: &["spec", "queue"],
        expression: "false",
        message: "this version of the operator has no queue of its own yet; leave spec.queue out",
        field: None,
    },
    Rule {
        at: &["spec", "checkpoint", "s3"],
        expression: "false",
        message: "this version of the operator keeps checkpoints on volumes only; give checkpoint.volume",
        field: None,
    },
];

/// Lists that server-side apply merges by key: path and keys. All other lists are atomic.
const MAP_LISTS: &[(&[&str], &[&str])] = &[
    (&["status", "conditions"], &["type"]),
    (&["spec", "imagePullSecrets"], &["name"]),
    (&["spec", "placement", "topology"], &["level"]),
];

/// The CustomResourceDefinition of DemJob, as it is installed.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = DemJob::crd();
    for version in &mut crd.spec.versions {
        let Some(validation) = version.schema.as_mut() else { continue };
        let Some(properties) = validation.open_api_v3_schema.take() else { continue };
        let mut root = serde_json::to_value(properties).unwrap_or_default();
        normalise(&mut root);
        if let Some(status) = root.get_mut("properties").and_then(|properties| properties.get_mut("status")) {
            drop_defaults(status);
        }
        for (path, keys) in MAP_LISTS {
            if let Some(list) = property_mut(&mut root, path) {
                list.insert("x-kubernetes-list-type".to_owned(), json!("map"));
                list.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
            }
        }
        for rule in RULES {
            if let Some(schema) = property_mut(&mut root, rule.at) {
                let mut entry = json!({ "rule": rule.expression, "message": rule.message });
                if let Some(field) = rule.field {
                    entry["fieldPath"] = json!(field);
                }
                match schema.entry("x-kubernetes-validations").or_insert_with(|| json!([])) {
                    Value::Array(list) => list.push(entry),
                    other => *other = json!([entry]),
                }
            }
        }
        validation.open_api_v3_schema = serde_json::from_value(root).ok();
    }
    crd
}

/// The schema at a path of property names below the root.
fn property_mut<'a>(root: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut at = root;
    for name in path {
        at = if *name == "[]" { at.get_mut("items")? } else { at.get_mut("properties")?.get_mut(*name)? };
    }
    at.as_object_mut()
}

/// Brings a derived schema to our rules, at every depth: no null (an absent field is absent), no formats that the
/// API server does not know, a bound on every string, list and map, and a type for every list.
fn normalise(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("nullable");
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(format) = object.get("format").and_then(Value::as_str)
        && (format.starts_with("uint") || format.starts_with("int") && object.contains_key("maximum"))
    {
        object.remove("format");
    }
    let is =
        |object: &Map<String, Value>, kind: &str| object.get("type").and_then(Value::as_str) == Some(kind);
    if is(object, "string") && !object.contains_key("enum") && !object.contains_key("format") {
        object.entry("maxLength").or_insert(json!(STRING_BOUND));
    }
    if is(object, "array") {
        object.entry("maxItems").or_insert(json!(LIST_BOUND));
        object.entry("x-kubernetes-list-type").or_insert(json!("atomic"));
    }
    if is(object, "object") && object.get("additionalProperties").is_some_and(Value::is_object) {
        object.entry("maxProperties").or_insert(json!(MAP_BOUND));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(key) {
            normalise(inner);
        }
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(normalise);
    }
}

/// The operator writes the whole status: the API server is to fill in nothing, and a default must be valid.
fn drop_defaults(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("default");
    if let Some(items) = object.get_mut("items") {
        drop_defaults(items);
    }
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.values_mut().for_each(drop_defaults);
    }
}

/// Labels and annotations typed, the pod's own fields free: the typed template would be half a megabyte.
pub(crate) fn pod_template_schema(_: &mut SchemaGenerator) -> Schema {
    let map = |what: &str| {
        json!({
            "type": "object",
            "description": format!("{what} to add."),
            "additionalProperties": { "type": "string" },
            "maxProperties": 64,
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "metadata": {
                "type": "object",
                "description": "Labels and annotations to add.",
                "properties": { "labels": map("Labels"), "annotations": map("Annotations") },
            },
            "spec": {
                "type": "object",
                "description": "Pod fields to add, as in a pod's spec.",
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
    })
}

/// A pod's affinity, free: the typed one is 40 KB.
pub(crate) fn affinity_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The definition as YAML, the content of `crds/demjobs.granular.dev.yaml`.
///
/// # Errors
/// When the definition cannot be written as YAML, which no schema of ours does.
pub fn crd_yaml() -> Result<String, serde_yaml::Error> {
    Ok(format!(
        "# Generated by `cargo run -p dem-crds --bin crdgen`; do not edit.\n{}",
        serde_yaml::to_string(&crd())?
    ))
}
