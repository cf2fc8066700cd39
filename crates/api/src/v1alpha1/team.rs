//! `Team`: users who share a quota and a fair share.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::{Priority, Quota, Usage, condition};
use crate::name::{LABEL, TeamName, UserName};
use crate::rule;
use crate::text::Text;

/// TeamSpec is the desired state of a Team.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "Team",
    doc = "Team is a group of users who share a quota and a fair share of the cluster.",
    status = "TeamStatus",
    derive = "PartialEq",
    category = "odc",
    printcolumn(
        name = "Weight", type_ = "integer", json_path = ".spec.weight",
        description = "Weight in fair sharing."
    ),
    printcolumn(
        name = "Devices", type_ = "integer", json_path = ".spec.quota.devices",
        description = "Device quota."
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    validation = rule::name(
        LABEL,
        TeamName::MAX_LENGTH,
        "the name of a team must be a DNS label: at most 63 lower case letters, digits and '-', \
         starting and ending with a letter or digit",
    ),
)]
#[serde(rename_all = "camelCase")]
pub struct TeamSpec {
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// Names of the DevServerUsers that are members of the team. Only members can use the team.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub members: Vec<UserName>,

    /// Quota of all servers of the team. The quotas of the members apply in addition.
    #[serde(default)]
    pub quota: Quota,

    /// Weight of the team in fair sharing, relative to other teams.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: u32,

    /// Maximum number of devices that the team can borrow beyond its quota, in total and per flavor. Unlimited if
    /// unset; 0 disables borrowing, also of CPU and memory, which have no limit of their own. Only preemptible servers
    /// can borrow quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub borrowing_limit: Option<u32>,

    /// Priorities of the team's servers.
    #[serde(default)]
    pub priority: TeamPriority,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.default == 'Low' || self.default == self.ceiling || self.ceiling == 'High'")
    .message("default must not be above ceiling; raise ceiling or lower default"))]
pub struct TeamPriority {
    /// Priority of servers that do not set one: Low, Normal or High.
    #[serde(default)]
    pub default: Priority,

    /// Highest priority that members can request: Low, Normal or High.
    #[serde(default)]
    pub ceiling: Priority,
}

impl Default for TeamPriority {
    fn default() -> Self {
        Self { default: Priority::Normal, ceiling: Priority::Normal }
    }
}

/// TeamStatus is the observed state of a Team.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Conditions of the team: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Decayed usage of the team, for fair sharing. Written by the scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

fn one() -> u32 {
    1
}
