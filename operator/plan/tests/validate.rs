//! What makes a job invalid that the API server does not see.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use dem_crds::DemJob;
use dem_plan::render::Settings;
use dem_plan::validate::{References, validate};
use serde_json::{Value, json};

/// The problems of a job with this value at a path of its `spec`.
fn problems(pointer: &str, value: Value) -> String {
    let mut spec = json!({
        "ranks": 4,
        "program": {"command": ["mpi-program"]},
        "placement": {},
        "checkpoint": {"everySteps": 10},
    });
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[key] = value;
    let job: DemJob = serde_json::from_value(json!({
        "apiVersion": "granular.dev/v1alpha1",
        "kind": "DemJob",
        "metadata": {"name": "bed", "namespace": "lab", "uid": "1"},
        "spec": spec,
    }))
    .unwrap();
    match validate(&job, &References::default(), &Settings::default()) {
        Ok(_) => String::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    }
}

#[test]
fn an_affinity_is_a_required_one_of_nodes_or_refused_by_its_field() {
    let affinity = |value: Value| problems("/placement/affinity", value);
    let required =
        json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]});
    let node =
        |value: &Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": value}});
    assert_eq!(affinity(node(&required)), "");
    for (wrong, field) in [
        (json!("gpu"), "spec.placement.affinity: found \"gpu\""),
        (json!([1]), "spec.placement.affinity: found [1]"),
        (json!({"nodeAffinity": 3}), "spec.placement.affinity.nodeAffinity: found 3"),
        (json!({"podAffinity": {}}), "spec.placement.affinity.podAffinity:"),
        (json!({"nodeAffinity": {"preferred": []}}), "spec.placement.affinity.nodeAffinity.preferred:"),
        (
            node(&json!({"nodeSelectorTerms": 1})),
            "requiredDuringSchedulingIgnoredDuringExecution: found invalid type",
        ),
    ] {
        let said = affinity(wrong);
        assert!(said.contains(field), "{said}");
    }
}

#[test]
fn what_this_version_does_not_do_is_refused_instead_of_ignored() {
    assert!(problems("/pinning", json!({"numa": "Packed"})).contains("spec.pinning: found"));
    assert!(problems("/checkpoint", json!({"everySeconds": 60})).contains("spec.checkpoint.everySeconds"));
    assert!(problems("/network", json!({"mode": "Host"})).contains("spec.network.mode"));
}
