//! How long a server may run, after the flavor's limits.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// The limits are applied once, when the owner asks: another edit of the spec is no new extension, and a change of the
/// flavor's limits takes nothing away from a server that has its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedLifetime {
    /// The spec.lifetime this answers.
    pub asked: Duration,

    /// How long the server may run in all.
    pub granted: Duration,
}
