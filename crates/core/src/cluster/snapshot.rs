//! Volume snapshots and their contents, of the external snapshotter. They are read as JSON, because Kubernetes has no
//! types for them.

use k8s_openapi::jiff::Timestamp;
use odc_api::open_enum::OpenEnum;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Consistency, PointReason};
use odc_api::{annotation, label};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::VolumeAffinity;

/// A `VolumeSnapshot`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub name: String,
    pub uid: String,
    pub is_deleting: bool,
    /// The uid of the `Disk` it belongs to.
    pub disk_uid: Option<String>,
    /// The name of that disk at the time.
    pub disk: Option<String>,
    /// The uid of the claim it was taken of.
    pub claim_uid: Option<String>,
    /// Its position among the restore points of its disk.
    pub sequence: u64,
    pub reason: PointReason,
    pub consistency: Consistency,
    pub note: Option<String>,
    /// The uid of the `DiskOperation` it was taken for.
    pub operation_uid: Option<String>,
    /// Whether it is deleted with that operation and is no restore point.
    pub is_temporary: bool,
    /// The time at which the storage system took it. Later writes to the volume are not part of it.
    pub taken_at: Option<Timestamp>,
    pub is_ready: bool,
    pub error: Option<String>,
    pub content: Option<String>,
    pub restore_size: Option<Quantity>,
    /// The storage class of the claim it was taken of.
    pub class: Option<String>,
    /// The affinity of the volume it was taken of.
    pub affinity: VolumeAffinity,
    /// The id of the listing that was reported for it.
    pub listing_id: Option<String>,
    pub listing: Option<StoredListing>,
}

/// A listing of the content of a restore point, in a `ConfigMap` of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredListing {
    /// The uid of the `ConfigMap`.
    pub uid: String,
    pub used_bytes: u64,
    pub files: u64,
}

/// A `VolumeSnapshotContent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotContent {
    pub name: String,
    pub uid: String,
    /// The namespace and the uid of the snapshot it is bound to.
    pub snapshot_namespace: Option<String>,
    pub snapshot_uid: Option<String>,
    /// Whether the storage system knows the snapshot.
    pub has_handle: bool,
    /// Whether it is kept when its snapshot is deleted.
    pub is_retained: bool,
}

impl Snapshot {
    pub fn from_api(stored: &Value) -> Self {
        let (metadata, status) = (&stored["metadata"], &stored["status"]);
        let annotation = |name: &str| text(&metadata["annotations"][name]);
        let reason = annotation(annotation::POINT_REASON).and_then(|text| OpenEnum::parse(&text).known());
        let consistency = annotation(annotation::POINT_CONSISTENCY).and_then(|text| OpenEnum::parse(&text).known());
        Self {
            name: text(&metadata["name"]).unwrap_or_default(),
            uid: text(&metadata["uid"]).unwrap_or_default(),
            is_deleting: metadata["deletionTimestamp"].is_string(),
            disk_uid: text(&metadata["labels"][label::DISK_UID]),
            disk: text(&metadata["labels"][label::DISK]),
            claim_uid: annotation(annotation::CLAIM_UID),
            sequence: annotation(annotation::POINT_SEQUENCE).and_then(|text| text.parse().ok()).unwrap_or(0),
            reason: reason.unwrap_or(PointReason::OnDemand),
            consistency: consistency.unwrap_or(Consistency::CrashConsistent),
            note: annotation(annotation::POINT_NOTE),
            operation_uid: annotation(annotation::OPERATION_UID),
            is_temporary: metadata["labels"][label::OPERATION_UID].is_string(),
            taken_at: text(&status["creationTime"]).and_then(|time| time.parse().ok()),
            is_ready: status["readyToUse"] == true,
            error: status["error"]
                .as_object()
                .map(|error| error.get("message").and_then(Value::as_str).unwrap_or("unknown error").to_owned()),
            content: text(&status["boundVolumeSnapshotContentName"]),
            restore_size: text(&status["restoreSize"]).and_then(|size| size.parse().ok()),
            class: annotation(annotation::STORAGE_CLASS),
            affinity: annotation(annotation::VOLUME_AFFINITY)
                .map(|text| VolumeAffinity::from_annotation(&text))
                .unwrap_or_default(),
            listing_id: annotation(annotation::LISTING_ID),
            listing: annotation(annotation::LISTING).and_then(|text| serde_json::from_str(&text).ok()),
        }
    }
}

impl SnapshotContent {
    pub fn from_api(stored: &Value) -> Self {
        Self {
            name: text(&stored["metadata"]["name"]).unwrap_or_default(),
            uid: text(&stored["metadata"]["uid"]).unwrap_or_default(),
            snapshot_namespace: text(&stored["spec"]["volumeSnapshotRef"]["namespace"]),
            snapshot_uid: text(&stored["spec"]["volumeSnapshotRef"]["uid"]),
            has_handle: stored["status"]["snapshotHandle"].is_string(),
            is_retained: stored["spec"]["deletionPolicy"] == "Retain",
        }
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn snapshot_of_another_client_has_cautious_defaults() {
        let snapshot = Snapshot::from_api(&json!({"metadata": {"name": "s", "labels": {label::DISK_UID: "u"}}}));
        assert_eq!((snapshot.disk_uid.as_deref(), snapshot.sequence), (Some("u"), 0));
        assert_eq!((snapshot.reason, snapshot.consistency), (PointReason::OnDemand, Consistency::CrashConsistent));
        assert!(!snapshot.is_ready && snapshot.taken_at.is_none() && snapshot.error.is_none());
    }

    #[test]
    fn error_without_a_message_is_an_error() {
        let snapshot = Snapshot::from_api(&json!({"metadata": {}, "status": {"readyToUse": true, "error": {}}}));
        assert_eq!(snapshot.error.as_deref(), Some("unknown error"));
    }
}
