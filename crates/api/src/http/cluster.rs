//! The cluster and the service.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub version: String,
    /// Oldest version of devctl that the API accepts.
    pub minimum_client_version: String,
}

/// Whether the parts of the service work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether the API answers reads.
    pub ready: bool,
    /// Whether the watches of the cluster are complete.
    pub cluster: String,
    /// Whether PostgreSQL answers. Changes are refused while it does not.
    pub database: String,
    /// Whether notifications of the database are received.
    pub notifications: String,
    /// Whether queue.odc.dev answers.
    pub queue: String,
}

/// The state of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    pub observed_at: Time,
    pub nodes: u64,
    pub ready_nodes: u64,
    pub flavors: Vec<FlavorSummary>,
}

/// The capacity of a flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorSummary {
    pub name: String,
    pub total: i64,
    pub free: i64,
    pub queue_length: i64,
}

/// Numbers of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatistics {
    pub observed_at: Time,
    /// Number of servers by phase.
    pub servers: BTreeMap<String, u64>,
    /// Number of disks by phase.
    pub disks: BTreeMap<String, u64>,
    pub users: u64,
    pub teams: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub name: String,
    pub observed_at: Time,
    pub ready: bool,
    /// Whether new pods can be placed on it.
    pub schedulable: bool,
    pub labels: BTreeMap<String, String>,
    /// Resources for pods, such as nvidia.com/gpu.
    pub allocatable: BTreeMap<String, String>,
    /// Taints as key=value:effect.
    pub taints: Vec<String>,
}

/// The spec of a user, team or flavor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplySpec {
    pub spec: Map<String, Value>,
    /// Labels of a complete object (PUT).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of a complete object (PUT).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
