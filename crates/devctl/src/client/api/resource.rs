//! Resources of the HTTP API as the custom resources that commands use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, Disk, DiskOperation};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::ObjectKind;
use crate::error::{Error, Result};
use crate::model::disk::DiskSummary;
use crate::model::server::ServerSummary;

/// A resource with a spec and a status.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource<S, T> {
    name: String,
    user: Option<String>,
    uid: String,
    created_at: Option<Time>,
    deletion_requested_at: Option<Time>,
    #[serde(rename = "resourceVersion")]
    version: String,
    generation: Option<i64>,
    spec: S,
    status: Option<T>,
}

impl<S, T> Resource<S, T> {
    fn split(self) -> (ObjectMeta, S, Option<T>) {
        let metadata = ObjectMeta {
            name: Some(self.name),
            namespace: self.user.map(|user| odc_api::namespace::for_user(&user)),
            // Objects of a dry run have neither.
            uid: Some(self.uid).filter(|uid| !uid.is_empty()),
            resource_version: Some(self.version).filter(|version| !version.is_empty()),
            creation_timestamp: self.created_at,
            deletion_timestamp: self.deletion_requested_at,
            generation: self.generation,
            ..ObjectMeta::default()
        };
        (metadata, self.spec, self.status)
    }
}

/// A custom resource, or a part of it.
pub trait Object: Sized {
    type Spec: DeserializeOwned;
    type Status: DeserializeOwned;

    fn from_resource(resource: Resource<Self::Spec, Self::Status>) -> Self;

    /// Parses the body of a change or an event.
    fn from_value(value: Value) -> Result<Self> {
        serde_json::from_value(value).map(Self::from_resource).map_err(|error| {
            Error::failed(format!("unexpected object from the API: {error}"))
                .with_hint("devctl may be older than the API; compare with `devctl version`")
        })
    }
}

pub type ResourceOf<K> = Resource<<K as Object>::Spec, <K as Object>::Status>;

macro_rules! object {
    ($kind:ident, $spec:ty, $status:ty, |$parsed:ident| $convert:expr) => {
        impl Object for $kind {
            type Spec = $spec;
            type Status = $status;

            fn from_resource(resource: Resource<$spec, $status>) -> Self {
                let (metadata, spec, $parsed) = resource.split();
                Self { metadata, spec, status: $convert }
            }
        }
    };
}

object!(ServerSummary, crate::model::server::Spec, crate::model::server::Status, |status| status.unwrap_or_default());
object!(DiskSummary, crate::model::disk::Spec, crate::model::disk::Status, |status| status.unwrap_or_default());
object!(DevServer, odc_api::v1alpha1::DevServerSpec, odc_api::v1alpha1::DevServerStatus, |status| status);
object!(Disk, odc_api::v1alpha1::DiskSpec, odc_api::v1alpha1::DiskStatus, |status| status);
object!(DiskOperation, odc_api::v1alpha1::DiskOperationSpec, odc_api::v1alpha1::DiskOperationStatus, |status| status);
object!(DevServerFlavor, odc_api::v1alpha1::DevServerFlavorSpec, odc_api::v1alpha1::DevServerFlavorStatus, |status| {
    status
});

/// Converts a user, team or flavor.
pub fn to_manifest(kind: ObjectKind, resource: Resource<Value, Value>) -> Result<Value> {
    let (metadata, spec, status) = resource.split();
    let metadata = serde_json::to_value(metadata).map_err(|error| Error::failed(error.to_string()))?;
    let mut object =
        json!({"apiVersion": odc_api::API_VERSION, "kind": kind.kind(), "metadata": metadata, "spec": spec});
    if let Some(status) = status {
        object["status"] = status;
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_becomes_the_custom_resource() {
        let server = DevServer::test().lifetime("8h");
        let resource = json!({
            "name": "box", "user": "ada", "uid": "u", "createdAt": "2026-01-01T00:00:00Z", "resourceVersion": "7",
            "observedAt": "2026-01-01T00:00:00Z", "generation": 2, "spec": server.spec, "status": {"phase": "Running"},
        });
        let summary = ServerSummary::from_value(resource.clone()).unwrap();
        assert_eq!((summary.name(), summary.namespace(), summary.phase_str()), ("box", "dev-ada", "Running"));
        let object = DevServer::from_value(resource).unwrap();
        assert_eq!(object.spec, server.spec);
        assert_eq!(object.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(object.metadata.generation, Some(2));
    }

    #[test]
    fn object_of_the_cluster_has_no_namespace() {
        let resource =
            json!({"name": "vision", "uid": "u", "createdAt": null, "resourceVersion": "7", "spec": {"weight": 2}});
        let manifest = to_manifest(ObjectKind::Team, serde_json::from_value(resource).unwrap()).unwrap();
        assert_eq!(
            manifest,
            json!({"apiVersion": "odc.dev/v1alpha1", "kind": "Team", "spec": {"weight": 2},
                "metadata": {"name": "vision", "uid": "u", "resourceVersion": "7"}})
        );
    }
}
