//! Servers kept started for whoever comes next.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Warm {
    /// How many.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: u32,

    /// The image they run; only servers with this image can take one over. Leave it out for the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$"))]
    pub image: Option<String>,

    /// After how long an unused one is replaced, so that it does not grow stale.
    #[serde(default = "half_a_day")]
    #[x_kube(validation = rule::at_least("1m", "give a maxAge of at least 1m, such as 12h"))]
    pub max_age: Duration,
}

fn half_a_day() -> Duration {
    Duration::hours(12)
}
