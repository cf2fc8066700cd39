//! `DevServerFlavor`: a type of server that the cluster offers.

mod device;
mod history;
mod limits;
mod maintenance;
mod resources;
mod status;
mod toleration;
mod warm_pool;

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use device::Device;
pub use history::{EtaCalibration, FlavorHistory, RuntimeHistogram};
pub use limits::Limits;
pub use maintenance::Maintenance;
pub use resources::{Per, Resources};
pub use status::{DevServerFlavorStatus, Schedulable};
pub use toleration::{Toleration, TolerationEffect, TolerationOperator};
pub use warm_pool::WarmPool;

use super::Volume;
use crate::name::{FlavorName, LABEL, ObjectName};
use crate::price::Price;
use crate::text::Text;
use crate::{label, rule};

/// DevServerFlavorSpec is the desired state of a DevServerFlavor. Changes apply to servers that start afterwards.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DevServerFlavor",
    doc = "DevServerFlavor is a type of server that the cluster offers: its device, CPU and memory, nodes and limits.",
    status = "DevServerFlavorStatus",
    derive = "PartialEq",
    shortname = "dsf",
    category = "odc",
    printcolumn(
        name = "Device", type_ = "string", json_path = ".spec.device.resource",
        description = "Extended resource."
    ),
    printcolumn(
        name = "Per-Node", type_ = "integer", json_path = ".spec.device.perNode",
        description = "Devices per node."
    ),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free", description = "Free devices."),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.total", description = "Total devices."),
    printcolumn(
        name = "Queue", type_ = "integer", json_path = ".status.queueLength",
        description = "Pending servers."
    ),
    printcolumn(
        name = "Schedulable", type_ = "string", json_path = ".status.schedulable",
        description = "Whether a server would start now."
    ),
    printcolumn(
        name = "Default", type_ = "boolean", json_path = ".spec.default",
        description = "Whether this is the default flavor."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    printcolumn(
        name = "Block", type_ = "integer", json_path = ".status.largestBlock", priority = 1,
        description = "Largest number of free devices on one node."
    ),
    printcolumn(name = "Maintenance", type_ = "string", json_path = ".spec.maintenance.message", priority = 1),
    validation = rule::name(
        LABEL,
        FlavorName::MAX_LENGTH,
        "the name of a flavor must be a DNS label: at most 63 lower case letters, digits and '-', \
         starting and ending with a letter or digit",
    ),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.resources.per != 'Device' || has(self.device)")
    .message(
        "resources.per: Device requires a device; \
         set device, or set resources.per to Server",
    )
    .field_path(".resources.per"))]
pub struct DevServerFlavorSpec {
    /// Name for display, such as NVIDIA H100 80 GB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// Device (GPU) of the flavor. If unset, the flavor offers only CPU and memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,

    /// CPU and memory of a server.
    pub resources: Resources,

    /// Labels of the nodes of the flavor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label::map_schema")]
    #[x_kube(validation = rule::label_keys())]
    pub node_selector: BTreeMap<String, String>,

    /// Tolerations of the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub tolerations: Vec<Toleration>,

    /// RuntimeClass of the pods. Defaults to that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<ObjectName>,

    /// Privilege in the container. Restricted runs as an unprivileged user under the Pod Security level restricted.
    /// Sudo allows the user to become root in the container, under the level baseline.
    #[serde(default)]
    pub privilege: Privilege,

    /// Name of a Secret with registry credentials in the users' namespaces. It is used in addition to image.pullSecret
    /// of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectName>,

    /// Claims in the namespace of the server that all servers of the flavor mount. A volume of the server at the same
    /// path overrides them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["path".into()]))]
    pub volumes: Vec<Volume>,

    /// Limits of the lifetime. Longer requests are reduced to the limit.
    #[serde(default)]
    pub limits: Limits,

    /// Price of one device per hour, such as 2.50, or of one server for a flavor without a device. Only displayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_device_hour: Option<Price>,

    /// Whether this is the default flavor. Only one flavor can be the default.
    #[serde(default)]
    pub default: bool,

    /// Maintenance state. While it is set, no server of the flavor is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Maintenance>,

    /// Node label whose value must be equal for all nodes of a gang, such as topology.kubernetes.io/zone. If unset, a
    /// gang can use any nodes of the flavor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub gang_topology_key: Option<String>,

    /// Pool of started servers. Reserved; not implemented yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_pool: Option<WarmPool>,

    /// Whether the nodes are spot instances that can be reclaimed at any time. Only displayed.
    #[serde(default)]
    pub spot: bool,
}

/// Privilege in the container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Privilege {
    #[default]
    Restricted,
    Sudo,
}
