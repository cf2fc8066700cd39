//! What somebody used lately: the input of fair shares.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A value and its time. It loses half of itself every half-life, so what it is worth now is derived, and it is written
/// only when a server starts, stops or changes size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Device seconds, older ones counted for less, as of the time beside it.
    #[schemars(range(min = 0))]
    pub device_seconds: i64,

    /// The time the value belongs to.
    pub at: Time,
}
