//! The life of a disk: its claim, the server that holds it, its restore points, the operations on it, and its deletion.
//!
//! Data is kept unless its owner confirmed the deletion: volumes and snapshot contents are retained, claims and snapshots
//! have no owner reference, and a claim that a rollback replaced is deleted only after a snapshot of it is verified.

mod claim;
mod deletion;
mod flush;
mod holder;
mod listing;
mod operation;
mod operation_pod;
mod point;
mod retention;
mod schedule;
#[cfg(test)]
mod simulation;
mod size;
mod status;
mod temporary;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::label;
use odc_api::v1alpha1::{
    DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, DiskOperationStatus, DiskStatus,
};
use serde_json::json;

pub use flush::FlushState;
pub use listing::{ListingPlan, NewListing, RecordedListing};
pub use operation::{MAX_FINISHED_OPERATIONS, expired_operations, fail_without_disk};

use crate::cluster::{Claim, Pod, Snapshot, SnapshotContent, StorageClass, Volume};
use crate::devserver::Settings;
use crate::devserver::agent_requests::{AgentCall, AgentState};
use crate::manifest::{Kind, Object};
use crate::plan::{Event, Requeue, Target, Write};
use claim::ClaimState;
use point::Points;

/// How long a start or an operation waits until the storage system has taken a snapshot.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// What exists in the cluster for a disk.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// The claims of the namespace.
    pub claims: Vec<&'a Claim>,
    /// The volumes of those claims, by name.
    pub volumes: BTreeMap<&'a str, &'a Volume>,
    pub classes: Vec<&'a StorageClass>,
    /// `None` if the cluster has no `VolumeSnapshot` API.
    pub snapshots: Option<ObservedSnapshots<'a>>,
    /// The servers of the namespace whose home is this disk.
    pub servers: Vec<&'a DevServer>,
    /// The pods of the namespace.
    pub pods: Vec<&'a Pod>,
    /// The operations on all disks of the namespace.
    pub operations: Vec<&'a DiskOperation>,
    /// By uid, for operations that have a pod.
    pub operation_states: BTreeMap<&'a str, OperationState>,
    pub disk_state: DiskState,
    /// All disks of the namespace.
    pub disks: Vec<&'a Disk>,
    /// The user that owns the namespace. The operator has no permissions in other namespaces.
    pub owner: Option<&'a DevServerUser>,
    /// Public keys of the authorities whose certificates agents accept as the operator's.
    pub control_cas: &'a [String],
    pub is_namespace_deleting: bool,
    /// Names of the nodes that are ready.
    pub ready_nodes: BTreeSet<&'a str>,
    pub flavors: Vec<&'a DevServerFlavor>,
}

/// What this operator process remembers about an operation. Losing it costs an extra request.
#[derive(Clone, Debug, Default)]
pub struct OperationState {
    /// The public host key in its Secret.
    pub host_key: Option<String>,
    /// The agents of its pods, by uid of the pod.
    pub agents: BTreeMap<String, AgentState>,
    /// Why the last write for it failed.
    pub error: Option<String>,
}

/// What this operator process remembers about the disk. Losing it costs an extra request, or the listing of a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskState {
    pub flush: Option<FlushState>,
    /// The newest one.
    pub listing: Option<RecordedListing>,
    /// The last write of [`Plan::disk_writes`] that was refused.
    pub refused: Option<RefusedWrite>,
}

/// A write that the API server refused, for example because of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedWrite {
    pub kind: Kind,
    pub message: String,
}

impl DiskState {
    /// Records that a request to flush is being sent.
    pub fn start_flush(&mut self, pod: &str, now: Timestamp) {
        self.flush = Some(FlushState { pod: pod.to_owned(), requested_at: now, finished_at: None });
    }

    /// Records that a request to flush was answered, or failed.
    pub fn finish_flush(&mut self, pod: &str, now: Timestamp) {
        if let Some(flush) = self.flush.as_mut().filter(|flush| flush.pod == pod) {
            flush.finished_at = Some(now);
        }
    }

    /// Drops the listing of this time.
    pub fn forget_listing(&mut self, at: Timestamp) {
        self.listing.take_if(|listing| listing.at == at);
    }
}

#[derive(Clone, Debug, Default)]
pub struct ObservedSnapshots<'a> {
    /// The snapshots of the namespace.
    pub snapshots: Vec<&'a Snapshot>,
    /// Their contents, by name.
    pub contents: BTreeMap<&'a str, &'a SnapshotContent>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order. Each prefix is a state to continue from.
    pub writes: Vec<Write>,
    /// The status after the writes.
    pub status: DiskStatus,
    /// The changed statuses of operations, by name. They are written after the status of the disk.
    pub operations: Vec<(String, DiskOperationStatus)>,
    /// Claims and points of the disk to create, and its expansion. They are written after all statuses, because they may be
    /// refused, for example by a quota, and nothing else may depend on that.
    pub disk_writes: Vec<Write>,
    /// The same for operations, with the uid of the operation.
    pub operation_writes: Vec<(String, Write)>,
    /// Requests to agents, with the uid of the operation or server that the pod was created for.
    pub agent_calls: Vec<(String, AgentCall)>,
    pub listings: ListingPlan,
    pub events: Vec<Event>,
    pub requeue: Requeue,
}

/// Returns the writes and the status of a disk.
///
/// The order: volumes and contents are retained, the claim exists, the holder changes, the operation advances, points are
/// taken and removed. Each part decides from the stored state only, so an interrupted plan is computed again.
pub fn reconcile(disk: &Disk, observed: &Observed<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let state = State::new(disk, observed, settings, now);
    if disk.metadata.deletion_timestamp.is_some() {
        return deletion::finalize(&state);
    }
    let mut steps = Steps::new(&state);
    claim::retain(&state, &mut steps);
    deletion::count_days(&state, &mut steps);
    let operation = operation::advance(&state, &mut steps);
    holder::advance(&state, &mut steps, operation);
    claim::ensure(&state, &mut steps);
    schedule::take_due_points(&state, &mut steps);
    retention::remove_expired(&state, &mut steps);
    claim::remove_retired(&state, &mut steps);
    claim::remove_abandoned(&state, &mut steps);
    temporary::remove_unused(&state, &mut steps);
    listing::advance(&state, &mut steps);
    steps.into_plan(&state)
}

/// The stored disk with what was found about it.
struct State<'a> {
    disk: &'a Disk,
    observed: &'a Observed<'a>,
    settings: &'a Settings,
    now: Timestamp,
    stored: DiskStatus,
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    claim: ClaimState<'a>,
    /// `None` if the cluster has no `VolumeSnapshot` API.
    points: Option<Points<'a>>,
}

impl<'a> State<'a> {
    fn new(disk: &'a Disk, observed: &'a Observed<'a>, settings: &'a Settings, now: Timestamp) -> Self {
        let text = |value: &'a Option<String>| value.as_deref().unwrap_or_default();
        let uid = text(&disk.metadata.uid);
        let stored = disk.status.clone().unwrap_or_default();
        Self {
            disk,
            observed,
            settings,
            now,
            claim: claim::find(disk, &stored, &observed.claims),
            points: observed.snapshots.as_ref().map(|snapshots| Points::new(uid, snapshots)),
            stored,
            name: text(&disk.metadata.name),
            namespace: text(&disk.metadata.namespace),
            uid,
        }
    }

    /// Returns the claim with the data, if it exists.
    fn current_claim(&self) -> Option<&'a Claim> {
        match &self.claim {
            ClaimState::Found(claim) => Some(claim),
            ClaimState::NotCreated | ClaimState::Missing(_) | ClaimState::Ambiguous(_) | ClaimState::Foreign(_) => None,
        }
    }

    /// Returns the pods that may write to the claim.
    fn writers(&self) -> impl Iterator<Item = &'a Pod> {
        let claim = self.current_claim();
        let pods = self.observed.pods.iter().copied();
        pods.filter(move |pod| claim.is_some_and(|claim| crate::volume_in_use::may_write(pod, &claim.name)))
    }

    /// Reports whether the pod is on a node that is not ready or does not exist, so that nothing may end its processes.
    fn is_node_unready(&self, pod: &Pod) -> bool {
        pod.node.as_deref().is_some_and(|node| !self.observed.ready_nodes.contains(node))
    }

    /// Returns labels of all objects of the disk.
    fn labels(&self) -> BTreeMap<String, String> {
        let pairs = [
            (label::DISK, self.name),
            (label::DISK_UID, self.uid),
            (label::NAME, "odc"),
            (label::INSTANCE, self.name),
            (label::COMPONENT, "disk"),
            (label::PART_OF, "odc"),
            (label::MANAGED_BY, label::OPERATOR),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn target(&self) -> Target {
        Target::new(Kind::Disk, Some(self.namespace), self.name, self.uid)
    }

    /// Returns why a write of this kind for the disk was refused.
    fn write_error(&self, kind: Kind) -> Option<&str> {
        let refused = self.observed.disk_state.refused.as_ref();
        refused.filter(|refused| refused.kind == kind).map(|refused| refused.message.as_str())
    }

    fn has_finalizer(&self) -> bool {
        self.disk.metadata.finalizers.iter().flatten().any(|name| name == label::DISK_FINALIZER)
    }

    /// Returns a write that sets or removes the finalizer. The uid is a precondition.
    fn write_finalizer(&self, is_set: bool) -> Write {
        let finalizers: &[&str] = if is_set { &[label::DISK_FINALIZER] } else { &[] };
        let metadata =
            json!({"name": self.name, "namespace": self.namespace, "uid": self.uid, "finalizers": finalizers});
        Write::Apply(patch(Kind::Disk, Some(self.namespace), self.name, json!({"metadata": metadata})))
    }
}

/// Returns the fields of an existing object to apply.
fn patch(kind: Kind, namespace: Option<&str>, name: &str, mut body: serde_json::Value) -> Object {
    body["apiVersion"] = kind.api_version().into();
    body["kind"] = kind.as_str().into();
    Object { kind, namespace: namespace.map(str::to_owned), name: name.to_owned(), body }
}

/// What the parts of [`reconcile`] have decided.
struct Steps {
    writes: Vec<Write>,
    status: DiskStatus,
    operations: Vec<(String, DiskOperationStatus)>,
    disk_writes: Vec<Write>,
    operation_writes: Vec<(String, Write)>,
    /// Why the restore point of a stop was not taken.
    point_failure: Option<String>,
    agent_calls: Vec<(String, AgentCall)>,
    listings: ListingPlan,
    events: Vec<Event>,
    requeue: Requeue,
}

impl Steps {
    fn new(state: &State<'_>) -> Self {
        Self {
            writes: vec![],
            status: state.stored.clone(),
            operations: vec![],
            disk_writes: vec![],
            operation_writes: vec![],
            point_failure: None,
            agent_calls: vec![],
            listings: ListingPlan::default(),
            events: vec![],
            requeue: Requeue::AwaitChange,
        }
    }

    fn requeue_after(&mut self, duration: Duration) {
        self.requeue = self.requeue.earlier(Requeue::After(duration));
    }

    fn into_plan(self, state: &State<'_>) -> Plan {
        let Self { writes, operations, disk_writes, operation_writes, agent_calls, listings, events, requeue, .. } =
            self;
        let status = status::complete(state, self.status, self.point_failure);
        Plan { writes, status, operations, disk_writes, operation_writes, agent_calls, listings, events, requeue }
    }
}
