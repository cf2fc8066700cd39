//! A pool of started servers.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WarmPool {
    /// Number of servers in the pool. Reserved; not implemented yet.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: u32,

    /// Image of the servers in the pool. Defaults to that of the cluster. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"))]
    pub image: Option<String>,

    /// Maximum age of an unused server in the pool. Reserved; not implemented yet.
    #[serde(default = "half_a_day")]
    #[x_kube(validation = rule::at_least("1m", "maxAge must be at least 1m, such as 12h"))]
    pub max_age: Duration,
}

fn half_a_day() -> Duration {
    Duration::hours(12)
}
