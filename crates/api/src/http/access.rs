//! Callers and API keys.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::v1alpha1::Role;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Me {
    pub user: String,
    pub role: Role,
    /// Namespace of the user.
    pub namespace: String,
    pub scopes: Vec<String>,
    /// Id of the API key, if the caller used one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    pub teams: Vec<String>,
}

/// A key to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateKey {
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub description: String,
    /// Scopes of the key, such as servers:read. Defaults to those of the caller without admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub scopes: Option<Vec<String>>,
    /// How long the key is valid, at most 2160h (90 days), which is the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_for: Option<Duration>,
}

/// An API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    pub id: String,
    pub user: String,
    pub description: String,
    pub scopes: Vec<String>,
    pub created_at: Time,
    pub created_by: String,
    pub expires_at: Time,
    /// Accurate to a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
}

/// A new API key. The key is returned only once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CreatedKey {
    pub id: String,
    pub user: String,
    /// The key. It is not stored and cannot be shown again.
    pub key: String,
    pub scopes: Vec<String>,
    pub expires_at: Time,
    /// Key that this one replaces. It stays valid until it is revoked or expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}
