//! The pods of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerPod {
    /// The pod's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The run it belongs to.
    #[schemars(range(min = 0))]
    pub run: i64,

    /// The node it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Text<253>>,

    /// Its address inside the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<Text<64>>,

    /// Whether it can be used.
    #[serde(default)]
    pub ready: bool,

    /// How many of its processes were killed because memory ran out, since its container started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub oom_kills: Option<i64>,

    /// Which start of its container that is counted from, as its agent calls it: another one counts from none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_boot: Option<Text<128>>,
}
