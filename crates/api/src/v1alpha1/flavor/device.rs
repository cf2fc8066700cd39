//! The device of a flavor.

use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::rule;
use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.counts) || self.counts.all(count, count <= self.perNode)")
    .message("counts must not exceed perNode; remove the count or raise perNode")
    .field_path(".counts"))]
pub struct Device {
    /// Extended resource of the nodes, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb.
    #[schemars(length(min = 3, max = 317))]
    #[x_kube(validation = resource_rule())]
    pub resource: String,

    /// Model for display, such as H100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text<64>>,

    /// Memory of the device for display, such as 80Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::amount_below("1Pi", "device.memory must be above 0 and below 1Pi, such as 80Gi"))]
    pub memory: Option<Quantity>,

    /// Number of devices per node.
    #[schemars(range(min = 1, max = 128))]
    pub per_node: u32,

    /// Device counts that servers can request, such as 1, 2, 4 and 8. If empty, all counts up to perNode are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 128)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub counts: Vec<u32>,
}

/// An extended resource as defined by Kubernetes: outside of kubernetes.io, and not a quota.
fn resource_rule() -> Rule {
    const DOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    const NAME: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";
    Rule::new(format!(
        "self.matches('^{DOMAIN}/{NAME}$') && !self.matches('^([^/]*[.])?kubernetes[.]io/') \
         && !self.startsWith('requests.')"
    ))
    .message(
        "resource must be an extended resource domain/name, such as nvidia.com/gpu; \
         omit device for a flavor without devices",
    )
}
