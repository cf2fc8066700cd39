//! `Disk`: a persistent volume of one user, with restore points.

mod source;
mod status;

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

pub use source::DiskSource;
pub use status::{
    Consistency, DiskDeletion, DiskHolder, DiskPhase, DiskStatus, LISTING_KEY, MAX_LISTED_POINTS, MAX_RETIRED_CLAIMS,
    PointListing, PointReason, RestorePoint, RetiredClaim,
};

use crate::name::{DiskName, LABEL, ObjectName};
use crate::quantity::Quantity;
use crate::rule;
use crate::text::Text;

/// DiskSpec is the desired state of a Disk. The operator does not write it.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "Disk",
    doc = "Disk is a persistent volume of one user, such as the home of a server. Its PersistentVolumeClaim is created \
           when it is first used. Restore points are taken at every stop, on a schedule and on demand. Deleting the \
           object requires the annotation odc.dev/confirm-delete with its name; spec.deleted can be reverted for 30 \
           days.",
    namespaced,
    status = "DiskStatus",
    derive = "PartialEq",
    shortname = "dsk",
    category = "odc",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Phase of the disk."),
    printcolumn(name = "Size", type_ = "string", json_path = ".spec.size", description = "Size of the disk."),
    printcolumn(
        name = "Used", type_ = "string", json_path = ".status.used",
        description = "Space that files use, as of the newest restore point with a listing."
    ),
    printcolumn(
        name = "Server", type_ = "string", json_path = ".status.holder.server",
        description = "Server that uses the disk."
    ),
    printcolumn(
        name = "Last-Used", type_ = "date", json_path = ".status.lastUsed",
        description = "Time since the disk was used."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Display", type_ = "string", json_path = ".spec.displayName", priority = 1),
    printcolumn(name = "Claim", type_ = "string", json_path = ".status.claim", priority = 1),
    printcolumn(
        name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", priority = 1
    ),
    validation = rule::name(
        LABEL,
        DiskName::MAX_LENGTH,
        "the name of a disk must be a DNS label: at most 46 lower case letters, digits and '-', \
         starting and ending with a letter or digit",
    ),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rule::immutable_in_disk("storageClass"),
    validation = rule::immutable_in_disk("source"),
    validation = size_grows(),
    validation = few_points(),
)]
pub struct DiskSpec {
    /// Name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Text<128>>,

    /// Size of the disk, such as 50Gi. It can be raised later if the storage class allows expansion.
    #[x_kube(validation = rule::amount_below("1Pi", "size must be above 0 and below 1Pi, such as 50Gi"))]
    pub size: Quantity,

    /// Name of the StorageClass. Defaults to the default class of the cluster. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<ObjectName>,

    /// Data to start with. Empty if unset. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DiskSource>,

    /// Restore points to take while a server uses the disk.
    #[serde(default)]
    pub schedule: DiskSchedule,

    /// Number of other restore points to keep. The newest verified point is always kept.
    #[serde(default)]
    pub retention: DiskRetention,

    /// Marks the disk as deleted. Servers cannot use it. Set to false within 30 days to get it back; then its data is
    /// deleted.
    #[serde(default)]
    pub deleted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskSchedule {
    /// Number of hourly restore points to keep. None are taken if 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 48))]
    pub hourly: u32,

    /// Number of daily restore points to keep. None are taken if 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 31))]
    pub daily: u32,

    /// Number of weekly restore points to keep. None are taken if 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 52))]
    pub weekly: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskRetention {
    /// Number of restore points taken at stops and before rollbacks to keep.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 50))]
    pub stops: u32,

    /// Number of restore points taken on demand to keep.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 50))]
    pub on_demand: u32,
}

impl Default for DiskRetention {
    fn default() -> Self {
        Self { stops: ten(), on_demand: twenty() }
    }
}

fn ten() -> u32 {
    10
}

fn twenty() -> u32 {
    20
}

/// A volume of `odc-csi` has at most 64 snapshots; some are needed for points that are being replaced.
const MAX_KEPT_POINTS: u32 = 60;

fn few_points() -> kube::core::Rule {
    let counts = "self.schedule.hourly + self.schedule.daily + self.schedule.weekly + self.retention.stops \
                  + self.retention.onDemand";
    let message = format!("schedule and retention keep more than {MAX_KEPT_POINTS} restore points; lower a count");
    kube::core::Rule::new(format!("{counts} <= {MAX_KEPT_POINTS}")).message(message.as_str()).field_path(".retention")
}

/// A volume cannot shrink.
fn size_grows() -> kube::core::Rule {
    let (new, old) = (rule::amount("self.size"), rule::amount("oldSelf.size"));
    kube::core::Rule::new(format!("{new}.compareTo({old}) >= 0"))
        .message("size cannot be lowered; create a smaller disk and copy the data")
        .field_path(".size")
        .reason(kube::core::Reason::FieldValueForbidden)
}
