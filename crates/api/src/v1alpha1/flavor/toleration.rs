//! A toleration of a flavor. As in a pod, but with bounds.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator != 'Exists' || !has(self.value)")
        .message("value must be empty if operator is Exists; remove value, or set operator to Equal")
        .field_path(".value"),
    validation = Rule::new("has(self.key) || self.operator == 'Exists'")
        .message("operator must be Exists if key is empty, which matches all taints")
        .field_path(".operator"),
)]
pub struct Toleration {
    /// Key of the taint. If unset, all keys match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub key: Option<String>,

    /// Operator: Equal compares the value, Exists matches all values.
    #[serde(default)]
    pub operator: TolerationOperator,

    /// Value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"))]
    pub value: Option<String>,

    /// Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute. If unset, all effects match.
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
