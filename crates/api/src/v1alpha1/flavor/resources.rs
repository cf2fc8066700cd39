//! CPU and memory of a flavor.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the amounts are for: one Device, so that a server with four gets four times as much, or one Server on each
    /// of its nodes.
    pub per: Per,

    /// How much CPU, such as 24 or 500m.
    #[x_kube(validation = rule::amount_below("100k", "give CPU above zero and below 100k cores, such as 24"))]
    pub cpu: Quantity,

    /// How much memory, such as 240Gi.
    #[x_kube(validation = rule::amount_below("1Pi", "give memory above zero and below 1Pi, such as 240Gi"))]
    pub memory: Quantity,
}

/// What amounts of CPU and memory are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    Device,
    Server,
}
