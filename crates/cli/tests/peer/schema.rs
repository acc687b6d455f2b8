//! Whether a value is as a schema has it (JSON Schema, draft 7), by the words that the schema of SARIF uses. A word that is not known
//! here, and a `pattern`, are faults: nothing is passed over unseen.

use std::path::Path;

use serde_json::{Map, Value};

/// Words that ask for nothing.
const SILENT: [&str; 7] = ["$schema", "$id", "title", "description", "default", "definitions", "properties"];

struct Schema {
    root: Value,
}

/// Where a value isn't as SARIF 2.1.0 wants it.
pub(crate) fn faults_of_sarif(log: &Value) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/sarif/sarif-schema-2.1.0.json");
    let root = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut faults = Vec::new();
    let schema = Schema { root };
    schema.look(&schema.root, log, "", &mut faults);
    faults
}

impl Schema {
    fn look(&self, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
        let schema = match schema.get("$ref") {
            Some(name) => {
                let place = name.as_str().and_then(|name| name.strip_prefix('#')).unwrap();
                return self.look(self.root.pointer(place).unwrap(), value, at, faults);
            }
            None => schema.as_object().unwrap(),
        };
        for (word, wanted) in schema {
            if !self.is_so(word, wanted, schema, value, at, faults) {
                faults.push(format!("{at}: {value} is not as `{word}` has it"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let (Some(properties), Some(members)) = (properties, value.as_object()) else { return };
        for (name, member) in members {
            if let Some(property) = properties.get(name) {
                self.look(property, member, &format!("{at}/{name}"), faults);
            }
        }
    }

    fn is_so(
        &self,
        word: &str,
        wanted: &Value,
        schema: &Map<String, Value>,
        value: &Value,
        at: &str,
        faults: &mut Vec<String>,
    ) -> bool {
        let holds = |schema: &&Value| {
            let mut faults = Vec::new();
            self.look(schema, value, at, &mut faults);
            faults.is_empty()
        };
        let all = |wanted: &Value| wanted.as_array().unwrap().iter().filter(holds).count();
        match (word, value) {
            (word, _) if SILENT.contains(&word) => true,
            ("type", _) => match wanted {
                Value::String(kind) => is_of(kind, value),
                kinds => kinds.as_array().unwrap().iter().any(|kind| is_of(kind.as_str().unwrap(), value)),
            },
            ("enum", _) => wanted.as_array().unwrap().contains(value),
            ("anyOf", _) => all(wanted) > 0,
            ("oneOf", _) => all(wanted) == 1,
            ("required", Value::Object(members)) => {
                wanted.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
            }
            ("additionalProperties", Value::Object(members)) => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (name, member) in members {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    match wanted {
                        Value::Bool(may_be) if *may_be => {}
                        Value::Bool(_) => faults.push(format!("{at}: there is no `{name}`")),
                        wanted => self.look(wanted, member, &format!("{at}/{name}"), faults),
                    }
                }
                true
            }
            ("items", Value::Array(items)) => {
                for (number, item) in items.iter().enumerate() {
                    self.look(wanted, item, &format!("{at}/{number}"), faults);
                }
                true
            }
            ("minItems", Value::Array(items)) => items.len() as u64 >= wanted.as_u64().unwrap(),
            ("uniqueItems", Value::Array(items)) => {
                wanted == &Value::Bool(false) || items.iter().enumerate().all(|(at, item)| !items[..at].contains(item))
            }
            ("minimum", Value::Number(number)) => number.as_f64() >= wanted.as_f64(),
            ("maximum", Value::Number(number)) => number.as_f64() <= wanted.as_f64(),
            ("format", Value::String(text)) => match wanted.as_str().unwrap() {
                "uri" => text.contains(':') && is_reference(text),
                "uri-reference" => is_reference(text),
                _ => false,
            },
            // What asks for something of another kind of value.
            (
                "required"
                | "additionalProperties"
                | "items"
                | "minItems"
                | "uniqueItems"
                | "minimum"
                | "maximum"
                | "format",
                _,
            ) => true,
            _ => false,
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        _ => false,
    }
}

/// By the letters that RFC 3986 lets be in one.
fn is_reference(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let is_right = match byte {
            b'%' => {
                [bytes.next(), bytes.next()].iter().all(|digit| digit.is_some_and(|digit| digit.is_ascii_hexdigit()))
            }
            byte => byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=".contains(&byte),
        };
        if !is_right {
            return false;
        }
    }
    true
}

#[test]
fn what_sarif_does_not_allow_is_found() {
    let log = |result: &str| -> Value {
        let text =
            format!(r#"{{"version":"2.1.0","runs":[{{"tool":{{"driver":{{"name":"x"}}}},"results":[{result}]}}]}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let right = r#"{"message":{"text":"m"},"ruleId":"r","level":"error","properties":{"any":1},
        "locations":[{"physicalLocation":{"artifactLocation":{"uri":"file:///a%20b"}}}]}"#;
    assert_eq!(faults_of_sarif(&log(right)), [""; 0]);
    for result in [
        r#"{"ruleId":"r"}"#,
        r#"{"message":{}}"#,
        r#"{"message":{"text":1}}"#,
        r#"{"message":{"text":"m"},"level":"bad"}"#,
        r#"{"message":{"text":"m"},"more":1}"#,
        r#"{"message":{"text":"m"},"rank":101}"#,
        r#"{"message":{"text":"m"},"ruleIndex":-2}"#,
        r#"{"message":{"text":"m"},"suppressions":[{"kind":"inSource"},{"kind":"inSource"}]}"#,
        r#"{"message":{"text":"m"},"locations":[{"physicalLocation":{}}]}"#,
        r#"{"message":{"text":"m"},"locations":[{"physicalLocation":{"artifactLocation":{"uri":"a b"}}}]}"#,
        r#"{"message":{"text":"m"},"guid":"none"}"#,
    ] {
        assert!(!faults_of_sarif(&log(result)).is_empty(), "{result}");
    }
    assert!(!faults_of_sarif(&serde_json::json!({ "version": "2.0.0", "runs": [] })).is_empty());
}
