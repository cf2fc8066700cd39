//! Reads the state of one disk from the caches.

use std::sync::Arc;

use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation};
use odc_core::cluster::{Claim, Node, Pod, Snapshot, SnapshotContent, StorageClass, Volume};
use odc_core::devserver::SecretState;
use odc_core::disk::{DiskState, Observed, ObservedSnapshots, OperationState};

use crate::agents::ssh_control_ca::ControlCa;
use crate::context::Context;
use crate::soft_state::ServerSoftState;

/// Owns what [`Observed`] borrows.
pub struct ObservedDisk {
    claims: Vec<Arc<Claim>>,
    volumes: Vec<Arc<Volume>>,
    classes: Vec<Arc<StorageClass>>,
    /// `None` if the API server does not have the kinds.
    snapshots: Option<Vec<Arc<Snapshot>>>,
    contents: Vec<Arc<SnapshotContent>>,
    servers: Vec<Arc<DevServer>>,
    pods: Vec<Arc<Pod>>,
    operations: Vec<Arc<DiskOperation>>,
    operation_states: Vec<(String, ServerSoftState)>,
    disk_state: DiskState,
    disks: Vec<Arc<Disk>>,
    owner: Option<Arc<DevServerUser>>,
    control_ca: Option<Arc<ControlCa>>,
    is_namespace_deleting: bool,
    nodes: Vec<Arc<Node>>,
    flavors: Vec<Arc<DevServerFlavor>>,
}

impl ObservedDisk {
    pub fn new(ctx: &Context, disk: &Disk) -> Self {
        let cluster = &ctx.cluster;
        let namespace = disk.metadata.namespace.as_deref().unwrap_or_default();
        let name = disk.metadata.name.as_deref().unwrap_or_default();
        // Servers before everything else: a server that creates a pod after this has seen the stored holder.
        let servers = cluster.servers_of_disk(namespace, name);
        let claims = cluster.claims.in_namespace(namespace);
        let bound = claims.iter().filter_map(|claim| claim.volume.as_deref());
        let volumes = bound.filter_map(|volume| cluster.volumes.get("", volume)).collect();
        let snapshots = cluster.has_snapshots().then(|| cluster.snapshots.in_namespace(namespace));
        let bound = snapshots.iter().flatten().filter_map(|snapshot| snapshot.content.as_deref());
        let contents = bound.filter_map(|content| cluster.snapshot_contents.get("", content)).collect();
        let operations = cluster.disk_operations.in_namespace(namespace);
        let uids = operations.iter().filter_map(|operation| operation.metadata.uid.clone());
        let operation_states = uids.filter(|uid| ctx.soft_states.contains(uid));
        let operation_states = operation_states.map(|uid| (uid.clone(), ctx.soft_states.get(&uid))).collect();
        Self {
            volumes,
            claims,
            classes: cluster.storage_classes.all(),
            contents,
            snapshots,
            servers,
            pods: cluster.pods.in_namespace(namespace),
            operations,
            operation_states,
            disk_state: ctx.soft_states.disk(disk.metadata.uid.as_deref().unwrap_or_default()),
            disks: cluster.disks_in_namespace(namespace),
            owner: cluster.owner(namespace),
            control_ca: ctx.control_ca.borrow().ready(),
            is_namespace_deleting: cluster.namespaces.get("", namespace).is_some_and(|found| found.is_deleting),
            nodes: cluster.nodes.all(),
            flavors: cluster.flavors.objects.all(),
        }
    }

    pub fn observed(&self) -> Observed<'_> {
        let snapshots = self.snapshots.as_ref().map(|snapshots| ObservedSnapshots {
            snapshots: snapshots.iter().map(|snapshot| &**snapshot).collect(),
            contents: self.contents.iter().map(|content| (content.name.as_str(), &**content)).collect(),
        });
        Observed {
            claims: self.claims.iter().map(|claim| &**claim).collect(),
            volumes: self.volumes.iter().map(|volume| (volume.name.as_str(), &**volume)).collect(),
            classes: self.classes.iter().map(|class| &**class).collect(),
            snapshots,
            servers: self.servers.iter().map(|server| &**server).collect(),
            pods: self.pods.iter().map(|pod| &**pod).collect(),
            operations: self.operations.iter().map(|operation| &**operation).collect(),
            operation_states: self
                .operation_states
                .iter()
                .map(|(uid, state)| (uid.as_str(), remembered(state)))
                .collect(),
            disk_state: self.disk_state.clone(),
            disks: self.disks.iter().map(|disk| &**disk).collect(),
            owner: self.owner.as_deref(),
            control_cas: self.control_ca.as_ref().map_or(&[], |ca| &ca.trusted_keys),
            is_namespace_deleting: self.is_namespace_deleting,
            ready_nodes: self.nodes.iter().filter(|node| node.is_ready()).map(|node| node.name.as_str()).collect(),
            flavors: self.flavors.iter().map(|flavor| &**flavor).collect(),
        }
    }
}

fn remembered(state: &ServerSoftState) -> OperationState {
    let host_key = match &state.secret {
        SecretState::Present(key) => Some(key.clone()),
        _ => None,
    };
    OperationState { host_key, agents: state.agents.iter().cloned().collect(), error: state.recurring_error.clone() }
}
