//! A failure of a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::OpenEnum;
use crate::text::Text;
use crate::v1alpha1::condition;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Reason of the failure. The reasons are those of the conditions.
    #[schemars(length(min = 1, max = 128))]
    pub reason: OpenEnum<condition::Reason>,

    /// Human-readable details, including what to do.
    pub message: condition::Message,

    /// Time of the failure.
    pub time: Time,

    /// Last lines of the log, if relevant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<Text<4096>>,
}

impl Failure {
    pub fn new(reason: condition::Reason, message: &str, time: Time, log: Option<&str>) -> Self {
        Self { reason: reason.into(), message: message.into(), time, log_tail: log.map(Text::tail) }
    }
}
