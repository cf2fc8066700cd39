//! Fields of the custom resources, one page for each kind.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Context as _;
use serde_json::Value;

use super::markdown::{code, sentence, start, table, wrap};

pub(super) fn pages() -> anyhow::Result<Vec<(String, String)>> {
    odc_api::crd::crds().iter().map(|definition| page(&serde_json::to_value(definition)?)).collect()
}

fn page(definition: &Value) -> anyhow::Result<(String, String)> {
    let spec = &definition["spec"];
    let kind = spec["names"]["kind"].as_str().context("a definition without a kind")?;
    let version = &spec["versions"][0];
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut page = start(kind, "crates/api", text(&schema["description"]));
    page.push('\n');
    let short_name = spec["names"]["shortNames"][0].as_str();
    page.push_str(&wrap(&format!(
        "API version `{}/{}`, {}{}. `kubectl explain {}.spec` prints the same descriptions.",
        text(&spec["group"]),
        text(&version["name"]),
        if spec["scope"] == "Namespaced" { "namespaced" } else { "cluster-scoped" },
        short_name.map(|name| format!(", short name `{name}`")).unwrap_or_default(),
        text(&spec["names"]["singular"]),
    )));
    for (part, title) in [("spec", "Spec"), ("status", "Status")] {
        let part_schema = &schema["properties"][part];
        let _ = write!(page, "\n## {title}\n\n{}", wrap(text(&part_schema["description"])));
        let mut fields = Fields::new(part);
        fields.add_properties("", part_schema);
        table(&mut page, &["field", "type", "meaning"], fields.rows);
        if !fields.rules.is_empty() {
            let _ = write!(page, "\n### Rules of the {part}\n\nThe API server rejects a write that violates a rule.\n");
            table(&mut page, &["field", "message"], fields.rules);
        }
    }
    Ok((format!("crds/{}.md", text(&spec["names"]["singular"])), page))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The fields below one part of an object, in depth-first order.
struct Fields {
    part: &'static str,
    rows: Vec<Vec<String>>,
    rules: Vec<Vec<String>>,
}

impl Fields {
    fn new(part: &'static str) -> Self {
        Self { part, rows: Vec::new(), rules: Vec::new() }
    }

    fn add_properties(&mut self, path: &str, schema: &Value) {
        self.add_rules(path, schema);
        let required: BTreeSet<&str> = schema["required"].as_array().into_iter().flatten().map(text).collect();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let meaning = meaning(property, required.contains(name.as_str()));
            self.rows.push(vec![code(&path), type_name(property), meaning]);
            self.add_contents(&path, property);
        }
    }

    /// Adds the fields of an object, of the items of a list, or of the values of a map.
    fn add_contents(&mut self, path: &str, schema: &Value) {
        let (suffix, contents) = if schema["items"].is_object() {
            ("[]", &schema["items"])
        } else if schema["additionalProperties"].is_object() {
            (".*", &schema["additionalProperties"])
        } else {
            return self.add_properties(path, schema);
        };
        self.add_rules(path, schema);
        self.add_contents(&format!("{path}{suffix}"), contents);
    }

    fn add_rules(&mut self, path: &str, schema: &Value) {
        let path = if path.is_empty() { code(self.part) } else { code(path) };
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            self.rules.push(vec![path.clone(), text(&rule["message"]).to_owned()]);
        }
    }
}

fn type_name(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "quantity".into();
    }
    match (text(&schema["type"]), text(&schema["format"])) {
        ("array", _) => format!("list of {}", type_name(&schema["items"])),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_name(&schema["additionalProperties"]))
        }
        ("string", "date-time") => "time".into(),
        (name, _) => name.into(),
    }
}

/// Returns the description, followed by what the schema says about the value.
fn meaning(schema: &Value, required: bool) -> String {
    let mut sentences = Vec::new();
    if required {
        sentences.push("Required.".to_owned());
    }
    let description = sentence(text(&schema["description"]));
    if !description.is_empty() {
        sentences.push(description);
    }
    let values = schema["enum"].as_array().into_iter().flatten().map(|value| code(text(value)));
    let values = values.collect::<Vec<_>>().join(", ");
    if !values.is_empty() {
        sentences.push(format!("One of {values}."));
    }
    if let Some(default) = default(&schema["default"]) {
        sentences.push(format!("Default: {}.", code(&default)));
    }
    sentences.extend(bounds(schema));
    sentences.join(" ")
}

/// Returns the default as text. Defaults of objects are left out: they repeat the defaults of the fields.
fn default(value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Object(_) => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the range of a number. Quantities have one for their integer form only, which says nothing about the others.
fn bounds(schema: &Value) -> Option<String> {
    if schema["x-kubernetes-int-or-string"] == true {
        return None;
    }
    let bound = |key: &str| schema[key].as_f64().map(|number| number.to_string());
    match (bound("minimum"), bound("maximum")) {
        (Some(min), Some(max)) => Some(format!("From {min} to {max}.")),
        (Some(min), None) if min != "0" => Some(format!("At least {min}.")),
        (None, Some(max)) => Some(format!("At most {max}.")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_fields_lists_and_maps_have_paths() {
        let schema = json!({"properties": {
            "flavors": {"type": "object", "additionalProperties": {"type": "integer"}},
            "ports": {"type": "array", "items": {"type": "object", "required": ["port"], "properties": {
                "port": {"type": "integer", "minimum": 1, "maximum": 9}}}},
        }});
        let mut fields = Fields::new("spec");
        fields.add_properties("", &schema);
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let expected = [
            row(["`flavors`", "map of integer", ""]),
            row(["`ports`", "list of object", ""]),
            row(["`ports[].port`", "integer", "Required. From 1 to 9."]),
        ];
        assert_eq!(fields.rows, expected);
    }
}
