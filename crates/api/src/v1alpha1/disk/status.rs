//! The observed state of a disk.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::{ObjectName, ServerName};
use crate::open_enum::string_enum;
use crate::quantity::Quantity;
use crate::text::Text;
use crate::v1alpha1::condition;

/// The maximum number of restore points in the status.
pub const MAX_LISTED_POINTS: usize = 64;
/// The maximum number of retired claims in the status.
pub const MAX_RETIRED_CLAIMS: usize = 16;

/// DiskStatus is the observed state of a Disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Phase of the disk, for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DiskPhase>,

    /// Conditions of the disk: Ready, InUse, PointsAvailable, Resized.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Name of the PersistentVolumeClaim with the data. A rollback changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ObjectName>,

    /// Server that may mount the disk. At most one server holds a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<DiskHolder>,

    /// Time at which a server started to use the disk or, later, released it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Time>,

    /// Bytes that the files on the disk use, rounded up to mebibytes, as of the newest restore point with a listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Quantity>,

    /// Time of that restore point.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Time>,

    /// Topology of the volume, such as csi.odc.dev/pool=main. Unset if every node can mount it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<Text<253>>,

    /// Newest restore points, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_LISTED_POINTS))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub points: Vec<RestorePoint>,

    /// Claims that a rollback has replaced. They are deleted after 24h, if a verified restore point of them exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_RETIRED_CLAIMS))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub retired_claims: Vec<RetiredClaim>,

    /// Progress of a deletion by spec.deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<DiskDeletion>,
}

string_enum! {
    /// The phase of a disk, for users. Programs should use the conditions.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum DiskPhase {
        /// Not used yet; its claim is created when the first server uses it.
        Pending,
        /// Its claim is being provisioned, or waits for its first consumer.
        Provisioning,
        /// Bound, and not used by a server.
        Available,
        /// Used by a server.
        InUse,
        /// The server has stopped and the restore point is being taken.
        Releasing,
        /// Marked as deleted; can be undeleted.
        Deleted,
        /// Its data is being deleted.
        Deleting,
        /// Its claim or volume is lost, or its source cannot be used; see the condition Ready.
        Failed,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskHolder {
    /// Name of the server.
    pub server: ServerName,

    /// Uid of the server.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,

    /// Time at which the server got the disk.
    pub since: Time,

    /// Whether a pod that mounts the disk was observed since then.
    #[serde(default)]
    pub used: bool,

    /// Whether the server may have been interrupted in a write: the node of a pod that mounts the disk was not ready, and
    /// the pod was not ready again since then. The restore point of the stop is CrashConsistent then.
    #[serde(default)]
    pub interrupted: bool,

    /// Time at which the server was found stopped. Until its restore point is taken no server can start on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub releasing_since: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestorePoint {
    /// Name of the VolumeSnapshot.
    pub name: ObjectName,

    /// Time at which the snapshot was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,

    /// Why it was taken.
    pub reason: PointReason,

    /// Minimum size of a volume that is restored from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,

    /// Whether the snapshot is verified: ready to use, bound to its content, with a size and without an error.
    #[serde(default)]
    pub ready: bool,

    /// Whether a server was running at the time, or was interrupted before.
    pub consistency: Consistency,

    /// Note of the operation that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Text<256>>,

    /// Listing of the content, if one is stored: in the ConfigMap of the same name, in binaryData, as JSON compressed
    /// with gzip. It is kept for the newest three restore points that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<PointListing>,
}

/// The key of a listing in the binaryData of its ConfigMap.
pub const LISTING_KEY: &str = "listing.json.gz";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PointListing {
    /// Bytes that the files use, rounded up to mebibytes.
    pub used: Quantity,

    /// Number of files.
    #[schemars(range(min = 0))]
    pub files: i64,
}

string_enum! {
    /// Why a restore point was taken.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum PointReason {
        /// A server stopped.
        Stop,
        /// spec.schedule.hourly.
        Hourly,
        /// spec.schedule.daily.
        Daily,
        /// spec.schedule.weekly.
        Weekly,
        /// An operation Snapshot or Clone.
        OnDemand,
        /// An operation Rollback replaced the data.
        Rollback,
    }
}

string_enum! {
    /// The state of the file system in a restore point.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum Consistency {
        /// No server was running.
        Clean,
        /// A server was running, or its node was not ready before it stopped; the state is that after a power loss.
        CrashConsistent,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetiredClaim {
    /// Name of the PersistentVolumeClaim.
    pub name: ObjectName,

    /// Uid of the PersistentVolumeClaim.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,

    /// Time at which it was replaced.
    pub since: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskDeletion {
    /// Time at which the disk was marked as deleted.
    pub since: Time,

    /// Number of days counted since. The data is deleted after 30. A change of the clock counts as one day at most.
    #[schemars(range(min = 0))]
    pub days: u32,

    /// Time at which the last day was counted.
    pub counted_at: Time,
}
