//! Schema validation: types, bounds, patterns and enums, without the CEL rules.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value};

use super::Violation;

/// The compiled patterns of a schema.
pub(super) struct Patterns(BTreeMap<String, Option<Regex>>);

impl Patterns {
    pub(super) fn compile(schema: &JSONSchemaProps) -> Self {
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

    /// An invalid pattern matches nothing.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        self.0.get(pattern).and_then(Option::as_ref).is_some_and(|regex| regex.is_match(text))
    }
}

pub(super) fn violations(schema: &JSONSchemaProps, patterns: &Patterns, object: &Value) -> Vec<Violation> {
    let mut walk = Walk { patterns, violations: vec![] };
    walk.value(schema, object, "");
    walk.violations
}

/// Returns the function that identifies an item of a list: by its keys, or for a set by the item itself.
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
        let int_or_string = schema.x_kubernetes_int_or_string == Some(true);
        let is = |kind: &str| schema.type_.as_deref() == Some(kind);
        match value {
            Value::Object(fields) if is("object") => self.object(schema, fields, path),
            Value::Array(list) if is("array") => self.list(schema, list, path),
            Value::String(text) if int_or_string || is("string") => self.text(schema, text, path),
            Value::Number(number) if int_or_string || is("integer") => match number.as_i64() {
                Some(number) => self.number(schema, number, path),
                None => self.reject(path, "must be an integer"),
            },
            Value::Bool(_) if is("boolean") => {}
            _ if int_or_string => self.reject(path, "must be a number or a string"),
            _ => {
                let kind = schema.type_.as_deref().unwrap_or_default();
                self.reject(path, format!("must be of type {kind}"));
            }
        }
        if let Some(choices) = &schema.enum_
            && !choices.iter().any(|choice| choice.0 == *value)
        {
            let choices: Vec<_> = choices.iter().filter_map(|choice| choice.0.as_str()).collect();
            self.reject(path, format!("must be one of {}", choices.join(", ")));
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, fields: &Map<String, Value>, path: &str) {
        let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
            self.reject(&inside(name), "required");
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
        for (index, item) in list.iter().enumerate() {
            if let Some(schema) = items(schema) {
                self.value(schema, item, &format!("{path}[{index}]"));
            }
        }
        if let Some(identity) = identity(schema) {
            let mut seen = BTreeSet::new();
            for (index, item) in list.iter().enumerate() {
                if !seen.insert(format!("{:?}", identity(item))) {
                    self.reject(&format!("{path}[{index}]"), "duplicate item");
                }
            }
        }
    }

    fn text(&mut self, schema: &JSONSchemaProps, text: &str, path: &str) {
        self.size(text.chars().count(), schema.min_length, schema.max_length, "characters", path);
        if let Some(pattern) = &schema.pattern
            && !self.patterns.matches(pattern, text)
        {
            self.reject(path, format!("{text:?} must match {pattern}"));
        }
        if schema.format.as_deref() == Some("date-time") && text.parse::<Timestamp>().is_err() {
            self.reject(path, "must be a time such as 2026-01-31T09:00:00Z");
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bounds are floating point in the schema, and far below 2^53")]
    fn number(&mut self, schema: &JSONSchemaProps, number: i64, path: &str) {
        if let Some(minimum) = schema.minimum.filter(|minimum| (number as f64) < *minimum) {
            self.reject(path, format!("must be at least {minimum}"));
        }
        if let Some(maximum) = schema.maximum.filter(|maximum| number as f64 > *maximum) {
            self.reject(path, format!("must be at most {maximum}"));
        }
    }

    fn size(&mut self, size: usize, minimum: Option<i64>, maximum: Option<i64>, unit: &str, path: &str) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if let Some(minimum) = minimum.filter(|minimum| size < *minimum) {
            self.reject(path, format!("must have at least {minimum} {unit}"));
        }
        if let Some(maximum) = maximum.filter(|maximum| size > *maximum) {
            self.reject(path, format!("must have at most {maximum} {unit}"));
        }
    }

    fn reject(&mut self, path: &str, message: impl Into<String>) {
        self.violations.push(super::violation(path, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Validates the field `a` with this schema; both are JSON.
    fn check(schema: &str, value: &str, expect: &[&str]) {
        let schema = format!(r#"{{"type": "object", "properties": {{"a": {schema}}}}}"#);
        let schema: JSONSchemaProps = serde_json::from_str(&schema).unwrap();
        let object = serde_json::from_str(&format!(r#"{{"a": {value}}}"#)).unwrap();
        let found = violations(&schema, &Patterns::compile(&schema), &object);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{value}");
    }

    #[test]
    fn wrong_types_are_rejected() {
        check(r#"{"type": "integer"}"#, r#""1""#, &["a: must be of type integer"]);
        check(r#"{"type": "integer"}"#, "1.5", &["a: must be an integer"]);
        check(r#"{"type": "string"}"#, "1", &["a: must be of type string"]);
        check(r#"{"type": "array"}"#, "{}", &["a: must be of type array"]);
        check(r#"{"type": "object"}"#, "[]", &["a: must be of type object"]);
        check(r#"{"type": "boolean"}"#, r#""no""#, &["a: must be of type boolean"]);
    }

    #[test]
    fn int_or_string_accepts_both() {
        let schema = r#"{"x-kubernetes-int-or-string": true, "minimum": 0, "pattern": "^[0-9]+$"}"#;
        check(schema, "4", &[]);
        check(schema, r#""4""#, &[]);
        check(schema, "-4", &["a: must be at least 0"]);
        check(schema, r#""-4""#, &[r#"a: "-4" must match ^[0-9]+$"#]);
        check(schema, "true", &["a: must be a number or a string"]);
    }

    #[test]
    fn sizes_are_bounded() {
        let text = r#"{"type": "string", "minLength": 2, "maxLength": 3}"#;
        check(text, r#""ä""#, &["a: must have at least 2 characters"]);
        check(text, r#""äöü""#, &[]);
        check(text, r#""äöüß""#, &["a: must have at most 3 characters"]);
        check(r#"{"type": "array", "maxItems": 1}"#, "[1, 2]", &["a: must have at most 1 items"]);
        check(r#"{"type": "integer", "maximum": 64}"#, "65", &["a: must be at most 64"]);
        let map = r#"{"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}}"#;
        let two = ["a: must have at most 1 entries", "a.y: must be of type string"];
        check(map, r#"{"x": "", "y": 1}"#, &two);
    }

    #[test]
    fn enums_times_and_required_fields_are_checked() {
        check(r#"{"type": "string", "enum": ["X", "Y"]}"#, r#""Z""#, &["a: must be one of X, Y"]);
        let time = r#"{"type": "string", "format": "date-time"}"#;
        check(time, r#""2026-01-31T09:00:00Z""#, &[]);
        check(time, r#""tomorrow""#, &["a: must be a time such as 2026-01-31T09:00:00Z"]);
        check(r#"{"type": "object", "required": ["b"]}"#, "{}", &["a.b: required"]);
    }

    #[test]
    fn duplicates_in_sets_and_maps_are_rejected() {
        let duplicate = |index: usize| format!("a[{index}]: duplicate item");
        check(r#"{"type": "array", "x-kubernetes-list-type": "set"}"#, r#"["x", "y", "x"]"#, &[&duplicate(2)]);
        let map = r#"{"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}"#;
        check(map, r#"[{"k": 1, "v": 1}, {"k": 1, "v": 2}]"#, &[&duplicate(1)]);
        check(r#"{"type": "array", "x-kubernetes-list-type": "atomic"}"#, "[1, 1]", &[]);
    }
}
