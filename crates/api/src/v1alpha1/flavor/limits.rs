//! The lifetime limits of a flavor.

use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::rule;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = within_total("lifetime"),
    validation = within_total("extension"),
)]
pub struct Limits {
    /// Maximum lifetime at creation, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = positive())]
    pub lifetime: Option<Duration>,

    /// Maximum extension by one change, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = positive())]
    pub extension: Option<Duration>,

    /// Maximum lifetime including extensions, such as 48h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = positive())]
    pub total: Option<Duration>,
}

fn within_total(field: &str) -> Rule {
    Rule::new(format!("!has(self.{field}) || !has(self.total) || duration(self.{field}) <= duration(self.total)"))
        .message(format!("limits.{field} must not exceed limits.total; lower it or raise limits.total").as_str())
        .field_path(format!(".{field}"))
}

fn positive() -> Rule {
    rule::at_least("1s", "a limit must be at least 1s; omit it for no limit")
}
