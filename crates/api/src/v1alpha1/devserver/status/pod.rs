//! The pods of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerPod {
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// Run for which the pod was created.
    #[schemars(range(min = 0))]
    pub run: i64,

    /// Node of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Text<253>>,

    /// IP address of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Text<64>>,

    /// Whether the pod is ready.
    #[serde(default)]
    pub ready: bool,

    /// Number of processes killed because of an out-of-memory condition since the container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub oom_kills: Option<i64>,

    /// Identifier of the container start that oomKills refers to, reported by the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_boot_id: Option<Text<128>>,
}
