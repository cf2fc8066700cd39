//! Why a server sleeps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hibernation {
    /// Since when the server sleeps.
    pub since: Time,

    /// Who put it to sleep: Idle (nobody used it), User (spec.desired), or Drain (its node had to be emptied).
    pub by: HibernationCause,

    /// The value of spec.wake when the server was put to sleep. Any other value wakes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub wake_seen: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HibernationCause {
    Idle,
    User,
    Drain,
}
