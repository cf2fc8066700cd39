//! The device a flavor offers.

use kube::KubeSchema;
use kube::core::Rule;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;
use crate::rule;
use crate::text::Text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.counts) || self.counts.all(count, count <= self.perNode)")
    .message("an allowed count is larger than perNode, so no node could hold it: remove it or raise perNode")
    .field_path(".counts"))]
pub struct Device {
    /// The extended resource that nodes advertise, such as nvidia.com/gpu or nvidia.com/mig-1g.10gb.
    #[schemars(length(min = 3, max = 317))]
    #[x_kube(validation = resource_rule())]
    pub resource: String,

    /// What the device is called by people, such as H100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Text<64>>,

    /// The device's own memory, such as 80Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = rule::amount_below("1Pi", "give device memory above zero and below 1Pi, or leave it out"))]
    pub memory: Option<Quantity>,

    /// How many of them one node has.
    #[schemars(range(min = 1, max = 128))]
    pub per_node: u32,

    /// The counts a server may ask for, such as 1, 2, 4 and 8. Leave it out to allow any up to perNode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(range(min = 1, max = 128)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub counts: Vec<u32>,
}

/// What Kubernetes calls an extended resource: a name outside its own domain, and not one of its quotas.
fn resource_rule() -> Rule {
    const DOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    const NAME: &str = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";
    Rule::new(format!(
        "self.matches('^{DOMAIN}/{NAME}$') && !self.matches('^([^/]*[.])?kubernetes[.]io/') \
         && !self.startsWith('requests.')"
    ))
    .message(
        "give an extended resource as domain/name, such as nvidia.com/gpu; \
         for CPU and memory only, leave device out",
    )
}
