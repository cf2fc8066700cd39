//! Requests about servers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::duration::Duration;
use crate::name::ObjectName;
use crate::v1alpha1::DevServerSpec;

/// A server to create: its name and the fields of its spec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct CreateDevServer {
    pub name: ObjectName,
    /// Fields of the spec. Without `home`, the disk `home` of the user is used, and created if it does not exist.
    #[serde(flatten)]
    #[schemars(schema_with = "spec_without_required_fields")]
    pub spec: Map<String, Value>,
}

fn spec_without_required_fields(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = DevServerSpec::json_schema(generator);
    schema.remove("required");
    schema
}

/// Time to add to the lifetime of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// Such as 1h or 30m.
    pub by: Duration,
}

/// A request to wake a server. It has no fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetWake {}

/// A Kubernetes Event about a server or one of its pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KubeEvent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// Kind and name of the involved object, such as Pod box-0.
    pub object: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub count: i32,
}
