//! Conversion of custom resources to rows.

mod cluster_object;
mod disk;
mod server;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use odc_api::{annotation, namespace};
use odc_store::projection::Copied;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use super::managed_fields::changed_by;

pub use cluster_object::{Flavors, cluster_object, flavor, user};
pub use disk::{disk, disk_operation};
pub use server::{ServerRows, server};

/// Why an object has no row.
#[derive(Debug, thiserror::Error)]
pub enum InvalidObject {
    #[error("it is not in the namespace of a user")]
    Namespace,
    #[error("it has no valid {0}")]
    Metadata(&'static str),
    #[error("it cannot be parsed")]
    Parse(#[source] serde_json::Error),
}

/// Returns the object as JSON without managed fields, and as its type.
fn parse<K: DeserializeOwned>(object: &DynamicObject) -> Result<(Value, K), InvalidObject> {
    let mut object = object.clone();
    object.metadata.managed_fields = None;
    let mut value = serde_json::to_value(object).map_err(InvalidObject::Parse)?;
    remove_nul(&mut value);
    let parsed = K::deserialize(&value).map_err(InvalidObject::Parse)?;
    Ok((value, parsed))
}

/// Removes the character NUL, which PostgreSQL cannot store, from all texts.
fn remove_nul(value: &mut Value) {
    match value {
        Value::String(text) => text.retain(|character| character != '\0'),
        Value::Array(items) => items.iter_mut().for_each(remove_nul),
        Value::Object(fields) => {
            if fields.keys().any(|key| key.contains('\0')) {
                fields.retain(|key, _| !key.contains('\0'));
            }
            fields.values_mut().for_each(remove_nul);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns what the rows of all namespaced kinds have in common.
fn copied(object: &DynamicObject, value: Value) -> Result<Copied, InvalidObject> {
    let metadata = &object.metadata;
    let annotation = |name: &str| metadata.annotations.as_ref()?.get(name).map(|text| text.replace('\0', ""));
    let namespace = metadata.namespace.clone().unwrap_or_default();
    Ok(Copied {
        uid: uid(object)?,
        user_name: namespace::owner(&namespace).ok_or(InvalidObject::Namespace)?.to_string(),
        namespace,
        name: metadata.name.clone().ok_or(InvalidObject::Metadata("name"))?,
        request_id: annotation(annotation::REQUEST_ID).and_then(|id| id.parse().ok()),
        requested_by: annotation(annotation::REQUESTED_BY),
        created_at: timestamp(metadata.creation_timestamp.as_ref())
            .ok_or(InvalidObject::Metadata("creationTimestamp"))?,
        generation: metadata.generation.unwrap_or(1),
        changed_by: changed_by(metadata),
        object: value,
    })
}

/// Returns the uid of an object.
pub fn uid(object: &DynamicObject) -> Result<Uuid, InvalidObject> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    uid.parse().map_err(|_| InvalidObject::Metadata("uid"))
}

fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::{DevServer, Disk};
    use serde_json::json;

    use super::*;

    pub const UID: &str = "0197a3c4-0000-7000-8000-000000000001";

    /// Returns an object as a watch delivers it.
    pub fn dynamic(object: &impl serde::Serialize) -> DynamicObject {
        let mut object: DynamicObject = serde_json::from_value(serde_json::to_value(object).unwrap()).unwrap();
        object.metadata.uid = Some(UID.to_owned());
        object.metadata.creation_timestamp = Some(odc_api::fixtures::time("2026-01-01T00:00:00Z"));
        object
    }

    #[test]
    fn request_of_an_object_is_in_its_annotations() {
        let mut object = dynamic(&Disk::test());
        object.metadata.annotations =
            Some([(annotation::REQUEST_ID.into(), UID.into()), (annotation::REQUESTED_BY.into(), "ada".into())].into());
        let copied = copied(&object, Value::Null).unwrap();
        assert_eq!(copied.request_id, Some(UID.parse().unwrap()));
        assert_eq!(copied.requested_by.as_deref(), Some("ada"));
        assert_eq!((copied.user_name.as_str(), copied.namespace.as_str()), ("ada", "dev-ada"));
    }

    #[test]
    fn object_without_valid_metadata_has_no_row() {
        let without = |change: fn(&mut DynamicObject)| {
            let mut object = dynamic(&Disk::test());
            change(&mut object);
            copied(&object, Value::Null).is_err()
        };
        assert!(without(|object| object.metadata.namespace = Some("default".into())));
        assert!(without(|object| object.metadata.uid = Some("uid".into())));
        assert!(without(|object| object.metadata.creation_timestamp = None));
        assert!(!without(|_| ()));
    }

    #[test]
    fn managed_fields_and_nul_are_not_stored() {
        let mut object = dynamic(&DevServer::test());
        object.metadata.managed_fields = Some(vec![]);
        object.data["spec"]["setup"] = json!({"script": "a\0b"});
        object.data["spec"]["\0"] = json!(1);
        let (value, server): (Value, DevServer) = parse(&object).unwrap();
        assert!(!value.to_string().contains("managedFields"));
        assert_eq!(value["spec"]["setup"]["script"], "ab");
        assert!(value["spec"].get("\0").is_none());
        assert_eq!(server.spec, DevServer { spec: server.spec.clone(), ..DevServer::test() }.spec);
    }
}
