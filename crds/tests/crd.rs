//! The committed CustomResourceDefinition is the generated one, and keeps our rules for APIs.

use serde_json::Value;

const COMMITTED: &str = include_str!("../demjobs.granular.dev.yaml");

#[test]
fn the_committed_definition_is_the_generated_one() {
    let generated = dem_crds::schema::crd_yaml().unwrap();
    assert!(
        generated == COMMITTED,
        "crds/demjobs.granular.dev.yaml is stale: run `cargo run -p dem-crds --bin crdgen`"
    );
}

#[test]
fn the_definition_stays_far_below_what_kubectl_can_annotate() {
    let json = serde_json::to_string(&dem_crds::schema::crd()).unwrap();
    assert!(json.len() < 100_000, "{} bytes", json.len());
}

#[test]
fn every_rule_stands_at_a_field_that_exists() {
    let text = serde_json::to_string(&dem_crds::schema::crd()).unwrap();
    let found = text.matches("\"rule\":").count();
    assert_eq!(found, dem_crds::schema::RULES.len());
}

#[test]
fn every_field_keeps_the_rules_for_apis() {
    let crd = serde_json::to_value(dem_crds::schema::crd()).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut broken = Vec::new();
    for part in ["spec", "status"] {
        walk(&schema["properties"][part], part, &mut broken);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn walk(schema: &Value, path: &str, broken: &mut Vec<String>) {
    let mut fail = |what: &str| broken.push(format!("{path}: {what}"));
    let has = |key: &str| schema.get(key).is_some();
    if has("$ref") || has("nullable") || has("anyOf") {
        fail("no references, no null, no untyped choices");
    }
    let free = has("x-kubernetes-preserve-unknown-fields");
    match schema["type"].as_str() {
        Some("string") => {
            if !has("enum") && !has("maxLength") && schema["format"] != "date-time" {
                fail("a string has a longest length");
            }
        }
        Some("array") => {
            if !has("maxItems") || !has("x-kubernetes-list-type") {
                fail("a list has a most number of items and a list type");
            }
        }
        Some("object") => {
            if !free && !has("properties") && !has("additionalProperties") && !path.ends_with("auto") {
                let empty = schema
                    .as_object()
                    .is_some_and(|object| object.keys().all(|k| k == "type" || k == "description"));
                if !empty {
                    fail("an object has fields");
                }
            }
            if has("additionalProperties") && !has("maxProperties") {
                fail("a map has a most number of entries");
            }
        }
        Some("integer" | "number" | "boolean") => {}
        _ => fail("a field has a type"),
    }
    if schema["format"].as_str().is_some_and(|format| format.starts_with("uint")) {
        fail("the API server knows no unsigned formats");
    }
    if schema["enum"].as_array().is_some_and(|values| values.iter().any(Value::is_null)) {
        fail("no null in an enum");
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let inner = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) {
            broken.push(format!("{inner}: every field is documented"));
        }
        walk(property, &inner, broken);
    }
    if let Some(items) = schema.get("items") {
        walk(items, &format!("{path}[]"), broken);
    }
}
