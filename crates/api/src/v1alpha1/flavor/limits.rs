//! How long servers of a flavor may run.

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
    /// The most a server may ask for when it is created, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = not_nothing())]
    pub lifetime: Option<Duration>,

    /// The most by which one change may extend it, such as 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = not_nothing())]
    pub extension: Option<Duration>,

    /// The most a server may run in all, extensions included, such as 48h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = not_nothing())]
    pub total: Option<Duration>,
}

fn within_total(field: &str) -> Rule {
    Rule::new(format!("!has(self.{field}) || !has(self.total) || duration(self.{field}) <= duration(self.total)"))
        .message(format!("the limit on {field} is more than the total: lower it or raise the total").as_str())
        .field_path(format!(".{field}"))
}

fn not_nothing() -> Rule {
    rule::at_least("1s", "give a limit of at least 1s, or leave it out for none")
}
