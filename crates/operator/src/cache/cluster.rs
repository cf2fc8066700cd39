//! The caches of all kinds that the operator watches, and the queries over them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use kube::runtime::reflector::{ObjectRef, Store};
use odc_api::name::FlavorName;
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, Team};
use odc_core::cluster;
use odc_core::manifest::Kind;
use parking_lot::{Mutex, RwLock};

use super::claim_index::ClaimIndex;
use super::{Cache, Key, key};
use crate::devserver::validation_inputs::claims;
use crate::missing_nodes::MissingNodes;

pub struct ClusterCache {
    pub servers: Store<DevServer>,
    pub users: Store<DevServerUser>,
    pub disks: Store<Disk>,
    pub disk_operations: Cache<DiskOperation>,
    /// Empty if the API server does not have the kind.
    pub snapshots: Cache<cluster::Snapshot>,
    pub snapshot_contents: Cache<cluster::SnapshotContent>,
    pub flavors: FlavorCache,
    pub teams: Cache<Team>,
    pub pods: Cache<cluster::Pod>,
    pub nodes: Cache<cluster::Node>,
    /// Nodes that pods are bound to and that are not in `nodes`.
    pub missing_nodes: MissingNodes,
    pub claims: Cache<cluster::Claim>,
    pub volumes: Cache<cluster::Volume>,
    pub storage_classes: Cache<cluster::StorageClass>,
    /// Volume attach limits of the nodes that have any.
    pub attach_limits: Cache<cluster::NodeVolumeLimits>,
    pub runtime_classes: Cache<cluster::RuntimeClass>,
    pub namespaces: Cache<cluster::ManagedObject>,
    pub managed_objects: ManagedObjects,
    /// The names of servers and disks.
    pub namespace_index: NamespaceIndex,
    pub disk_index: NamespaceIndex,
    /// The servers and pods that use each claim.
    pub claim_index: ClaimIndex,
}

impl ClusterCache {
    pub fn new(servers: Store<DevServer>, users: Store<DevServerUser>, disks: Store<Disk>) -> Self {
        Self {
            servers,
            users,
            disks,
            disk_operations: Cache::default(),
            snapshots: Cache::default(),
            snapshot_contents: Cache::default(),
            flavors: FlavorCache::default(),
            teams: Cache::default(),
            pods: Cache::default(),
            nodes: Cache::default(),
            missing_nodes: MissingNodes::default(),
            claims: Cache::default(),
            volumes: Cache::default(),
            storage_classes: Cache::default(),
            attach_limits: Cache::default(),
            runtime_classes: Cache::default(),
            namespaces: Cache::default(),
            managed_objects: ManagedObjects::default(),
            namespace_index: NamespaceIndex::default(),
            disk_index: NamespaceIndex::default(),
            claim_index: ClaimIndex::default(),
        }
    }

    pub fn user(&self, name: &str) -> Option<Arc<DevServerUser>> {
        self.users.get(&ObjectRef::new(name))
    }

    /// Returns the user that owns a namespace. The namespace must have the user's name and the owner label; one that
    /// has only the name was not created by the operator and belongs to no user.
    pub fn owner(&self, namespace: &str) -> Option<Arc<DevServerUser>> {
        let owner = odc_api::namespace::owner(namespace)?;
        let object = self.namespaces.get("", namespace)?;
        self.user(owner.as_str()).filter(|_| object.label(odc_api::label::OWNER) == Some(owner.as_str()))
    }

    /// Returns the existing users among those a server grants access to.
    pub fn guests(&self, server: &DevServer) -> Vec<Arc<DevServerUser>> {
        server.spec.access.users.iter().filter_map(|guest| self.user(guest.as_str())).collect()
    }

    /// Returns the node of a pod, or a placeholder if the node is missing.
    pub fn node_of_pod(&self, name: &str, now: Timestamp) -> Arc<cluster::Node> {
        let missing = || Arc::new(cluster::Node::missing(name, self.missing_nodes.missing_since(name, now)));
        self.nodes.get("", name).unwrap_or_else(missing)
    }

    pub fn server(&self, namespace: &str, name: &str) -> Option<Arc<DevServer>> {
        self.servers.get(&ObjectRef::new(name).within(namespace))
    }

    pub fn disk(&self, namespace: &str, name: &str) -> Option<Arc<Disk>> {
        self.disks.get(&ObjectRef::new(name).within(namespace))
    }

    pub fn disks_in_namespace(&self, namespace: &str) -> Vec<Arc<Disk>> {
        self.disk_index.names(namespace).iter().filter_map(|name| self.disk(namespace, name)).collect()
    }

    /// Reports whether the API server has the kinds `VolumeSnapshot` and `VolumeSnapshotContent`.
    pub fn has_snapshots(&self) -> bool {
        self.snapshots.relists() > 0 && self.snapshot_contents.relists() > 0
    }

    /// Returns the servers whose home is the disk.
    pub fn servers_of_disk(&self, namespace: &str, disk: &str) -> Vec<Arc<DevServer>> {
        let names = self.claim_index.servers_of_disk(namespace, disk);
        names.iter().filter_map(|name| self.server(namespace, name)).collect()
    }

    /// Updates the claims of a server in the index. They depend on its spec, the disk of its home, its flavor, and the
    /// default flavors of its owner and the cluster.
    pub fn index_server(&self, server: &DevServer) {
        self.claim_index.insert_server(&key(server), server, claims(self, server));
    }

    /// Updates the claims of all servers.
    pub fn index_servers(&self) {
        self.servers.state().iter().for_each(|server| self.index_server(server));
    }

    /// Updates the claims of the servers of one namespace.
    pub fn index_namespace(&self, namespace: &str) {
        let names = self.namespace_index.names(namespace);
        let servers = names.iter().filter_map(|name| self.server(namespace, name));
        servers.for_each(|server| self.index_server(&server));
    }

    /// Updates the claims of a cached or removed pod in the index.
    pub fn index_pod(&self, key: &Key) {
        self.claim_index.set_pod(key, self.pods.get(&key.0, &key.1).as_deref());
    }
}

/// The names of the objects of a kind in each namespace. The store of kube has no index by namespace.
#[derive(Default)]
pub struct NamespaceIndex(Mutex<HashMap<String, BTreeSet<String>>>);

impl NamespaceIndex {
    pub fn insert(&self, (namespace, name): Key) {
        self.0.lock().entry(namespace).or_default().insert(name);
    }

    pub fn remove(&self, (namespace, name): &Key) {
        let mut namespaces = self.0.lock();
        if let Some(names) = namespaces.get_mut(namespace) {
            names.remove(name);
            if names.is_empty() {
                namespaces.remove(namespace);
            }
        }
    }

    pub fn namespaces(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    pub fn names(&self, namespace: &str) -> Vec<String> {
        self.0.lock().get(namespace).into_iter().flatten().cloned().collect()
    }
}

/// Objects that the operator creates in users' namespaces. One cache per kind, because each kind's watch has its own
/// resource version.
pub struct ManagedObjects(BTreeMap<Kind, Cache<cluster::ManagedObject>>);

impl ManagedObjects {
    pub const KINDS: [Kind; 7] = [
        Kind::ServiceAccount,
        Kind::RoleBinding,
        Kind::ResourceQuota,
        Kind::LimitRange,
        Kind::NetworkPolicy,
        Kind::PodDisruptionBudget,
        Kind::Service,
    ];

    pub fn kind(&self, kind: Kind) -> Option<&Cache<cluster::ManagedObject>> {
        self.0.get(&kind)
    }

    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<cluster::ManagedObject>> {
        self.0.values().flat_map(|cache| cache.in_namespace(namespace)).collect()
    }
}

impl Default for ManagedObjects {
    fn default() -> Self {
        Self(Self::KINDS.into_iter().map(|kind| (kind, Cache::default())).collect())
    }
}

/// The flavors, and a map of all of them: validation may have to compare a request with each flavor.
#[derive(Default)]
pub struct FlavorCache {
    pub objects: Cache<DevServerFlavor>,
    by_name: RwLock<Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>>>,
}

impl FlavorCache {
    pub fn by_name(&self) -> Arc<BTreeMap<FlavorName, Arc<DevServerFlavor>>> {
        self.by_name.read().clone()
    }

    /// Rebuilds the map. Called when a spec changes; the map's statuses are not used.
    pub fn rebuild(&self) {
        let named = |flavor: Arc<DevServerFlavor>| Some((flavor.metadata.name.as_ref()?.parse().ok()?, flavor));
        let by_name = self.objects.all().into_iter().filter_map(named).collect();
        *self.by_name.write() = Arc::new(by_name);
    }
}
