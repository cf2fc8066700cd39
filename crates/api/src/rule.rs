//! CEL rules that several types share. A rule lives beside the field it guards; what is here only spares repetition.

use kube::core::{Reason, Rule};
use serde_json::{Value, json};

/// The object's own name, which becomes part of other names.
pub(crate) fn name(pattern: &str, longest: usize, message: &str) -> Rule {
    Rule::new(format!("self.metadata.name.matches('{pattern}') && self.metadata.name.size() <= {longest}"))
        .message(message)
        .field_path(".metadata.name")
}

/// The field keeps the value it was created with, or stays absent.
///
/// It is written on the parent: on the field itself the API server would skip it when the field appears or disappears.
pub(crate) fn fixed(field: &str) -> Rule {
    let same = format!("self.{field} == oldSelf.{field}");
    unchanging(field, format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"))
}

/// As [`fixed`], for a list; an empty one is as good as none.
pub(crate) fn fixed_list(field: &str) -> Rule {
    let or_empty = |object: &str| format!("(has({object}.{field}) ? {object}.{field} : [])");
    unchanging(field, format!("{} == {}", or_empty("self"), or_empty("oldSelf")))
}

/// As [`fixed`], for a map; an empty one is as good as none.
pub(crate) fn fixed_map(field: &str) -> Rule {
    let or_empty = |object: &str| format!("(has({object}.{field}) ? {object}.{field} : {{}})");
    unchanging(field, format!("{} == {}", or_empty("self"), or_empty("oldSelf")))
}

/// This rule says that the field did not change, in its own way.
pub(crate) fn unchanging(field: &str, rule: impl Into<String>) -> Rule {
    Rule::new(rule)
        .message(format!("{field} cannot change once the server exists; create a new server with it").as_str())
        .field_path(format!(".{field}"))
        .reason(Reason::FieldValueForbidden)
}

/// An amount above zero and below this one.
pub(crate) fn amount_below(limit: &str, message: &str) -> Rule {
    let amount = amount("self");
    Rule::new(format!("{amount}.isGreaterThan(quantity('0')) && {amount}.isLessThan(quantity('{limit}'))"))
        .message(message)
}

/// The amount in a field that is a number or text; what cannot be one counts as zero.
///
/// The API server evaluates rules although a pattern is violated, and its quantities are computed exactly:
/// `1e2147483647` would keep it busy for half a minute. So no exponent may reach `quantity()`.
pub(crate) fn amount(field: &str) -> String {
    format!("quantity(string({field}).matches('^[0-9]+([.][0-9]+)?[A-Za-z]{{0,2}}$') ? string({field}) : '0')")
}

/// A duration of at least this.
pub(crate) fn at_least(least: &str, message: &str) -> Rule {
    Rule::new(format!("duration(self) >= duration('{least}')")).message(message)
}

/// The keys of a map of labels are short enough to be one.
pub(crate) fn label_keys() -> Rule {
    Rule::new("self.all(key, key.size() >= 1 && key.size() <= 317)")
        .message("a label's key has between 1 and 317 characters")
}

/// Rules as a schema carries them, for types that write their own schema.
pub(crate) fn validations(rules: impl IntoIterator<Item = (impl AsRef<str>, &'static str)>) -> Value {
    rules.into_iter().map(|(rule, message)| json!({"rule": rule.as_ref(), "message": message})).collect()
}
