//! CEL rules that several types share. Other rules are defined next to the field they validate.

use kube::core::{Reason, Rule};
use serde_json::{Value, json};

/// Validates metadata.name, which becomes part of other names.
pub(crate) fn name(pattern: &str, max_length: usize, message: &str) -> Rule {
    Rule::new(format!("self.metadata.name.matches('{pattern}') && self.metadata.name.size() <= {max_length}"))
        .message(message)
        .field_path(".metadata.name")
}

/// Requires that a field keeps its value, or stays absent.
///
/// The rule belongs to the parent. On the field itself the API server would skip it when the field is added or removed.
pub(crate) fn immutable(field: &str) -> Rule {
    immutable_rule(field, unchanged(field))
}

/// Does the same as [`immutable`] for a field of a disk.
pub(crate) fn immutable_in_disk(field: &str) -> Rule {
    Rule::new(unchanged(field))
        .message(format!("{field} is immutable; create a new disk to change it").as_str())
        .field_path(format!(".{field}"))
        .reason(Reason::FieldValueForbidden)
}

/// Returns a CEL expression that compares a field with its stored value.
fn unchanged(field: &str) -> String {
    let same = format!("self.{field} == oldSelf.{field}");
    format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})")
}

/// Does the same as [`immutable`] for a list; an empty list equals an absent one.
pub(crate) fn immutable_list(field: &str) -> Rule {
    let or_empty = |object: &str| format!("(has({object}.{field}) ? {object}.{field} : [])");
    immutable_rule(field, format!("{} == {}", or_empty("self"), or_empty("oldSelf")))
}

/// Does the same as [`immutable`] for a map; an empty map equals an absent one.
pub(crate) fn immutable_map(field: &str) -> Rule {
    let or_empty = |object: &str| format!("(has({object}.{field}) ? {object}.{field} : {{}})");
    immutable_rule(field, format!("{} == {}", or_empty("self"), or_empty("oldSelf")))
}

/// Requires that a field is immutable by the given comparison.
pub(crate) fn immutable_rule(field: &str, rule: impl Into<String>) -> Rule {
    Rule::new(rule)
        .message(format!("{field} is immutable; create a new server to change it").as_str())
        .field_path(format!(".{field}"))
        .reason(Reason::FieldValueForbidden)
}

/// Requires a quantity above zero and below the limit.
pub(crate) fn amount_below(limit: &str, message: &str) -> Rule {
    let amount = amount("self");
    Rule::new(format!("{amount}.isGreaterThan(quantity('0')) && {amount}.isLessThan(quantity('{limit}'))"))
        .message(message)
}

/// Returns a CEL expression for the quantity of an int-or-string field; invalid text counts as zero.
///
/// The API server evaluates rules even if a pattern is violated, and computes quantities exactly: `1e2147483647` takes
/// it half a minute. So no exponent may reach `quantity()`.
pub(crate) fn amount(field: &str) -> String {
    format!("quantity(string({field}).matches('^[0-9]+([.][0-9]+)?[A-Za-z]{{0,2}}$') ? string({field}) : '0')")
}

/// Requires a minimum duration.
pub(crate) fn at_least(minimum: &str, message: &str) -> Rule {
    Rule::new(format!("duration(self) >= duration('{minimum}')")).message(message)
}

/// Bounds the length of label keys.
pub(crate) fn label_keys() -> Rule {
    Rule::new("self.all(key, key.size() >= 1 && key.size() <= 317)")
        .message("a label key must have 1 to 317 characters")
}

/// Converts rules to JSON, for types with a hand-written schema.
pub(crate) fn validations(rules: impl IntoIterator<Item = (impl AsRef<str>, &'static str)>) -> Value {
    rules.into_iter().map(|(rule, message)| json!({"rule": rule.as_ref(), "message": message})).collect()
}
