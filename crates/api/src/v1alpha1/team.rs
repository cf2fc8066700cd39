//! `Team`: people who share a quota and a part of the cluster.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Priority, Quota, Usage, condition};
use crate::name::{LABEL, TeamName, UserName};
use crate::rule;
use crate::text::Text;

/// What an administrator decided about a team.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "Team",
    doc = "A Team is a group of users who share a quota and a fair part of the cluster.",
    status = "TeamStatus",
    derive = "PartialEq",
    category = "odc",
    printcolumn(
        name = "Weight", type_ = "integer", json_path = ".spec.weight",
        description = "Its part of the cluster."
    ),
    printcolumn(
        name = "Devices", type_ = "integer", json_path = ".spec.quota.devices",
        description = "How many devices it may hold."
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    validation = rule::name(
        LABEL,
        TeamName::LONGEST,
        "a team's name becomes a label: use at most 63 small letters, digits and '-', \
         and neither begin nor end with '-'",
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct TeamSpec {
    /// What to show to people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// The members, by their DevServerUser's name. This list alone decides who may use the team.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub members: Vec<UserName>,

    /// What the team's servers may hold together. It counts besides the members' own quotas.
    #[serde(default)]
    pub quota: Quota,

    /// The team's part of the cluster relative to other teams, when there is not enough for all.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,

    /// How many devices above its quota the team may borrow while nobody else needs them, in all and of each flavor. Leave
    /// it out for as many as are idle; 0 is nothing at all, CPU and memory included, which have no limit of their own. Only
    /// preemptible servers borrow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub borrow_limit: Option<u32>,

    /// How urgent the team's requests are.
    #[serde(default)]
    pub priority: TeamPriority,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.default == 'Low' || self.default == self.ceiling || self.ceiling == 'High'")
    .message("the default priority is above the ceiling: raise the ceiling or lower the default"))]
pub struct TeamPriority {
    /// What a server gets that names no priority: Low, Normal or High.
    #[serde(default)]
    pub default: Priority,

    /// The most a member may ask for: Low, Normal or High.
    #[serde(default)]
    pub ceiling: Priority,
}

impl Default for TeamPriority {
    fn default() -> Self {
        Self { default: Priority::Normal, ceiling: Priority::Normal }
    }
}

/// What the operator knows about a team.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// The generation of the spec this status speaks about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// What is true right now: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// What the team used lately, for its fair share. Only the scheduler writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

fn one() -> u32 {
    1
}
