//! Free capacity of the nodes.

use super::Snapshot;
use super::node_assignment::{PodsByServer, RunningAssignment};
use crate::cluster::{Node, Pod};
use crate::resources::Resources;

/// All nodes by name.
#[derive(Clone, Debug)]
pub(crate) struct FreeCapacity<'a> {
    nodes: Vec<NodeCapacity<'a>>,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeCapacity<'a> {
    pub node: &'a Node,
    /// Allocatable resources and attachable volumes.
    pub capacity: Resources,
    /// Not used by bound pods and assignments.
    pub free: Resources,
    /// Not used if all servers left the node.
    pub max_available: Resources,
    /// Number of bound pods and unbound assignments of servers.
    pub servers: usize,
}

impl<'a> FreeCapacity<'a> {
    /// Returns what bound pods leave.
    pub fn after_bound_pods(snapshot: &Snapshot<'a>) -> Self {
        let mut nodes = snapshot.nodes.clone();
        nodes.sort_by(|one, other| (&one.name, &one.uid).cmp(&(&other.name, &other.uid)));
        nodes.dedup_by(|one, other| one.name == other.name);
        let node_capacity = |node: &'a Node| {
            let capacity = snapshot.attached_volumes.node_capacity(node);
            NodeCapacity { node, free: capacity.clone(), max_available: capacity.clone(), capacity, servers: 0 }
        };
        let mut capacity = Self { nodes: nodes.into_iter().map(node_capacity).collect() };
        for pod in snapshot.pods.iter().filter(|pod| !pod.is_terminated()) {
            capacity.subtract_pod(pod, &snapshot.attached_volumes.pod_usage(pod));
        }
        capacity
    }

    /// Returns what bound pods and all assignments leave.
    pub fn after_assignments(snapshot: &Snapshot<'a>) -> Self {
        let (mut capacity, pods) = (Self::after_bound_pods(snapshot), PodsByServer::new(snapshot));
        for assignment in snapshot.servers.iter().filter_map(|server| RunningAssignment::new(server, &pods)) {
            capacity.subtract_unbound(&assignment);
        }
        capacity
    }

    fn position(&self, node: &str) -> Option<usize> {
        self.nodes.binary_search_by(|capacity| capacity.node.name.as_str().cmp(node)).ok()
    }

    pub fn node(&self, node: &str) -> Option<&NodeCapacity<'a>> {
        self.nodes.get(self.position(node)?)
    }

    fn node_mut(&mut self, node: &str) -> Option<&mut NodeCapacity<'a>> {
        let position = self.position(node)?;
        self.nodes.get_mut(position)
    }

    pub fn iter(&self) -> impl Iterator<Item = &NodeCapacity<'a>> {
        self.nodes.iter()
    }

    /// Subtracts what the pods of an assignment do not use yet.
    pub fn subtract_unbound(&mut self, assignment: &RunningAssignment<'_>) {
        for (node, request) in assignment.unbound_requests() {
            if let Some(capacity) = self.node_mut(node) {
                capacity.free = capacity.free.saturating_sub(request);
                capacity.servers = capacity.servers.saturating_add(1);
            }
        }
    }

    fn subtract_pod(&mut self, pod: &Pod, used: &Resources) {
        let Some(capacity) = pod.node.as_deref().and_then(|node| self.node_mut(node)) else { return };
        capacity.free = capacity.free.saturating_sub(used);
        if pod.server.is_some() {
            capacity.servers = capacity.servers.saturating_add(1);
        } else if pod.deletion_timestamp.is_none() {
            capacity.max_available = capacity.max_available.saturating_sub(used);
        }
    }
}
