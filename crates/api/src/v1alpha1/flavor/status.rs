//! How much of a flavor there is.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::v1alpha1::condition;

/// Amounts are devices; for a flavor without devices they are servers. They are at most a second old.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DevServerFlavorStatus {
    /// The generation of the spec this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// What is true right now: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// How many there are on nodes that work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total: Option<i64>,

    /// How many of them nobody uses; none while the flavor is in maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub free: Option<i64>,

    /// The most that are free on one node: the largest count that would start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub largest_block: Option<i64>,

    /// How many nodes are free as a whole: the largest gang of whole nodes that would start now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub whole_nodes_free: Option<i64>,

    /// How many servers wait for this flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub queue_length: Option<i64>,

    /// Whether the smallest server of this flavor would start now: Yes, No, Autoscaled (a node would be added for it),
    /// or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedulable: Option<Schedulable>,

    /// How long people stayed and how well the queue predicted, for the next prediction. Only the scheduler writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schedulable {
    Yes,
    No,
    Autoscaled,
    Unknown,
}
