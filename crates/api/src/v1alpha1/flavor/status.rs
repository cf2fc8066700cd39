//! The observed state of a flavor.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FlavorHistory;
use crate::v1alpha1::condition;

/// DevServerFlavorStatus is the observed state of a DevServerFlavor. Amounts are devices, or servers for a flavor
/// without a device. They are updated at most once per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerFlavorStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Conditions of the flavor: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Total amount on ready nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total: Option<i64>,

    /// Free amount. 0 while the flavor is in maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free: Option<i64>,

    /// Largest free amount on one node, which is the largest count that would start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub largest_block: Option<i64>,

    /// Number of completely free nodes, which is the largest gang of whole nodes that would start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub whole_nodes_free: Option<i64>,

    /// Number of pending servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub queue_length: Option<i64>,

    /// Whether the smallest server of this flavor would start now: Yes, No or Unknown. Autoscaled is reserved; not
    /// implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedulable: Option<Schedulable>,

    /// History of runtimes and start estimates, the input of later estimates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<FlavorHistory>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schedulable {
    Yes,
    No,
    Autoscaled,
    Unknown,
}
