//! Lists whose items are known by their keys, not by their order. To the API server two of them are equal in any order,
//! and it compares an item with the old one of the same key. The evaluator here goes by position, so the old list is
//! put into the order of the new one first.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};
use serde_json::Value;

use super::bounds::identity;

pub(super) fn aligned(schema: &JSONSchemaProps, old: Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let property = |name: &str| schema.properties.as_ref().and_then(|properties| properties.get(name));
            let align = |(name, value): (String, Value)| {
                let value = match (property(&name), new.get(&name)) {
                    (Some(schema), Some(new)) => aligned(schema, value, new),
                    _ => value,
                };
                (name, value)
            };
            Value::Object(old.into_iter().map(align).collect())
        }
        (Value::Array(mut old), Value::Array(new)) => {
            if let Some(identity) = identity(schema) {
                let order: Vec<_> = new.iter().map(&identity).collect();
                old.sort_by_key(|item| order.iter().position(|key| *key == identity(item)).unwrap_or(usize::MAX));
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                let with_new = old.into_iter().enumerate();
                old = with_new
                    .map(|(at, item)| new.get(at).map_or(item.clone(), |new| aligned(items, item, new)))
                    .collect();
            }
            Value::Array(old)
        }
        (old, _) => old,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn the_old_list_follows_the_new_one() {
        let schema = from_value(json!({"type": "object", "properties": {"list": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object"},
        }}}))
        .unwrap();
        let item = |name: &str, value: u8| json!({"name": name, "value": value});
        let old = json!({"list": [item("a", 1), item("b", 2), item("c", 3)]});
        let new = json!({"list": [item("c", 3), item("d", 4), item("a", 9)]});
        assert_eq!(aligned(&schema, old, &new), json!({"list": [item("c", 3), item("a", 1), item("b", 2)]}));
    }
}
