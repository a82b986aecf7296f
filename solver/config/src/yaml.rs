//! Reading and writing the simulation file.
//!
//! The text becomes a tree that keeps what a typed reader would lose (duplicate keys, `.nan`); the tree is held
//! against the JSON schema, so that every problem is found with its path and not only the first; then the types are
//! filled. Scalars follow YAML 1.2: `yes` and `010` are text, `1e-3` is a number.

use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::problem::{shorten, unknown};
use crate::{NAME_PATTERN, Problem, Simulation, schema};

/// Largest simulation file [bytes]; particles by the thousand belong in a particle file.
pub const MAX_BYTES: usize = 1 << 20;

/// Problems reported at most: a file of another kind would have one in every line.
const MAX_PROBLEMS: usize = 50;

enum Node {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Simulation {
    /// Reads and validates a simulation file.
    ///
    /// # Errors
    /// Every problem found, with its path; at most 50.
    pub fn from_yaml(text: &str) -> Result<Simulation, Vec<Problem>> {
        if text.len() > MAX_BYTES {
            return Err(vec![Problem::new(
                "simulation file",
                format!("{} bytes", text.len()),
                format!("at most {MAX_BYTES} bytes; many particles go into a particle file"),
            )]);
        }
        let node: Node = serde_yaml::from_str(text).map_err(|error| {
            let place = match error.location() {
                Some(place) => format!("simulation file, line {}, column {}", place.line(), place.column()),
                None => "simulation file".into(),
            };
            vec![Problem::new(place, shorten_message(&error.to_string()), "one YAML document")]
        })?;
        let mut problems = Vec::new();
        if matches!(node, Node::Null) {
            return Err(vec![Problem::new(
                "simulation file",
                "nothing",
                "a simulation: domain, materials, ...",
            )]);
        }
        let value = fit(&schema(), &node, "", &mut problems);
        match serde_path_to_error::deserialize::<_, Simulation>(&value) {
            Ok(simulation) => {
                problems.extend(simulation.consistency(problems.is_empty()));
                if problems.is_empty() {
                    return Ok(simulation);
                }
            }
            Err(error) if problems.is_empty() => {
                problems.push(Problem::new(error.path().to_string(), error.inner(), "the documented form"));
            }
            Err(_) => {}
        }
        problems.truncate(MAX_PROBLEMS);
        Err(problems)
    }

    /// All problems of a simulation that did not come from a file, such as the one in a DemJob. Empty if it can run,
    /// as far as can be said without its particle files.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        match serde_json::to_value(self) {
            Ok(value) => {
                fit(&schema(), &node_of(&value), "", &mut problems);
            }
            Err(error) => problems.push(Problem::new("simulation", error, "the documented form")),
        }
        problems.extend(self.consistency(problems.is_empty()));
        problems.truncate(MAX_PROBLEMS);
        problems
    }

    /// The simulation as a file that [`Simulation::from_yaml`] reads back unchanged. All text is quoted and all
    /// numbers are written so that YAML 1.1 readers (Kubernetes', PyYAML) see the same values.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        // A derived Serialize of structs with string keys cannot fail.
        if let Ok(value) = serde_json::to_value(self) {
            block(&value, 0, &mut out);
        }
        out
    }

    /// What a started job may not change (domain, gravity, materials, pairs, contact model, particles, walls, time
    /// step) as canonical JSON, for hashing. Particle files enter by path: hash their content beside it.
    pub fn fixed_part(&self) -> String {
        serde_json::json!({
            "domain": self.domain,
            "gravity": self.gravity,
            "materials": self.materials,
            "pairs": self.pairs,
            "contact": self.contact,
            "particles": self.particles,
            "walls": self.walls,
            "timeStep": self.time.step,
        })
        .to_string()
    }
}

fn shorten_message(message: &str) -> String {
    let mut short: String = message.chars().take(200).collect();
    if message.chars().nth(200).is_some() {
        short.push('…');
    }
    short
}

fn node_of(value: &Value) -> Node {
    match value {
        Value::Null => Node::Null,
        Value::Bool(value) => Node::Bool(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Node::Integer(integer.into()),
            (None, Some(float)) => Node::Float(float),
            (None, None) => Node::Null,
        },
        Value::String(text) => Node::Text(text.clone()),
        Value::Array(list) => Node::List(list.iter().map(node_of).collect()),
        Value::Object(map) => {
            Node::Map(map.iter().map(|(key, value)| (key.clone(), node_of(value))).collect())
        }
    }
}

/// Holds a node against its schema, adds what does not fit to `problems`, and returns the node as JSON.
fn fit(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    if let Some(choices) = schema["oneOf"].as_array() {
        return fit_choice(choices, node, path, problems);
    }
    match schema["type"].as_str() {
        Some("object") => fit_object(schema, node, path, problems),
        Some("array") => fit_array(schema, node, path, problems),
        Some("string") => fit_text(schema, node, path, problems),
        Some("boolean") => match node {
            Node::Bool(value) => Value::Bool(*value),
            _ => mismatch(node, "true or false", path, problems),
        },
        Some("integer") => fit_integer(schema, node, path, problems),
        _ => fit_number(schema, node, path, problems),
    }
}

fn fit_choice(choices: &[Value], node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    let keyed: Vec<(&str, &Value)> = choices
        .iter()
        .filter_map(|choice| choice["properties"].as_object()?.iter().next())
        .map(|(key, schema)| (key.as_str(), schema))
        .collect();
    let names: Vec<&str> = keyed.iter().map(|(key, _)| *key).collect();
    let one_of = format!("exactly one of {}", names.join(", "));
    let Node::Map(entries) = node else {
        return mismatch(node, &one_of, path, problems);
    };
    let [(key, inner)] = entries.as_slice() else {
        let found = match entries.len() {
            0 => "none".to_owned(),
            _ => {
                entries.iter().map(|(key, _)| format!("`{}`", shorten(key))).collect::<Vec<_>>().join(" and ")
            }
        };
        problems.push(Problem::new(shown(path), found, one_of));
        return Value::Null;
    };
    match keyed.iter().find(|(name, _)| name == key) {
        Some((_, schema)) => {
            let value = fit(schema, inner, &join(path, key), problems);
            Value::Object(Map::from_iter([(key.clone(), value)]))
        }
        None => {
            problems.push(unknown(join(path, &shorten(key)), "key", key, &names));
            Value::Null
        }
    }
}

fn fit_object(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    let Node::Map(entries) = node else {
        return mismatch(node, "a mapping of keys to values", path, problems);
    };
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let mut object = Map::new();
    for (key, inner) in entries {
        let Some(property) = properties.get(key) else {
            if properties.is_empty() {
                problems.push(Problem::new(join(path, &shorten(key)), "a key", "none here: {}"));
            } else {
                let names: Vec<&String> = properties.keys().collect();
                problems.push(unknown(join(path, &shorten(key)), "key", key, &names));
            }
            continue;
        };
        let inner_path = join(path, key);
        if object.contains_key(key) {
            problems.push(Problem::new(inner_path, "the key twice", "each key once"));
            continue;
        }
        let value = fit(property, inner, &inner_path, problems);
        object.insert(key.clone(), value);
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !object.contains_key(name) {
            let what = properties
                .get(name)
                .and_then(|property| property["description"].as_str())
                .unwrap_or("a value");
            let sentence = what.split(". ").next().unwrap_or(what).replace('\n', " ");
            problems.push(Problem::new(join(path, name), "nothing", sentence.trim_end_matches('.')));
        }
    }
    Value::Object(object)
}

fn fit_array(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    let Node::List(items) = node else {
        return mismatch(node, "a list", path, problems);
    };
    let least = schema["minItems"].as_u64().unwrap_or(0) as usize;
    let most = schema["maxItems"].as_u64().map_or(usize::MAX, |most| most as usize);
    if items.len() < least || items.len() > most {
        let expected = match (least, most) {
            (least, most) if least == most => format!("{least} items"),
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) => format!("{least} to {most}"),
        };
        problems.push(Problem::new(shown(path), format!("{} items", items.len()), expected));
    }
    let fitted = items.iter().take(most).enumerate();
    Value::Array(
        fitted.map(|(i, item)| fit(&schema["items"], item, &format!("{path}[{i}]"), problems)).collect(),
    )
}

fn fit_text(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    if let Some(names) = schema["enum"].as_array() {
        let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        return match node {
            Node::Text(text) if names.contains(&text.as_str()) => Value::String(text.clone()),
            Node::Text(text) => {
                problems.push(unknown(path, "value", text, &names));
                Value::Null
            }
            _ => mismatch(node, &format!("one of {}", names.join(", ")), path, problems),
        };
    }
    let Node::Text(text) = node else {
        return mismatch(node, "text (numbers and true, false, null in quotes)", path, problems);
    };
    let length = text.chars().count() as u64;
    let (least, most) =
        (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap_or(u64::MAX));
    if length < least || length > most {
        problems.push(Problem::new(
            path,
            format!("{length} characters"),
            format!("{least} to {most} characters"),
        ));
    } else if schema["pattern"].as_str() == Some(NAME_PATTERN) && !is_name(text) {
        let expected = "a name of letters, digits, `-`, `_` and `.`, with a letter or digit at both ends";
        problems.push(Problem::new(path, format!("`{}`", shorten(text)), expected));
    }
    Value::String(text.clone())
}

/// Whether `text` matches [`NAME_PATTERN`].
fn is_name(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn fit_integer(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    let Node::Integer(integer) = node else {
        return mismatch(node, "a whole number", path, problems);
    };
    let (low, high) = match schema["format"].as_str() {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let least = schema["minimum"].as_i64().unwrap_or(low);
    let most = schema["maximum"].as_i64().unwrap_or(high);
    match i64::try_from(*integer) {
        Ok(value) if (least..=most).contains(&value) => value.into(),
        _ => {
            problems.push(Problem::new(path, integer, format!("a whole number from {least} to {most}")));
            // In range, so that the checks that follow still run.
            least.into()
        }
    }
}

fn fit_number(schema: &Value, node: &Node, path: &str, problems: &mut Vec<Problem>) -> Value {
    let number = match node {
        Node::Integer(integer) => *integer as f64,
        Node::Float(float) => *float,
        _ => return mismatch(node, "a number", path, problems),
    };
    let least = schema["minimum"].as_f64().unwrap_or(f64::MIN);
    let most = schema["maximum"].as_f64().unwrap_or(f64::MAX);
    if !number.is_finite() {
        problems.push(Problem::new(path, describe(node), "a finite number"));
    } else if number < least || number > most {
        let expected = match (schema["minimum"].is_null(), schema["maximum"].is_null()) {
            (false, false) => format!("{least} to {most}"),
            (false, true) => format!("at least {least}"),
            _ => format!("at most {most}"),
        };
        problems.push(Problem::new(path, number, expected));
    }
    number.into()
}

fn mismatch(node: &Node, expected: &str, path: &str, problems: &mut Vec<Problem>) -> Value {
    problems.push(Problem::new(shown(path), describe(node), expected));
    Value::Null
}

fn describe(node: &Node) -> String {
    match node {
        Node::Null => "null".into(),
        Node::Bool(value) => value.to_string(),
        Node::Integer(value) => value.to_string(),
        Node::Float(value) if value.is_nan() => ".nan".into(),
        Node::Float(value) if value.is_infinite() => if *value > 0.0 { ".inf" } else { "-.inf" }.into(),
        Node::Float(value) => format!("{value:?}"),
        Node::Text(text) => format!("text `{}`", shorten(text)),
        Node::List(items) => format!("a list of {}", items.len()),
        Node::Map(_) => "a mapping".into(),
    }
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "simulation file" } else { path }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain YAML without tags")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    // An empty document.
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        // Beyond i128 it is beyond every field too.
        Ok(Node::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Node, Node>()? {
            let key = match key {
                Node::Text(text) => text,
                other => describe(&other),
            };
            entries.push((key, value));
        }
        Ok(Node::Map(entries))
    }
}

fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, inner) in map {
                entry(&format!("{indent}{key}:"), inner, depth + 1, out);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for inner in list {
                entry(&format!("{indent}-"), inner, depth + 1, out);
            }
        }
        _ => {}
    }
}

fn entry(head: &str, value: &Value, depth: usize, out: &mut String) {
    // Writing to a String cannot fail.
    let nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => list.iter().any(|item| item.is_object() || item.is_array()),
        _ => false,
    };
    if nested {
        let _ = writeln!(out, "{head}");
        block(value, depth, out);
    } else {
        let _ = writeln!(out, "{head} {}", scalar(value));
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            // YAML 1.1 reads an exponent only after a decimal point and with a sign.
            let text = number.to_string();
            match text.split_once('e') {
                Some((mantissa, exponent)) => {
                    let point = if mantissa.contains('.') { "" } else { ".0" };
                    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
                    format!("{mantissa}{point}e{sign}{exponent}")
                }
                None => text,
            }
        }
        Value::Array(list) => format!("[{}]", list.iter().map(scalar).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}
