//! History: phase transitions, usage and the audit log.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A phase transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Transition")]
pub struct TimelineEntry {
    pub at: Time,
    pub phase: String,
    pub reason: String,
}

/// The use of one flavor by one user in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    pub flavor: String,
    /// Time in which servers held their devices, summed over the servers.
    pub server_seconds: u64,
    pub device_seconds: u64,
    /// In millionths of the currency of the cluster.
    pub cost_millionths: u64,
}

/// The tokens of one language model that a user used in a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    pub user: String,
    pub provider: String,
    pub model: String,
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// A request to a language model. One that is reported twice counts once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportTokens {
    #[schemars(length(min = 1, max = 64))]
    pub provider: String,
    /// Id that the provider gave to the request.
    #[schemars(length(min = 1, max = 128))]
    pub provider_request_id: String,
    #[schemars(length(min = 1, max = 128))]
    pub model: String,
    #[schemars(range(min = 0))]
    pub input_tokens: i64,
    #[schemars(range(min = 0))]
    pub output_tokens: i64,
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: i64,
    pub at: Time,
    pub actor: String,
    /// ApiKey, Kubernetes, FieldManager or System.
    pub actor_kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// User whose object is affected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub action: String,
    pub object_kind: String,
    pub object_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_uid: Option<String>,
    /// Accepted, Succeeded, Rejected, Failed, Denied or Observed.
    pub result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    pub details: Value,
}
