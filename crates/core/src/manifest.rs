//! Kinds and manifests of the objects that the operator writes.

use std::fmt;

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde::Serialize;
use serde_json::Value;

/// A kind that the operator creates or deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Namespace,
    ServiceAccount,
    RoleBinding,
    ResourceQuota,
    LimitRange,
    NetworkPolicy,
    PodDisruptionBudget,
    Secret,
    ConfigMap,
    Service,
    Pod,
    PersistentVolumeClaim,
    PersistentVolume,
    VolumeSnapshot,
    VolumeSnapshotContent,
    DevServer,
    Disk,
    DiskOperation,
}

/// The API of the external snapshotter. A cluster may not have it.
pub const SNAPSHOT_API_VERSION: &str = "snapshot.storage.k8s.io/v1";

impl Kind {
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Namespace => core::Namespace::API_VERSION,
            Self::ServiceAccount => core::ServiceAccount::API_VERSION,
            Self::RoleBinding => RoleBinding::API_VERSION,
            Self::ResourceQuota => core::ResourceQuota::API_VERSION,
            Self::LimitRange => core::LimitRange::API_VERSION,
            Self::NetworkPolicy => NetworkPolicy::API_VERSION,
            Self::PodDisruptionBudget => PodDisruptionBudget::API_VERSION,
            Self::Secret => core::Secret::API_VERSION,
            Self::ConfigMap => core::ConfigMap::API_VERSION,
            Self::Service => core::Service::API_VERSION,
            Self::Pod => core::Pod::API_VERSION,
            Self::PersistentVolumeClaim => core::PersistentVolumeClaim::API_VERSION,
            Self::PersistentVolume => core::PersistentVolume::API_VERSION,
            Self::VolumeSnapshot | Self::VolumeSnapshotContent => SNAPSHOT_API_VERSION,
            Self::DevServer | Self::Disk | Self::DiskOperation => odc_api::API_VERSION,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::ServiceAccount => "ServiceAccount",
            Self::RoleBinding => "RoleBinding",
            Self::ResourceQuota => "ResourceQuota",
            Self::LimitRange => "LimitRange",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::Pod => "Pod",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::PersistentVolume => "PersistentVolume",
            Self::VolumeSnapshot => "VolumeSnapshot",
            Self::VolumeSnapshotContent => "VolumeSnapshotContent",
            Self::DevServer => "DevServer",
            Self::Disk => "Disk",
            Self::DiskOperation => "DiskOperation",
        }
    }

    /// Returns the resource name in API paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Namespace => "namespaces",
            Self::ServiceAccount => "serviceaccounts",
            Self::RoleBinding => "rolebindings",
            Self::ResourceQuota => "resourcequotas",
            Self::LimitRange => "limitranges",
            Self::NetworkPolicy => "networkpolicies",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
            Self::Service => "services",
            Self::Pod => "pods",
            Self::PersistentVolumeClaim => "persistentvolumeclaims",
            Self::PersistentVolume => "persistentvolumes",
            Self::VolumeSnapshot => "volumesnapshots",
            Self::VolumeSnapshotContent => "volumesnapshotcontents",
            Self::DevServer => "devservers",
            Self::Disk => "disks",
            Self::DiskOperation => "diskoperations",
        }
    }
}

/// An object to write, with the fields that ODC manages.
#[derive(Clone, PartialEq)]
pub struct Object {
    pub kind: Kind,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    pub name: String,
    /// The manifest.
    pub body: Value,
}

/// Omits the manifest, which may contain keys and scripts.
impl fmt::Debug for Object {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, body: _ } = self;
        let mut fields = formatter.debug_struct("Object");
        fields.field("kind", kind).field("namespace", namespace).field("name", name).finish_non_exhaustive()
    }
}

impl Object {
    /// Converts a typed object.
    pub fn new(kind: Kind, typed: &impl Serialize) -> Self {
        // Serialization of Kubernetes types cannot fail. The API server would reject a null.
        let mut body = serde_json::to_value(typed).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.insert("apiVersion".into(), kind.api_version().into());
            fields.insert("kind".into(), kind.as_str().into());
        }
        let text = |field: &str| body["metadata"][field].as_str().map(str::to_owned);
        Self { kind, namespace: text("namespace"), name: text("name").unwrap_or_default(), body }
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.body["metadata"]["labels"][name].as_str()
    }
}
