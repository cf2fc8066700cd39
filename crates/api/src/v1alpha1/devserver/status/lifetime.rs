//! The granted lifetime of a server.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;

/// The limits of the flavor are applied when spec.lifetime changes. Other changes of the spec, and later changes of the
/// limits, do not affect the granted lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedLifetime {
    /// Value of spec.lifetime for which the lifetime was granted.
    pub requested: Duration,

    /// Granted lifetime.
    pub granted: Duration,
}
