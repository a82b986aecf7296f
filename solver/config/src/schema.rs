//! The JSON schema of the simulation file, from the types.

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::Simulation;

/// The schema for editors and other programs: JSON Schema 2020-12 without references, unknown keys refused.
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let schema = Simulation::json_schema(&mut settings.into_generator());
    let mut value = schema.to_value();
    refuse_unknown(&mut value);
    if let Value::Object(root) = &mut value {
        root.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.insert("title".into(), json!("Simulation"));
    }
    value
}

/// Makes the schema structural in Kubernetes' sense: objects with properties carry no `additionalProperties` (the
/// API server refuses both together, and reports unknown keys itself), choices of constants become an `enum`.
pub(crate) fn structural(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        simplify(object);
    }
}

fn simplify(object: &mut Map<String, Value>) {
    if object.get("additionalProperties") == Some(&Value::Bool(false)) {
        object.remove("additionalProperties");
    }
    if let Some(names) = object.get("oneOf").and_then(constants) {
        object.remove("oneOf");
        object.insert("type".into(), json!("string"));
        object.insert("enum".into(), Value::Array(names));
    }
    for value in object.values_mut() {
        match value {
            Value::Object(inner) => simplify(inner),
            Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).for_each(simplify),
            _ => {}
        }
    }
}

/// The names of a unit enum, which schemars writes as constants to keep the description of each.
fn constants(choices: &Value) -> Option<Vec<Value>> {
    let mut names = Vec::new();
    for choice in choices.as_array()? {
        match (choice.get("const"), choice.get("enum").and_then(Value::as_array)) {
            (Some(name), _) => names.push(name.clone()),
            (None, Some(list)) => names.extend(list.iter().cloned()),
            (None, None) => return None,
        }
    }
    Some(names)
}

fn refuse_unknown(value: &mut Value) {
    match value {
        Value::Object(object) => {
            let is_object = object.get("type") == Some(&json!("object"));
            if is_object && !object.contains_key("oneOf") {
                object.insert("additionalProperties".into(), Value::Bool(false));
            }
            object.values_mut().for_each(refuse_unknown);
        }
        Value::Array(list) => list.iter_mut().for_each(refuse_unknown),
        _ => {}
    }
}
