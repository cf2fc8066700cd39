//! The phase transitions of a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::OpenEnum;
use crate::v1alpha1::Phase;
use crate::v1alpha1::condition;

/// Number of stored phase transitions.
pub const TIMELINE_LENGTH: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// New phase.
    pub phase: Phase,

    /// Time of the transition.
    pub at: Time,

    /// Reason of the transition. The reasons are those of the conditions.
    #[schemars(length(min = 1, max = 128))]
    pub reason: OpenEnum<condition::Reason>,
}

impl TimelineEntry {
    pub fn new(phase: Phase, at: Time, reason: condition::Reason) -> Self {
        Self { phase, at, reason: reason.into() }
    }
}
