//! CPU and memory of a flavor.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Whether cpu and memory are per Device, and multiplied by the device count, or per Server on each node.
    pub per: Per,

    /// CPU, such as 24 or 500m.
    #[x_kube(validation = rule::amount_below("100k", "cpu must be above 0 and below 100k, such as 24"))]
    pub cpu: Quantity,

    /// Memory, such as 240Gi.
    #[x_kube(validation = rule::amount_below("1Pi", "memory must be above 0 and below 1Pi, such as 240Gi"))]
    pub memory: Quantity,
}

/// The unit that CPU and memory refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Per {
    Device,
    Server,
}
