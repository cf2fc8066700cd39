//! `DiskOperation`: one operation on a disk.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::{Reason, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition;
use crate::name::{DiskName, ObjectName};
use crate::open_enum::string_enum;
use crate::ssh_key::PublicKey;
use crate::text::Text;

/// DiskOperationSpec is an operation on a Disk. It is immutable.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "odc.dev",
    version = "v1alpha1",
    kind = "DiskOperation",
    doc = "DiskOperation is an operation on a Disk of the same namespace, such as taking a restore point. The operations \
           on a disk run one at a time, in the order of their creation, except Browse, which runs beside them. A \
           finished operation is deleted after 7 days, or earlier if the namespace has more than 50.",
    namespaced,
    status = "DiskOperationStatus",
    derive = "PartialEq",
    shortname = "dskop",
    category = "odc",
    selectable = ".spec.disk",
    printcolumn(name = "Disk", type_ = "string", json_path = ".spec.disk", description = "Disk of the operation."),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action", description = "What to do."),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase", description = "Phase of the operation."),
    printcolumn(
        name = "Progress", type_ = "string", json_path = ".status.progress", description = "Completed steps and all steps."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Complete\")].message",
        priority = 1
    ),
    validation = unchanged_spec(),
    validation = final_phase(),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = required_argument("Rollback", "point", "the restore point to go back to"),
    validation = required_argument("Clone", "name", "the name of the new disk"),
    validation = required_argument("Restore", "point", "the restore point to copy from"),
    validation = required_argument("Restore", "paths", "the files and directories to copy"),
    validation = required_argument("Browse", "point", "the restore point to open"),
    validation = required_argument("Diff", "point", "the restore point to compare with"),
)]
pub struct DiskOperationSpec {
    /// Name of the Disk.
    pub disk: DiskName,

    /// What to do. Snapshot takes a restore point. Rollback replaces the data of the disk by that of a restore point, and
    /// takes a point first. Clone creates a new disk from a restore point, or from a new one. Restore copies files of a
    /// restore point to the disk, and takes a point first. Browse starts a pod with a restore point mounted read-only,
    /// which is deleted after 30 minutes without activity, after 8 hours, or with the operation. Diff lists the paths that differ between a restore point and a later
    /// one, or the current data. Unlock deletes remaining pods of a server that has ended.
    pub action: DiskAction,

    /// Arguments of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<DiskArguments>,

    /// Note for the restore point or the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Text<256>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DiskAction {
    Snapshot,
    Rollback,
    Clone,
    Restore,
    Browse,
    Diff,
    Unlock,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskArguments {
    /// Name of a restore point of the disk, for all actions but Snapshot and Unlock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<ObjectName>,

    /// Name of the restore point to compare with, for Diff. Defaults to the current data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ObjectName>,

    /// Files and directories to copy, relative to the root of the disk, for Restore.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic, validation = relative_paths())]
    pub paths: Vec<Text<512>>,

    /// Name of the new disk, for Clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<DiskName>,

    /// SSH public keys that can log in to the pod of Browse, in addition to those of the owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub keys: Vec<PublicKey>,
}

impl DiskOperationSpec {
    pub fn point(&self) -> Option<&ObjectName> {
        self.arguments.as_ref()?.point.as_ref()
    }

    /// Returns the point to compare with, for Diff.
    pub fn to(&self) -> Option<&ObjectName> {
        self.arguments.as_ref()?.to.as_ref()
    }

    /// Returns the paths to copy, for Restore.
    pub fn paths(&self) -> &[Text<512>] {
        self.arguments.as_ref().map(|arguments| arguments.paths.as_slice()).unwrap_or_default()
    }

    /// Returns the keys of the operation, for Browse.
    pub fn keys(&self) -> &[PublicKey] {
        self.arguments.as_ref().map(|arguments| arguments.keys.as_slice()).unwrap_or_default()
    }

    pub fn new_name(&self) -> Option<&DiskName> {
        self.arguments.as_ref()?.name.as_ref()
    }
}

/// DiskOperationStatus is the observed state of a DiskOperation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskOperationStatus {
    /// Generation of the spec that this status was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,

    /// Phase of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<DiskOperationPhase>,

    /// Completed steps and all steps, such as 2/4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Text<16>>,

    /// Conditions of the operation: Complete. Its message says what the operation waits for, or why it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::schema")]
    pub conditions: Vec<condition::Condition>,

    /// Time at which the operation started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,

    /// Time at which the operation ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,

    /// What the operation created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<DiskOperationResult>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskOperationResult {
    /// Restore point that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<ObjectName>,

    /// Disk that was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskName>,

    /// Pod that serves SSH, for Browse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectName>,

    /// Public SSH host key of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<Text<1024>>,

    /// Differences, for Diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<DiskDiff>,

    /// PersistentVolumeClaim that the disk uses now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ObjectName>,
}

/// DiskDiff is what changed between two states of a disk. Type, mode, size and content are compared; a file whose
/// size, modification time and change time are equal is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiskDiff {
    /// Number of paths that exist only in the later state.
    #[schemars(range(min = 0))]
    pub added: u64,

    /// Number of paths that exist only in the earlier state.
    #[schemars(range(min = 0))]
    pub removed: u64,

    /// Number of paths whose type, mode or content differs.
    #[schemars(range(min = 0))]
    pub modified: u64,

    /// The first paths, at most 32 KiB and 4 KiB compressed, each after `A`, `D` or `M` and a space. A directory ends with
    /// a slash; one that exists only in one state is listed without its content. Backslashes, control characters and
    /// bytes that are not UTF-8 are escaped, such as `\n` and `\xff`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub paths: Vec<Text<4100>>,

    /// Whether more paths differ than `paths` contains.
    #[serde(default)]
    pub truncated: bool,
}

string_enum! {
    /// The phase of an operation on a disk.
    #[derive(Serialize, Deserialize, JsonSchema)]
    pub enum DiskOperationPhase {
        /// Waits for an earlier operation on the same disk.
        Pending,
        /// Started.
        Running,
        /// Final: done.
        Succeeded,
        /// Final: failed; see the condition Complete.
        Failed,
    }
}

impl DiskOperationPhase {
    /// Reports whether the phase is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

fn unchanged_spec() -> Rule {
    Rule::new("self.spec == oldSelf.spec")
        .message("the spec of an operation is immutable; create a new operation")
        .field_path(".spec")
        .reason(Reason::FieldValueForbidden)
}

fn final_phase() -> Rule {
    let ended = "has(oldSelf.status) && has(oldSelf.status.phase) && oldSelf.status.phase in ['Succeeded', 'Failed']";
    let same = "has(self.status) && has(self.status.phase) && self.status.phase == oldSelf.status.phase";
    Rule::new(format!("!({ended}) || ({same})"))
        .message("the operation has ended; its phase is final")
        .field_path(".status.phase")
        .reason(Reason::FieldValueForbidden)
}

/// Paths must stay below the root of the disk.
fn relative_paths() -> Rule {
    Rule::new("self.all(path, path != '' && !path.startsWith('/') && !path.split('/').exists(part, part == '..'))")
        .message("paths must be relative to the root of the disk, without '..'")
}

fn required_argument(action: &str, argument: &str, meaning: &str) -> Rule {
    Rule::new(format!("self.action != '{action}' || has(self.arguments) && has(self.arguments.{argument})"))
        .message(format!("the action {action} requires arguments.{argument}, {meaning}").as_str())
        .field_path(".arguments")
}
