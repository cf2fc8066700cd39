//! Requests about disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::name::DiskName;
use crate::v1alpha1::{DiskArguments, DiskSpec};

/// A disk to create: its name and the fields of its spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct CreateDisk {
    pub name: DiskName,
    /// Fields of the spec.
    #[serde(flatten)]
    #[schemars(schema_with = "DiskSpec::json_schema")]
    pub spec: Map<String, Value>,
}

/// The arguments of an operation on a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskActionBody {
    #[serde(flatten)]
    pub arguments: DiskArguments,
    /// Note for the restore point or the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub note: Option<String>,
}

/// A PersistentVolumeClaim of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    pub name: String,
    /// Capacity, or the requested size while it is not bound. Such as 20Gi.
    pub size: String,
}
