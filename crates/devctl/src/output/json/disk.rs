//! The JSON of disks, restore points and operations.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{DiskDiff, DiskOperation, DiskOperationResult};
use serde::Serialize;

use super::Condition;
use crate::model::disk::{self, DiskSummary, Entry, Listing, Point};

/// The schema of `devctl disk list`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskJson {
    pub name: String,
    pub display_name: Option<String>,
    pub phase: String,
    /// The reason and message of the condition Ready.
    pub reason: Option<String>,
    pub message: Option<String>,
    pub size: String,
    /// Space that files used at the newest restore point with a listing.
    pub used: Option<String>,
    pub used_at: Option<Timestamp>,
    pub storage_class: Option<String>,
    pub claim: Option<String>,
    /// The server that uses the disk.
    pub server: Option<String>,
    pub location: Option<String>,
    pub deleted: bool,
    pub point_count: usize,
    pub created_at: Option<Timestamp>,
    pub last_used: Option<Timestamp>,
}

/// The schema of `devctl disk show`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskDetailJson {
    #[serde(flatten)]
    pub disk: DiskJson,
    pub conditions: Vec<Condition>,
    pub points: Vec<PointJson>,
    pub operations: Vec<OperationJson>,
}

/// The schema of `devctl disk points`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PointJson {
    pub name: String,
    pub at: Option<Timestamp>,
    pub reason: String,
    pub consistency: String,
    pub size: Option<String>,
    /// Whether data can be restored from it.
    pub ready: bool,
    pub note: Option<String>,
    /// What a listing of its content adds up to, if one is stored.
    pub listing: Option<PointListingJson>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PointListingJson {
    pub used: String,
    pub files: i64,
}

/// The schema of `devctl disk files`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesJson {
    pub point: String,
    pub at: Option<Timestamp>,
    pub used_bytes: u64,
    pub files: u64,
    /// Whether something was not counted. Sizes are lower limits then.
    pub incomplete: bool,
    /// The number of smaller entries that are missing.
    pub omitted: u64,
    pub entries: Vec<FileJson>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileJson {
    pub path: String,
    /// With everything below.
    pub bytes: u64,
    pub files: u64,
}

impl FilesJson {
    pub fn new(point: &Point, listing: &Listing) -> Self {
        let Listing { used_bytes, files, incomplete, omitted, entries } = listing.clone();
        let entries = entries.into_iter().map(|Entry { path, bytes, files }| FileJson { path, bytes, files }).collect();
        let (point, at) = (point.name.clone(), timestamp(point.at.as_ref()));
        Self { point, at, used_bytes, files, incomplete, omitted, entries }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationJson {
    pub name: String,
    pub disk: String,
    pub action: String,
    pub phase: Option<String>,
    /// Completed steps and all steps, such as `2/4`.
    pub progress: Option<String>,
    /// The message of the condition Complete.
    pub message: Option<String>,
    /// The restore point of the request.
    pub point: Option<String>,
    pub note: Option<String>,
    pub created_at: Option<Timestamp>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub result: ResultJson,
}

/// What an operation created.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultJson {
    pub point: Option<String>,
    pub disk: Option<String>,
    pub pod: Option<String>,
}

/// The schema of `devctl disk diff`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffJson {
    pub added: u64,
    pub removed: u64,
    pub modified: u64,
    /// Whether more paths differ than `paths` contains.
    pub truncated: bool,
    pub paths: Vec<ChangeJson>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeJson {
    pub change: Change,
    pub path: String,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Change {
    Added,
    Removed,
    Modified,
    /// A change of a newer version.
    Other,
}

impl Change {
    /// Returns the letter, as in `git diff --name-status`.
    pub const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Removed => 'D',
            Self::Modified => 'M',
            Self::Other => '?',
        }
    }
}

impl ChangeJson {
    /// Parses `A path`, `D path` or `M path`.
    fn parse(text: &str) -> Self {
        let (letter, path) = text.split_once(' ').unwrap_or(("", text));
        let change = match letter {
            "A" => Change::Added,
            "D" => Change::Removed,
            "M" => Change::Modified,
            _ => Change::Other,
        };
        Self { change, path: path.to_owned() }
    }
}

impl From<&DiskDiff> for DiffJson {
    fn from(diff: &DiskDiff) -> Self {
        let DiskDiff { added, removed, modified, paths, truncated } = diff;
        Self {
            added: *added,
            removed: *removed,
            modified: *modified,
            truncated: *truncated,
            paths: paths.iter().map(|path| ChangeJson::parse(path)).collect(),
        }
    }
}

fn timestamp(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

impl From<&DiskSummary> for DiskJson {
    fn from(disk: &DiskSummary) -> Self {
        let (spec, status) = (&disk.spec, &disk.status);
        let ready = disk::ready(disk);
        Self {
            name: disk.name_any(),
            display_name: disk::display_name(disk).map(str::to_owned),
            phase: disk::phase_str(disk).to_owned(),
            reason: ready.map(|ready| ready.reason.clone()),
            message: ready.map(|ready| ready.message.clone()).filter(|message| !message.is_empty()),
            size: spec.size.to_string(),
            used: status.used.map(|used| used.to_string()),
            used_at: timestamp(status.used_at.as_ref()),
            storage_class: spec.storage_class.clone(),
            claim: status.claim.clone(),
            server: status.holder.as_ref().map(|holder| holder.server.clone()),
            location: status.location.clone(),
            deleted: spec.deleted,
            point_count: disk::points(disk).len(),
            created_at: timestamp(disk.metadata.creation_timestamp.as_ref()),
            last_used: timestamp(status.last_used.as_ref()),
        }
    }
}

impl DiskDetailJson {
    pub fn new(disk: &DiskSummary, operations: &[DiskOperation]) -> Self {
        Self {
            disk: disk.into(),
            conditions: disk.status.conditions.iter().map(Condition::from).collect(),
            points: disk::points(disk).iter().map(PointJson::from).collect(),
            operations: operations.iter().map(OperationJson::from).collect(),
        }
    }
}

impl From<&Point> for PointJson {
    fn from(point: &Point) -> Self {
        let Point { name, at, reason, consistency, size, ready, note, listing } = point.clone();
        let (at, size) = (timestamp(at.as_ref()), size.map(|size| size.to_string()));
        let listing = listing.map(|listing| PointListingJson { used: listing.used.to_string(), files: listing.files });
        Self { name, at, reason, consistency, size, ready, note, listing }
    }
}

impl From<&DiskOperation> for OperationJson {
    fn from(operation: &DiskOperation) -> Self {
        let (spec, status) = (&operation.spec, operation.status.clone().unwrap_or_default());
        let complete = condition::find(&status.conditions, Type::Complete);
        Self {
            name: operation.name_any(),
            disk: spec.disk.to_string(),
            action: disk::action_str(spec.action).to_owned(),
            phase: status.phase.map(|phase| phase.as_str().to_owned()),
            progress: status.progress.as_ref().map(ToString::to_string),
            message: complete.map(|complete| complete.message.to_string()).filter(|message| !message.is_empty()),
            point: spec.point().map(ToString::to_string),
            note: spec.note.as_ref().map(ToString::to_string),
            created_at: timestamp(operation.metadata.creation_timestamp.as_ref()),
            started_at: timestamp(status.started_at.as_ref()),
            finished_at: timestamp(status.finished_at.as_ref()),
            result: status.result.as_ref().map(ResultJson::from).unwrap_or_default(),
        }
    }
}

impl From<&DiskOperationResult> for ResultJson {
    fn from(result: &DiskOperationResult) -> Self {
        Self {
            point: result.point.as_ref().map(ToString::to_string),
            disk: result.disk.as_ref().map(ToString::to_string),
            pod: result.pod.as_ref().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_fields_of_a_new_disk_are_present() {
        let value = serde_json::to_value(DiskJson::from(&DiskSummary::test("disk-home", "50Gi"))).unwrap();
        assert_eq!(
            value,
            json!({"name": "disk-home", "displayName": null, "phase": "Pending", "reason": null, "message": null,
                "size": "50Gi", "used": null, "usedAt": null, "storageClass": null, "claim": null, "server": null, "location": null,
                "deleted": false, "pointCount": 0, "createdAt": null, "lastUsed": null})
        );
    }

    #[test]
    fn point_has_name_and_time() {
        let point = json!({"name": "home-1", "at": "2026-01-01T00:00:00Z", "reason": "OnDemand",
            "consistency": "CrashConsistent", "ready": true, "note": "before the upgrade"});
        let point: Point = serde_json::from_value(point).unwrap();
        assert_eq!(
            serde_json::to_value(PointJson::from(&point)).unwrap(),
            json!({"name": "home-1", "at": "2026-01-01T00:00:00Z", "reason": "OnDemand",
                "consistency": "CrashConsistent", "size": null, "ready": true, "note": "before the upgrade",
                "listing": null})
        );
    }

    #[test]
    fn change_and_path_are_separated() {
        let change = |text: &str| {
            let ChangeJson { change, path } = ChangeJson::parse(text);
            (change, path)
        };
        assert_eq!(change("A src/new file.rs"), (Change::Added, "src/new file.rs".to_owned()));
        assert_eq!(change("D old"), (Change::Removed, "old".to_owned()));
        assert_eq!(change("R moved"), (Change::Other, "moved".to_owned()));
    }
}
