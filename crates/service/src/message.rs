//! What the worker executes: the payload of a request.
//!
//! The API writes a payload with the request row, and the worker reads it with the message of the queue. Replicas of both
//! roles can have different versions during an update, so fields are only added, with a default; a new action or a change of
//! meaning increases [`VERSION`], and a worker leaves a request of a newer version to a newer worker for about an hour.
//!
//! All objects of a user are in the namespace of the user of the request. Every action can be repeated with the same
//! result. Objects that a request creates or changes have the annotations
//! [`REQUESTED_BY`](odc_api::annotation::REQUESTED_BY) and [`REQUEST_ID`](odc_api::annotation::REQUEST_ID).

use std::collections::BTreeMap;

use odc_api::duration::Duration;
use odc_api::name::UserName;
use odc_api::v1alpha1::{DevServerSpec, DiskOperationSpec, DiskSpec};
use odc_store::queue::Queue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The current version of payloads.
pub const VERSION: u32 = 1;

/// The payload of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    pub version: u32,
    #[serde(flatten)]
    pub message: Message,
}

impl Payload {
    pub const fn new(message: Message) -> Self {
        Self { version: VERSION, message }
    }
}

/// A change of custom resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action")]
pub enum Message {
    #[serde(rename = "devserver.create")]
    DevServerCreate(Box<CreateDevServer>),
    #[serde(rename = "devserver.patch")]
    DevServerPatch(PatchObject),
    #[serde(rename = "devserver.extend")]
    DevServerExtend(ExtendDevServer),
    #[serde(rename = "devserver.set-user")]
    DevServerSetUser(SetUser),
    #[serde(rename = "devserver.delete")]
    DevServerDelete(DeleteDevServer),
    #[serde(rename = "disk.create")]
    DiskCreate(CreateDisk),
    #[serde(rename = "disk.patch")]
    DiskPatch(PatchObject),
    #[serde(rename = "disk.delete")]
    DiskDelete(DeleteDisk),
    #[serde(rename = "disk_operation.create")]
    DiskOperationCreate(Box<CreateDiskOperation>),
    #[serde(rename = "disk_operation.delete")]
    DiskOperationDelete(DeleteObject),
    #[serde(rename = "user.apply")]
    UserApply(ApplyObject),
    #[serde(rename = "user.delete")]
    UserDelete(DeleteObject),
    #[serde(rename = "team.apply")]
    TeamApply(ApplyObject),
    #[serde(rename = "team.delete")]
    TeamDelete(DeleteObject),
    #[serde(rename = "flavor.apply")]
    FlavorApply(ApplyObject),
    #[serde(rename = "flavor.delete")]
    FlavorDelete(DeleteObject),
    /// Reserved; the kind does not exist yet.
    #[serde(rename = "node_operation.create")]
    NodeOperationCreate(ApplyObject),
}

/// Creates a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateDevServer {
    pub name: String,
    pub spec: DevServerSpec,
    /// The disk of the home, to be created before the server if no disk of this name exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_disk: Option<CreateDisk>,
}

/// Changes the spec of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchObject {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    /// A merge patch (RFC 7386) of the spec.
    pub patch: Value,
}

/// Adds time to the lifetime of a server. A worker that finds the id of the request in the annotation of the server has
/// executed it before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtendDevServer {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    pub by: Duration,
}

/// Adds a user to the users with access to a server, or removes one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetUser {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    pub user: UserName,
    /// Whether the user has access afterwards.
    pub has_access: bool,
}

/// Deletes an object. It is no error if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteObject {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
}

/// Stops a server, or deletes it if it is finished. It is no error if it does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteDevServer {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    /// Whether to delete it also if it is not finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub purge: bool,
}

/// Creates a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateDisk {
    pub name: String,
    pub spec: DiskSpec,
}

/// Deletes a disk with its data, now if the deletion is confirmed, else after the retention period (`spec.deleted`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteDisk {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    /// Whether the owner confirmed the deletion of the data. The worker then sets the annotation
    /// [`CONFIRM_DELETE`](odc_api::annotation::CONFIRM_DELETE) and deletes the object.
    #[serde(default)]
    pub confirmed: bool,
}

/// Starts an operation on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateDiskOperation {
    /// Derived from the id of the request.
    pub name: String,
    pub spec: DiskOperationSpec,
}

/// Creates or changes a cluster-scoped object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyObject {
    pub name: String,
    #[serde(default, flatten)]
    pub preconditions: Preconditions,
    #[serde(default)]
    pub mode: ApplyMode,
    pub spec: Value,
    /// Labels and annotations of a complete manifest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// How [`ApplyObject`] changes an existing object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ApplyMode {
    /// The spec is a merge patch; other fields keep their values.
    Merge,
    /// The spec is complete (server-side apply). Fields of other field managers are a conflict.
    #[default]
    Apply,
    /// As `Apply`, and takes over the fields of other field managers.
    ForceApply,
}

/// The state of an object in which the request is executed. Otherwise it is rejected with 409.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// Replaces the uid, if one is given.
    #[must_use]
    pub fn with_uid(self, uid: Option<String>) -> Self {
        Self { uid: uid.or(self.uid), ..self }
    }
}

impl Message {
    /// Returns the action, as stored with the request and in the audit log.
    pub const fn action(&self) -> &'static str {
        self.properties().0
    }

    /// Returns the kind of the object, as stored with the request and in the audit log.
    pub const fn object_kind(&self) -> &'static str {
        self.properties().1
    }

    pub const fn queue(&self) -> Queue {
        self.properties().2
    }

    pub fn object_name(&self) -> &str {
        match self {
            Self::DevServerCreate(create) => &create.name,
            Self::DevServerPatch(patch) | Self::DiskPatch(patch) => &patch.name,
            Self::DevServerExtend(extend) => &extend.name,
            Self::DevServerSetUser(set) => &set.name,
            Self::DiskCreate(create) => &create.name,
            Self::DiskDelete(delete) => &delete.name,
            Self::DiskOperationCreate(create) => &create.name,
            Self::DevServerDelete(delete) => &delete.name,
            Self::DiskOperationDelete(delete)
            | Self::UserDelete(delete)
            | Self::TeamDelete(delete)
            | Self::FlavorDelete(delete) => &delete.name,
            Self::UserApply(apply)
            | Self::TeamApply(apply)
            | Self::FlavorApply(apply)
            | Self::NodeOperationCreate(apply) => &apply.name,
        }
    }

    /// Reports whether the object may not exist afterwards.
    pub const fn is_delete(&self) -> bool {
        match self {
            Self::DevServerDelete(_)
            | Self::DiskDelete(DeleteDisk { confirmed: true, .. })
            | Self::DiskOperationDelete(_)
            | Self::UserDelete(_)
            | Self::TeamDelete(_)
            | Self::FlavorDelete(_) => true,
            Self::DevServerCreate(_)
            | Self::DevServerPatch(_)
            | Self::DevServerExtend(_)
            | Self::DevServerSetUser(_)
            | Self::DiskCreate(_)
            | Self::DiskPatch(_)
            | Self::DiskDelete(DeleteDisk { confirmed: false, .. })
            | Self::DiskOperationCreate(_)
            | Self::UserApply(_)
            | Self::TeamApply(_)
            | Self::FlavorApply(_)
            | Self::NodeOperationCreate(_) => false,
        }
    }

    const fn properties(&self) -> (&'static str, &'static str, Queue) {
        match self {
            Self::DevServerCreate(_) => ("devserver.create", "DevServer", Queue::Reservations),
            Self::DevServerPatch(_) => ("devserver.patch", "DevServer", Queue::Reservations),
            Self::DevServerExtend(_) => ("devserver.extend", "DevServer", Queue::Reservations),
            Self::DevServerSetUser(_) => ("devserver.set-user", "DevServer", Queue::Reservations),
            Self::DevServerDelete(_) => ("devserver.delete", "DevServer", Queue::Reservations),
            Self::DiskCreate(_) => ("disk.create", "Disk", Queue::DiskOperations),
            Self::DiskPatch(_) => ("disk.patch", "Disk", Queue::DiskOperations),
            Self::DiskDelete(_) => ("disk.delete", "Disk", Queue::DiskOperations),
            Self::DiskOperationCreate(_) => ("disk_operation.create", "DiskOperation", Queue::DiskOperations),
            Self::DiskOperationDelete(_) => ("disk_operation.delete", "DiskOperation", Queue::DiskOperations),
            Self::UserApply(_) => ("user.apply", "DevServerUser", Queue::AdminOperations),
            Self::UserDelete(_) => ("user.delete", "DevServerUser", Queue::AdminOperations),
            Self::TeamApply(_) => ("team.apply", "Team", Queue::AdminOperations),
            Self::TeamDelete(_) => ("team.delete", "Team", Queue::AdminOperations),
            Self::FlavorApply(_) => ("flavor.apply", "DevServerFlavor", Queue::AdminOperations),
            Self::FlavorDelete(_) => ("flavor.delete", "DevServerFlavor", Queue::AdminOperations),
            Self::NodeOperationCreate(_) => ("node_operation.create", "NodeOperation", Queue::AdminOperations),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn payload_is_read_as_written() {
        let by = "1h".parse().unwrap();
        let preconditions = Preconditions { uid: Some("u".to_owned()), resource_version: None };
        let extend = Message::DevServerExtend(ExtendDevServer { name: "box".to_owned(), preconditions, by });
        let spec = serde_json::from_value(json!({"home": {"disk": "home"}, "lifetime": "1h"})).unwrap();
        let disk =
            CreateDisk { name: "home".to_owned(), spec: serde_json::from_value(json!({"size": "20Gi"})).unwrap() };
        let create = CreateDevServer { name: "box".to_owned(), spec, default_disk: Some(disk) };
        let delete = DeleteDevServer { name: "box".to_owned(), preconditions: Preconditions::default(), purge: false };
        for message in [extend, Message::DevServerCreate(Box::new(create)), Message::DevServerDelete(delete.clone())] {
            let written = serde_json::to_value(Payload::new(message.clone())).unwrap();
            assert_eq!(written["action"], message.action());
            assert_eq!(written["name"], message.object_name());
            assert_eq!(serde_json::from_value::<Payload>(written).unwrap(), Payload { version: 1, message });
        }
        let written = serde_json::to_value(Payload::new(Message::DevServerDelete(delete))).unwrap();
        assert_eq!(written, json!({"version": 1, "action": "devserver.delete", "name": "box"}));
    }
}
