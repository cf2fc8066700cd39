//! What a server went through.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::v1alpha1::Phase;
use crate::v1alpha1::condition;
use crate::word::Word;

/// How many changes of phase are remembered.
pub const TIMELINE_LENGTH: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// The phase the server went into.
    pub phase: Phase,

    /// When.
    pub at: Time,

    /// Why, in one word; the reasons are those of the conditions.
    #[schemars(length(min = 1, max = 128))]
    pub reason: Word<condition::Reason>,
}

impl TimelineEntry {
    pub fn new(phase: Phase, at: Time, reason: condition::Reason) -> Self {
        Self { phase, at, reason: reason.into() }
    }
}
