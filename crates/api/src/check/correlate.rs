//! Correlates the items of old and new lists. The API server matches the items of map and set lists by key, in any
//! order. The CEL evaluator of kube matches by position, so the old list is sorted like the new one first.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrArray};
use serde_json::Value;

use super::bounds::identity;

pub(super) fn correlated(schema: &JSONSchemaProps, old: Value, new: &Value) -> Value {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let property = |name: &str| schema.properties.as_ref().and_then(|properties| properties.get(name));
            let correlate = |(name, value): (String, Value)| {
                let value = match (property(&name), new.get(&name)) {
                    (Some(schema), Some(new)) => correlated(schema, value, new),
                    _ => value,
                };
                (name, value)
            };
            Value::Object(old.into_iter().map(correlate).collect())
        }
        (Value::Array(mut old), Value::Array(new)) => {
            if let Some(identity) = identity(schema) {
                let order: Vec<_> = new.iter().map(&identity).collect();
                old.sort_by_key(|item| order.iter().position(|key| *key == identity(item)).unwrap_or(usize::MAX));
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                let indexed = old.into_iter().enumerate();
                old = indexed
                    .map(|(index, item)| new.get(index).map_or(item.clone(), |new| correlated(items, item, new)))
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
    fn old_list_is_sorted_like_the_new_one() {
        let schema = from_value(json!({"type": "object", "properties": {"list": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object"},
        }}}))
        .unwrap();
        let item = |name: &str, value: u8| json!({"name": name, "value": value});
        let old = json!({"list": [item("a", 1), item("b", 2), item("c", 3)]});
        let new = json!({"list": [item("c", 3), item("d", 4), item("a", 9)]});
        assert_eq!(correlated(&schema, old, &new), json!({"list": [item("c", 3), item("a", 1), item("b", 2)]}));
    }
}
