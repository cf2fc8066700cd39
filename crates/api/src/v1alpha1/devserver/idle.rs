//! The idle policy of a server.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// Idle timeout, such as 30m. Sessions, editors, notebooks and device utilization count as activity.
    #[serde(default = "half_an_hour")]
    #[x_kube(validation = rule::at_least(
        "1m",
        "idle.timeout must be at least 1m; to disable idle detection, set idle.action to None",
    ))]
    pub timeout: Duration,

    /// Action after the timeout: Hibernate, End (stop for good) or None (disable idle detection). Users are warned
    /// before, and any activity cancels the action.
    #[serde(default)]
    pub action: IdleAction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IdleAction {
    #[default]
    Hibernate,
    End,
    None,
}

impl Default for Idle {
    fn default() -> Self {
        Self { timeout: half_an_hour(), action: IdleAction::default() }
    }
}

fn half_an_hour() -> Duration {
    Duration::minutes(30)
}
