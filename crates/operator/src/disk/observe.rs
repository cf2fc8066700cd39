//! Reads the state of one disk from the caches.

use std::sync::Arc;

use odc_api::v1alpha1::{DevServer, DevServerUser, Disk, DiskOperation};
use odc_core::cluster::{Claim, Pod, Snapshot, SnapshotContent, StorageClass, Volume};
use odc_core::disk::{Observed, ObservedSnapshots};

use crate::context::Context;

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
    disks: Vec<Arc<Disk>>,
    owner: Option<Arc<DevServerUser>>,
    is_namespace_deleting: bool,
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
        let operations = cluster.disk_operations.in_namespace(namespace).into_iter();
        Self {
            volumes,
            claims,
            classes: cluster.storage_classes.all(),
            contents,
            snapshots,
            servers,
            pods: cluster.pods.in_namespace(namespace),
            operations: operations.filter(|operation| operation.spec.disk.as_str() == name).collect(),
            disks: cluster.disks_in_namespace(namespace),
            owner: cluster.owner(namespace),
            is_namespace_deleting: cluster.namespaces.get("", namespace).is_some_and(|found| found.is_deleting),
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
            disks: self.disks.iter().map(|disk| &**disk).collect(),
            has_owner: self.owner.is_some(),
            storage_limit: self.owner.as_ref().and_then(|owner| owner.spec.quota.storage),
            is_namespace_deleting: self.is_namespace_deleting,
        }
    }
}
