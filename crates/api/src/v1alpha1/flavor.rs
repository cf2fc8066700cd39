//! `DevServerFlavor`: a kind of machine the cluster offers.

mod device;
mod limits;
mod maintenance;
mod record;
mod resources;
mod status;
mod toleration;
mod warm;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use device::Device;
pub use limits::Limits;
pub use maintenance::Maintenance;
pub use record::{KeptPromises, Record, Stays};
pub use resources::{Per, Resources};
pub use status::{DevServerFlavorStatus, Schedulable};
pub use toleration::{Toleration, TolerationEffect, TolerationOperator};
pub use warm::Warm;

use super::Volume;
use crate::name::{FlavorName, LABEL, ObjectName};
use crate::price::Price;
use crate::text::Text;
use crate::{label, rule};

/// What an administrator offers. A change counts for servers that start after it; running ones keep what they have.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServerFlavor",
    doc = "A DevServerFlavor is a kind of machine the cluster offers: which devices, how much CPU and memory come with \
           them, on which nodes, for how long at most.",
    status = "DevServerFlavorStatus",
    derive = "PartialEq",
    shortname = "dsf",
    category = "odc",
    printcolumn(
        name = "Device", type_ = "string", json_path = ".spec.device.resource",
        description = "What it offers besides CPU and memory."
    ),
    printcolumn(
        name = "Per-Node", type_ = "integer", json_path = ".spec.device.perNode",
        description = "Devices on one node."
    ),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free", description = "Devices nobody uses."),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total", description = "All devices."),
    printcolumn(
        name = "Queue", type_ = "integer", json_path = ".status.queueLength",
        description = "Servers that wait."
    ),
    printcolumn(
        name = "Schedulable", type_ = "string", json_path = ".status.schedulable",
        description = "Whether one more server would start now."
    ),
    printcolumn(
        name = "Default", type_ = "boolean", json_path = ".spec.default",
        description = "Taken by servers that name no flavor."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    printcolumn(
        name = "Block", type_ = "integer", json_path = ".status.largestBlock", priority = 1,
        description = "The most devices free on one node."
    ),
    printcolumn(name = "Maintenance", type_ = "string", json_path = ".spec.maintenance.message", priority = 1),
    validation = rule::name(
        LABEL,
        FlavorName::LONGEST,
        "a flavor's name becomes a label: use at most 63 small letters, digits and '-', \
         and neither begin nor end with '-'",
    ),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.resources.per != 'Device' || has(self.device)")
    .message(
        "resources can be given per Device only where the flavor has a device: \
         name one, or set resources.per to Server",
    )
    .field_path(".resources.per"))]
pub struct DevServerFlavorSpec {
    /// What to show to people, such as NVIDIA H100 80 GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// The device (GPU) the flavor offers. Leave it out for a flavor of CPU and memory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,

    /// How much CPU and memory a server gets.
    pub resources: Resources,

    /// Labels a node must have to be of this flavor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label::map_schema")]
    #[x_kube(validation = rule::label_keys())]
    pub node_selector: BTreeMap<String, String>,

    /// Taints of such nodes that servers may ignore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,

    /// The RuntimeClass of the pods. Leave it out for the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<ObjectName>,

    /// What people may do inside. Restricted servers run as a plain user under the Pod Security level restricted. Sudo
    /// servers let their owner be root inside the container, under the level baseline, so that packages can be
    /// installed.
    #[serde(default)]
    pub privilege: Privilege,

    /// The Secret with the login for image registries, which the administrator puts into the users' namespaces. A
    /// server's own pull secret is used besides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectName>,

    /// Claims of the server's own namespace that every server of the flavor mounts. A server's volume at the same path
    /// wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub volumes: Vec<Volume>,

    /// How long servers may run. A request for more is cut to this, and the server's owner is told.
    #[serde(default)]
    pub limits: Limits,

    /// What one device costs in an hour, in the cluster's currency, such as 2.50; for a flavor without devices, what
    /// one server costs. Leave it out where nobody counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_device_hour: Option<Price>,

    /// Servers that name no flavor get this one. Only one flavor may be the default.
    #[serde(default)]
    pub default: bool,

    /// Take the flavor out of service: no new server starts on it. Leave it out to be in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,

    /// The node label that all nodes of a gang must agree on, such as topology.kubernetes.io/zone. Leave it out to let
    /// gangs span the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub gang_topology_key: Option<String>,

    /// Servers kept started for whoever comes next. Leave it out for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Warm>,

    /// The nodes can be taken away at any time by whoever rents them out. People are told before they choose the
    /// flavor.
    #[serde(default)]
    pub spot: bool,
}

/// What people may do inside their servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Privilege {
    #[default]
    Restricted,
    Sudo,
}
