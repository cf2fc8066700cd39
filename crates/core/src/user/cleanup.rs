//! Removal of the objects of deleted users.

use odc_api::label;

use super::ensure::target;
use super::{role_binding, service_account};
use crate::cluster::ManagedObject;
use crate::manifest::Kind;
use crate::plan::{Target, Write};

/// The contents of a namespace. They must be read from the API server: with a stale cache a namespace could appear empty,
/// and deleting it would delete data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceContents {
    /// The number of `PersistentVolumeClaims`.
    pub claims: usize,
    /// The number of disks. One without a claim may still have restore points.
    pub disks: usize,
    /// The number of `VolumeSnapshots`.
    pub snapshots: usize,
    /// The number of pods, including terminating ones, which still need the network policy.
    pub pods: usize,
    /// Servers that are not being deleted.
    pub servers: Vec<Target>,
    /// The number of servers that are being deleted.
    pub terminating_servers: usize,
}

/// Returns the writes that remove the objects of a deleted user: first the role binding and service account, so that
/// nothing new is created, then the servers. The namespace is deleted last, when it is empty; with it the operator loses
/// its permissions there.
///
/// The caller must have confirmed with the API server that the user does not exist. Only a namespace with the name and the
/// label of the user is deleted. `objects` are the managed objects in it.
pub fn cleanup(namespace: &ManagedObject, contents: &NamespaceContents, objects: &[&ManagedObject]) -> Vec<Write> {
    if namespace.is_deleting || !is_user_namespace(namespace) {
        return vec![];
    }
    let is_local = |object: &&&ManagedObject| object.namespace.as_ref() == Some(&namespace.name);
    let access: Vec<&ManagedObject> =
        [(Kind::RoleBinding, role_binding::USER), (Kind::ServiceAccount, service_account::NAME)]
            .into_iter()
            .flat_map(|(kind, name)| {
                objects.iter().filter(is_local).filter(move |object| object.kind == kind && object.name == name)
            })
            .copied()
            .collect();
    let NamespaceContents { claims, disks, snapshots, pods, servers, terminating_servers } = contents;
    let has_data = *claims > 0 || *disks > 0 || *snapshots > 0;
    if access.is_empty() && servers.is_empty() && *terminating_servers == 0 && *pods == 0 && !has_data {
        return vec![Write::Delete(target(namespace))];
    }
    let access = access.into_iter().filter(|object| !object.is_deleting).map(target);
    // Guards against targets of other kinds or namespaces.
    let is_server =
        |server: &&Target| server.kind == Kind::DevServer && server.namespace.as_ref() == Some(&namespace.name);
    access.chain(servers.iter().filter(is_server).cloned()).map(Write::Delete).collect()
}

fn is_user_namespace(namespace: &ManagedObject) -> bool {
    let owner = odc_api::namespace::owner(&namespace.name);
    owner.is_some_and(|owner| namespace.label(label::OWNER) == Some(owner.as_str()))
}
