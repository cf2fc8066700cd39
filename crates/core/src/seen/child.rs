//! Objects the operator made and keeps as they should be.

use serde_json::Value;

use crate::object::{Kind, Object};

/// An object as it is stored now.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    pub deleting: bool,
    /// Its manifest without status and history.
    pub body: Value,
}

impl Child {
    /// Keeps of a stored object what can be compared with a wanted one.
    pub fn of(kind: Kind, mut stored: Value) -> Self {
        let text = |field: &str| stored["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        let deleting = stored["metadata"]["deletionTimestamp"].is_string();
        if let Some(fields) = stored.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = stored["metadata"].as_object_mut() {
            metadata.retain(|field, _| {
                ["name", "namespace", "labels", "annotations", "ownerReferences"].contains(&field.as_str())
            });
        }
        Self { kind, namespace, name: name.unwrap_or_default(), uid: uid.unwrap_or_default(), deleting, body: stored }
    }

    /// Whether everything wanted is there, so that applying it would change nothing. Fields we never set may be
    /// anything; a list must be exactly the wanted one.
    pub fn covers(&self, wanted: &Object) -> bool {
        let mut wanted = wanted.body.clone();
        if let Some(fields) = wanted.as_object_mut() {
            // Watched objects do not say what they are.
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        covers(&self.body, &wanted)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.body["metadata"]["labels"][name].as_str()
    }
}

fn covers(stored: &Value, wanted: &Value) -> bool {
    match (stored, wanted) {
        (Value::Object(stored), Value::Object(wanted)) => {
            wanted.iter().all(|(field, wanted)| match stored.get(field) {
                Some(stored) => covers(stored, wanted),
                None => is_empty(wanted),
            })
        }
        (Value::Array(stored), Value::Array(wanted)) => {
            stored.len() == wanted.len() && stored.iter().zip(wanted).all(|(stored, wanted)| covers(stored, wanted))
        }
        _ => stored == wanted,
    }
}

/// The API server drops empty maps and lists it was given.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(stored: Value, wanted: Value, expect: bool) {
        let child = Child::of(Kind::Service, stored);
        let wanted = Object { kind: Kind::Service, namespace: None, name: "s".into(), body: wanted };
        assert_eq!(child.covers(&wanted), expect);
    }

    #[test]
    fn more_than_wanted_is_enough() {
        check(
            json!({"metadata": {"name": "s", "labels": {"a": "1", "b": "2"}, "uid": "u"}, "spec": {"x": 1, "y": 2}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "1"}}, "spec": {"x": 1, "z": []}}),
            true,
        );
    }

    #[test]
    fn what_is_missing_or_different_is_not() {
        let stored = json!({"metadata": {"name": "s"}, "spec": {"list": [{"a": 1, "defaulted": true}]}});
        check(stored.clone(), json!({"spec": {"list": [{"a": 1}]}}), true);
        check(stored.clone(), json!({"spec": {"list": [{"a": 2}]}}), false);
        check(stored.clone(), json!({"spec": {"list": []}}), false);
        check(stored.clone(), json!({"spec": {"list": [{"a": 1}, {"a": 1}]}}), false);
        check(stored, json!({"metadata": {"labels": {"a": "1"}}}), false);
    }
}
