//! Objects that the operator creates and keeps in their desired state.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::manifest::{Kind, Object};

/// An object as it is stored in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedObject {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    pub is_deleting: bool,
    /// The manifest without status and managed fields.
    pub body: Value,
    /// For a `ResourceQuota`.
    pub quota: Option<Box<QuotaUsage>>,
}

/// What a `ResourceQuota` counts. The amounts are left out, because they change with every pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    pub created_at: Option<Timestamp>,
    /// The resources whose usage is known. Requests for others are rejected.
    pub counted: BTreeSet<String>,
}

impl QuotaUsage {
    fn from_api(stored: &Value) -> Self {
        let used = stored["status"]["used"].as_object();
        let created_at = stored["metadata"]["creationTimestamp"].as_str().and_then(|time| time.parse().ok());
        Self { created_at, counted: used.into_iter().flat_map(|used| used.keys().cloned()).collect() }
    }
}

impl ManagedObject {
    /// Keeps the parts of a stored object that are compared with the desired one.
    pub fn from_api(kind: Kind, mut stored: Value) -> Self {
        let text = |field: &str| stored["metadata"][field].as_str().map(str::to_owned);
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        let is_deleting = stored["metadata"]["deletionTimestamp"].is_string();
        let quota = (kind == Kind::ResourceQuota).then(|| Box::new(QuotaUsage::from_api(&stored)));
        if let Some(fields) = stored.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = stored["metadata"].as_object_mut() {
            metadata.retain(|field, _| {
                ["name", "namespace", "labels", "annotations", "ownerReferences"].contains(&field.as_str())
            });
        }
        Self {
            kind,
            namespace,
            name: name.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            is_deleting,
            body: stored,
            quota,
        }
    }

    /// Reports whether the object contains all desired fields, so that applying them would change nothing. Fields that ODC
    /// does not set are ignored; lists must match exactly.
    pub fn contains(&self, desired: &Object) -> bool {
        let mut desired = desired.body.clone();
        if let Some(fields) = desired.as_object_mut() {
            // Watched objects have no type information.
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        contains(&self.body, &desired)
    }

    /// Returns the uid of the server it belongs to; see [`server_uid`](super::server_uid).
    pub fn server_uid(&self) -> Option<String> {
        let metadata = ObjectMeta::deserialize(&self.body["metadata"]).ok()?;
        super::server_uid(&metadata).map(str::to_owned)
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.body["metadata"]["labels"][name].as_str()
    }
}

fn contains(stored: &Value, desired: &Value) -> bool {
    match (stored, desired) {
        (Value::Object(stored), Value::Object(desired)) => {
            desired.iter().all(|(field, desired)| match stored.get(field) {
                Some(stored) => contains(stored, desired),
                None => is_empty(desired),
            })
        }
        (Value::Array(stored), Value::Array(desired)) => {
            stored.len() == desired.len()
                && stored.iter().zip(desired).all(|(stored, desired)| contains(stored, desired))
        }
        _ => stored == desired,
    }
}

/// Reports whether the API server drops the value: empty maps and lists.
pub(crate) fn is_empty(value: &Value) -> bool {
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

    fn check(stored: Value, desired: Value, expect: bool) {
        let object = ManagedObject::from_api(Kind::Service, stored);
        let desired = Object { kind: Kind::Service, namespace: None, name: "s".into(), body: desired };
        assert_eq!(object.contains(&desired), expect);
    }

    #[test]
    fn additional_fields_are_ignored() {
        check(
            json!({"metadata": {"name": "s", "labels": {"a": "1", "b": "2"}, "uid": "u"}, "spec": {"x": 1, "y": 2}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "1"}}, "spec": {"x": 1, "z": []}}),
            true,
        );
    }

    #[test]
    fn missing_or_different_fields_are_detected() {
        let stored = json!({"metadata": {"name": "s"}, "spec": {"list": [{"a": 1, "defaulted": true}]}});
        check(stored.clone(), json!({"spec": {"list": [{"a": 1}]}}), true);
        check(stored.clone(), json!({"spec": {"list": [{"a": 2}]}}), false);
        check(stored.clone(), json!({"spec": {"list": []}}), false);
        check(stored.clone(), json!({"spec": {"list": [{"a": 1}, {"a": 1}]}}), false);
        check(stored, json!({"metadata": {"labels": {"a": "1"}}}), false);
    }
}
