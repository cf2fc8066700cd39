//! What went wrong with a server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::text::Text;
use crate::v1alpha1::condition::{self, Sentence};
use crate::word::Word;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What went wrong, in one word; the reasons are those of the conditions.
    #[schemars(length(min = 1, max = 128))]
    pub reason: Word<condition::Reason>,

    /// What went wrong and what to do about it, in a sentence or two.
    pub message: Sentence,

    /// When.
    pub time: Time,

    /// The last lines the server wrote, where that tells more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<Text<4096>>,
}

impl Failure {
    pub fn new(reason: condition::Reason, message: &str, time: Time, log: Option<&str>) -> Self {
        Self { reason: reason.into(), message: message.into(), time, log_tail: log.map(Text::end_of) }
    }
}
