//! The schema of a kind: types, bounds, patterns and choices, without the rules.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

use super::Violation;

/// The patterns of a schema, compiled once.
pub(super) struct Patterns(BTreeMap<String, Option<Regex>>);

impl Patterns {
    pub(super) fn of(schema: &JSONSchemaProps) -> Self {
        let mut patterns = Self(BTreeMap::new());
        patterns.collect(schema);
        patterns
    }

    fn collect(&mut self, schema: &JSONSchemaProps) {
        if let Some(pattern) = &schema.pattern {
            self.0.entry(pattern.clone()).or_insert_with(|| Regex::new(pattern).ok());
        }
        schema.properties.iter().flat_map(BTreeMap::values).for_each(|schema| self.collect(schema));
        items(schema).into_iter().chain(values(schema)).for_each(|schema| self.collect(schema));
    }

    /// An unreadable pattern matches nothing.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        self.0.get(pattern).and_then(Option::as_ref).is_some_and(|regex| regex.is_match(text))
    }
}

pub(super) fn violations(schema: &JSONSchemaProps, patterns: &Patterns, object: &Value) -> Vec<Violation> {
    let mut walk = Walk { patterns, violations: vec![] };
    walk.value(schema, object, "");
    walk.violations
}

/// What makes an item of this list the same as another: its keys, or for a set the item itself.
pub(super) fn identity(schema: &JSONSchemaProps) -> Option<impl Fn(&Value) -> Vec<Option<Value>> + '_> {
    let keys = match schema.x_kubernetes_list_type.as_deref() {
        Some("map") => schema.x_kubernetes_list_map_keys.as_deref().unwrap_or_default(),
        Some("set") => &[],
        _ => return None,
    };
    Some(move |item: &Value| match keys {
        [] => vec![Some(item.clone())],
        keys => keys.iter().map(|key| item.get(key).cloned()).collect(),
    })
}

pub(super) fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some(items),
        _ => None,
    }
}

pub(super) fn values(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => Some(values),
        _ => None,
    }
}

struct Walk<'a> {
    patterns: &'a Patterns,
    violations: Vec<Violation>,
}

impl Walk<'_> {
    fn value(&mut self, schema: &JSONSchemaProps, value: &Value, path: &str) {
        let either = schema.x_kubernetes_int_or_string == Some(true);
        let is = |kind: &str| schema.type_.as_deref() == Some(kind);
        match value {
            Value::Object(fields) if is("object") => self.object(schema, fields, path),
            Value::Array(list) if is("array") => self.list(schema, list, path),
            Value::String(text) if either || is("string") => self.text(schema, text, path),
            Value::Number(number) if either || is("integer") => match number.as_i64() {
                Some(number) => self.number(schema, number, path),
                None => self.refuse(path, "give a whole number"),
            },
            Value::Bool(_) if is("boolean") => {}
            _ if either => self.refuse(path, "give a number or text here"),
            _ => {
                let kind = schema.type_.as_deref().unwrap_or_default();
                self.refuse(path, format!("give a value of type {kind} here"));
            }
        }
        if let Some(choices) = &schema.enum_
            && !choices.iter().any(|choice| choice.0 == *value)
        {
            let choices: Vec<_> = choices.iter().filter_map(|choice| choice.0.as_str()).collect();
            self.refuse(path, format!("write one of {}", choices.join(", ")));
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, fields: &Map<String, Value>, path: &str) {
        let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
            self.refuse(&inside(name), "this field is required");
        }
        self.size(fields.len(), schema.min_properties, schema.max_properties, "entries", path);
        for (name, value) in fields {
            let property = schema.properties.as_ref().and_then(|properties| properties.get(name));
            if let Some(schema) = property.or_else(|| values(schema)) {
                self.value(schema, value, &inside(name));
            }
        }
    }

    fn list(&mut self, schema: &JSONSchemaProps, list: &[Value], path: &str) {
        self.size(list.len(), schema.min_items, schema.max_items, "items", path);
        for (at, item) in list.iter().enumerate() {
            if let Some(schema) = items(schema) {
                self.value(schema, item, &format!("{path}[{at}]"));
            }
        }
        if let Some(identity) = identity(schema) {
            let mut seen = BTreeSet::new();
            for (at, item) in list.iter().enumerate() {
                if !seen.insert(format!("{:?}", identity(item))) {
                    self.refuse(&format!("{path}[{at}]"), "this is there twice; remove one");
                }
            }
        }
    }

    fn text(&mut self, schema: &JSONSchemaProps, text: &str, path: &str) {
        self.size(text.chars().count(), schema.min_length, schema.max_length, "characters", path);
        if let Some(pattern) = &schema.pattern
            && !self.patterns.matches(pattern, text)
        {
            self.refuse(path, format!("{text:?} does not match {pattern}"));
        }
        if schema.format.as_deref() == Some("date-time") && text.parse::<Timestamp>().is_err() {
            self.refuse(path, "give a time like 2026-01-31T09:00:00Z");
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bounds are floating point in the schema, and far below 2^53")]
    fn number(&mut self, schema: &JSONSchemaProps, number: i64, path: &str) {
        if let Some(least) = schema.minimum.filter(|least| (number as f64) < *least) {
            self.refuse(path, format!("give at least {least}"));
        }
        if let Some(most) = schema.maximum.filter(|most| number as f64 > *most) {
            self.refuse(path, format!("give at most {most}"));
        }
    }

    fn size(&mut self, size: usize, least: Option<i64>, most: Option<i64>, what: &str, path: &str) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if let Some(least) = least.filter(|least| size < *least) {
            self.refuse(path, format!("give at least {least} {what}"));
        }
        if let Some(most) = most.filter(|most| size > *most) {
            self.refuse(path, format!("give at most {most} {what}"));
        }
    }

    fn refuse(&mut self, path: &str, message: impl Into<String>) {
        self.violations.push(super::violation(path, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the value of a field `a` with this schema; both are JSON.
    fn check(schema: &str, value: &str, expect: &[&str]) {
        let schema = format!(r#"{{"type": "object", "properties": {{"a": {schema}}}}}"#);
        let schema: JSONSchemaProps = serde_json::from_str(&schema).unwrap();
        let object = serde_json::from_str(&format!(r#"{{"a": {value}}}"#)).unwrap();
        let found = violations(&schema, &Patterns::of(&schema), &object);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{value}");
    }

    #[test]
    fn types() {
        check(r#"{"type": "integer"}"#, r#""1""#, &["a: give a value of type integer here"]);
        check(r#"{"type": "integer"}"#, "1.5", &["a: give a whole number"]);
        check(r#"{"type": "string"}"#, "1", &["a: give a value of type string here"]);
        check(r#"{"type": "array"}"#, "{}", &["a: give a value of type array here"]);
        check(r#"{"type": "object"}"#, "[]", &["a: give a value of type object here"]);
        check(r#"{"type": "boolean"}"#, r#""no""#, &["a: give a value of type boolean here"]);
    }

    #[test]
    fn numbers_or_text() {
        let either = r#"{"x-kubernetes-int-or-string": true, "minimum": 0, "pattern": "^[0-9]+$"}"#;
        check(either, "4", &[]);
        check(either, r#""4""#, &[]);
        check(either, "-4", &["a: give at least 0"]);
        check(either, r#""-4""#, &[r#"a: "-4" does not match ^[0-9]+$"#]);
        check(either, "true", &["a: give a number or text here"]);
    }

    #[test]
    fn sizes() {
        let text = r#"{"type": "string", "minLength": 2, "maxLength": 3}"#;
        check(text, r#""ä""#, &["a: give at least 2 characters"]);
        check(text, r#""äöü""#, &[]);
        check(text, r#""äöüß""#, &["a: give at most 3 characters"]);
        check(r#"{"type": "array", "maxItems": 1}"#, "[1, 2]", &["a: give at most 1 items"]);
        check(r#"{"type": "integer", "maximum": 64}"#, "65", &["a: give at most 64"]);
        let map = r#"{"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}"#;
        let two = ["a: give at most 1 entries", "a.y: give a value of type string here"];
        check(map, r#"{"x": "", "y": 1}"#, &two);
    }

    #[test]
    fn choices_times_and_required_fields() {
        check(r#"{"type": "string", "enum": ["X", "Y"]}"#, r#""Z""#, &["a: write one of X, Y"]);
        let time = r#"{"type": "string", "format": "date-time"}"#;
        check(time, r#""2026-01-31T09:00:00Z""#, &[]);
        check(time, r#""tomorrow""#, &["a: give a time like 2026-01-31T09:00:00Z"]);
        check(r#"{"type": "object", "required": ["b"]}"#, "{}", &["a.b: this field is required"]);
    }

    #[test]
    fn doubles_in_sets_and_maps() {
        let twice = |at: usize| format!("a[{at}]: this is there twice; remove one");
        check(r#"{"type": "array", "x-kubernetes-list-type": "set"}"#, r#"["x", "y", "x"]"#, &[&twice(2)]);
        let map = r#"{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}"#;
        check(map, r#"[{"k": 1, "v": 1}, {"k": 1, "v": 2}]"#, &[&twice(1)]);
        check(r#"{"type": "array", "x-kubernetes-list-type": "atomic"}"#, "[1, 1]", &[]);
    }
}
