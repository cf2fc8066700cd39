//! What happens to a server nobody uses.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::rule;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Idle {
    /// How long nobody must have used the server, such as 30m. Sessions, editors, notebooks and busy devices count as
    /// use.
    #[serde(default = "half_an_hour")]
    #[x_kube(validation = rule::at_least(
        "1m",
        "give an idle timeout of at least 1m; to never stop an idle server, set idle.action to None",
    ))]
    pub timeout: Duration,

    /// What to do then. Hibernate puts the server to sleep until somebody connects. End stops it for good. None leaves
    /// it running until its lifetime is over. A warning comes first, and any use cancels it.
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
