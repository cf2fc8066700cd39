//! Accepted requests.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer to a change: it is executed soon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    pub request_id: String,
    /// Path of the request, which has the result. It is also in the header Location.
    pub location: String,
    /// Name of the object.
    pub name: String,
    /// The result, if the header Prefer asked to wait for it and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// The object after the change, if the header Prefer asked for it (return=representation) and it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
}

/// An accepted request and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub id: String,
    /// User on whose behalf it is executed.
    pub user: String,
    /// User who made it.
    pub actor: String,
    /// Such as devserver.create.
    pub action: String,
    pub object_kind: String,
    pub object_name: String,
    pub state: RequestState,
    /// Why it was rejected or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message of the cluster, or of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// HTTP status with which the cluster rejected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequestState {
    /// Not executed yet.
    Pending,
    Succeeded,
    /// The cluster rejected it.
    Rejected,
    /// It could not be executed.
    Failed,
}
