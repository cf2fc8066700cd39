//! A taint that servers of a flavor ignore. As in a pod, but bounded.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator != 'Exists' || !has(self.value)")
        .message("a toleration with operator Exists has no value: remove the value, or set operator to Equal")
        .field_path(".value"),
    validation = Rule::new("has(self.key) || self.operator == 'Exists'")
        .message("a toleration without key needs operator Exists; it then ignores every taint")
        .field_path(".operator"),
)]
pub struct Toleration {
    /// The taint's key. Leave it out to mean every key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub key: Option<String>,

    /// Equal compares the value, Exists accepts any.
    #[serde(default)]
    pub operator: TolerationOperator,

    /// The taint's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))]
    pub value: Option<String>,

    /// The taint's effect: NoSchedule, PreferNoSchedule or NoExecute. Leave it out to mean every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TolerationEffect>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationOperator {
    #[default]
    Equal,
    Exists,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TolerationEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}
