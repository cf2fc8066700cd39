//! Plans as values: what to write, in which order, which events to publish, and when to reconcile again.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use odc_api::v1alpha1::condition::Reason;

use crate::manifest::{Kind, Object};

/// A write. The operator may crash after any write, so it must be possible to continue from any prefix of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Server-side apply with force, for objects that are managed by ODC alone.
    Apply(Object),
    /// Create, for objects that never change. An existing object must be owned by ODC.
    Create(Object),
    /// As `Create`, for a Secret: a new SSH key pair is added under each name, the public key as `NAME.pub`.
    CreateWithKeys {
        secret: Object,
        names: &'static [&'static str],
    },
    Delete(Target),
    /// Restores a removed owner reference.
    Adopt {
        target: Target,
        owner: serde_json::Value,
    },
}

impl Write {
    /// Returns the verb for logs and errors.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Apply(_) => "apply",
            Self::Create(_) | Self::CreateWithKeys { .. } => "create",
            Self::Delete(_) => "delete",
            Self::Adopt { .. } => "adopt",
        }
    }

    pub const fn kind(&self) -> Kind {
        match self {
            Self::Apply(object) | Self::Create(object) | Self::CreateWithKeys { secret: object, .. } => object.kind,
            Self::Delete(target) | Self::Adopt { target, .. } => target.kind,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Apply(object) | Self::Create(object) | Self::CreateWithKeys { secret: object, .. } => &object.name,
            Self::Delete(target) | Self::Adopt { target, .. } => &target.name,
        }
    }
}

/// An object identified by uid, so that a new object of the same name is never affected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    pub uid: String,
    /// The grace period in seconds. `None` keeps the object's own; zero deletes it without waiting for its node.
    pub grace: Option<u32>,
    /// Deletes the object only if it has not changed since this version. The next reconciliation decides about another one.
    pub resource_version: Option<String>,
}

impl Target {
    /// Returns an object that is deleted with its own grace period, whatever its version.
    pub fn new(kind: Kind, namespace: Option<&str>, name: &str, uid: &str) -> Self {
        Self {
            kind,
            namespace: namespace.map(ToOwned::to_owned),
            name: name.to_owned(),
            uid: uid.to_owned(),
            grace: None,
            resource_version: None,
        }
    }

    /// Returns the object with this metadata.
    pub fn from_metadata(kind: Kind, meta: &ObjectMeta) -> Self {
        let [name, uid] = [&meta.name, &meta.uid].map(|text| text.as_deref().unwrap_or_default());
        Self::new(kind, meta.namespace.as_deref(), name, uid)
    }
}

/// A Kubernetes event, published at most once for each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type Warning instead of Normal.
    pub warning: bool,
    pub reason: Reason,
    /// The action as a verb.
    pub action: &'static str,
    /// A short message.
    pub note: String,
}

/// When to reconcile again if nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    AwaitChange,
    After(Duration),
}

impl Requeue {
    /// Returns the earlier of two.
    #[must_use]
    pub fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::AwaitChange, other) => other,
            (this, Self::AwaitChange) => this,
        }
    }
}
