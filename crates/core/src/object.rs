//! Objects as they are written, of any kind the operator writes.

use k8s_openapi::Resource;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde::Serialize;
use serde_json::Value;

/// The kinds the operator creates or deletes.
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
    Service,
    Pod,
    DevServer,
}

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
            Self::Service => core::Service::API_VERSION,
            Self::Pod => core::Pod::API_VERSION,
            Self::DevServer => "odc.dev/v1alpha1",
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
            Self::Service => "Service",
            Self::Pod => "Pod",
            Self::DevServer => "DevServer",
        }
    }

    /// The resource's name in addresses.
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
            Self::Service => "services",
            Self::Pod => "pods",
            Self::DevServer => "devservers",
        }
    }
}

/// An object to write: exactly the fields we care for.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    pub kind: Kind,
    /// None for kinds of the whole cluster.
    pub namespace: Option<String>,
    pub name: String,
    /// The whole manifest.
    pub body: Value,
}

impl Object {
    /// From a typed object, whose name and namespace are in its metadata.
    pub fn new(kind: Kind, typed: &impl Serialize) -> Self {
        // Types of the Kubernetes API always become JSON; a null would be refused by the API server, and seen.
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
