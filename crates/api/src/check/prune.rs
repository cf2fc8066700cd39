//! Pruning as in the API server: removes fields that are not in the schema, and null fields, because no field is
//! nullable.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::bounds::{items, values};

pub(super) fn pruned(schema: &JSONSchemaProps, object: &Value) -> Value {
    let mut pruned = prune(schema, object);
    // These are part of every kind.
    for name in ["apiVersion", "kind", "metadata"] {
        if let (Some(fields), Some(value)) = (pruned.as_object_mut(), object.get(name)) {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    pruned
}

fn prune(schema: &JSONSchemaProps, value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let known = |name: &str| schema.properties.as_ref().and_then(|properties| properties.get(name));
            let given = fields.iter().filter(|(_, value)| !value.is_null());
            given
                .filter_map(|(name, value)| Some((name.clone(), prune(known(name).or_else(|| values(schema))?, value))))
                .collect()
        }
        Value::Array(list) => {
            list.iter().map(|item| items(schema).map_or(item.clone(), |items| prune(items, item))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn unknown_and_null_fields_are_removed() {
        let leaf = json!({"type": "object", "properties": {"known": {"type": "integer"}}});
        let schema = from_value(json!({"type": "object", "properties": {
            "spec": leaf,
            "list": {"type": "array", "items": leaf},
            "map": {"type": "object", "additionalProperties": leaf},
        }}))
        .unwrap();
        let unpruned = json!({"known": 1, "unknown": 2});
        let object = json!({
            "kind": "Any", "metadata": {"name": "x"}, "other": 1,
            "spec": {"known": null}, "list": [null, unpruned], "map": {"any": unpruned, "none": null},
        });
        let expected = json!({
            "kind": "Any", "metadata": {"name": "x"},
            "spec": {}, "list": [null, {"known": 1}], "map": {"any": {"known": 1}},
        });
        assert_eq!(pruned(&schema, &object), expected);
    }
}
