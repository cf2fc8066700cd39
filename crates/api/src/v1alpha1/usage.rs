//! Decayed usage, the input of fair sharing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// Usage at a point in time. It halves with every half-life, so the current value is derived and the field is written
/// only when a run ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Decayed device seconds at the time in at.
    #[schemars(range(min = 0))]
    pub device_seconds: i64,

    /// Time of the value.
    pub at: Time,
}
