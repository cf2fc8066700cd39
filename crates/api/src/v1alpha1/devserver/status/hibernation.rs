//! The hibernation of a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    /// Time of the hibernation.
    pub since: Time,

    /// Cause of the hibernation: Idle (idle timeout) or User (spec.desired). Drain is reserved; not implemented yet.
    pub cause: HibernationCause,

    /// Value of spec.wake at the time of the hibernation. A different value wakes the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub observed_wake: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HibernationCause {
    Idle,
    User,
    Drain,
}
