//! Reads the state of one server from the caches and the soft state.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, DevServerUser};
use odc_core::cluster::{ManagedObject, Node, Pod};
use odc_core::devserver::agent_requests::Agents;
use odc_core::devserver::{Observed, SoftState, active_admission, pods};
use odc_core::manifest::Kind;

use crate::agents::ssh_control_ca::ControlCa;
use crate::context::Context;
use crate::soft_state::ServerSoftState;

/// Owns what [`Observed`] borrows.
pub struct ObservedServer {
    pods: Vec<Arc<Pod>>,
    nodes: BTreeMap<String, Arc<Node>>,
    service: Option<Arc<ManagedObject>>,
    soft_state: ServerSoftState,
    leader_since: Timestamp,
    control_ca: Option<Arc<ControlCa>>,
    owner: Option<Arc<DevServerUser>>,
    guests: Vec<Arc<DevServerUser>>,
}

/// Returns the pods with a name of the server. `spec.nodes` is immutable, so these are all possible names.
pub fn pods_of(ctx: &Context, server: &DevServer) -> Vec<Arc<Pod>> {
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let ordinals = 0..server.spec.nodes as usize;
    ordinals.filter_map(|ordinal| ctx.cluster.pods.get(namespace, &pods::pod_name(name, ordinal))).collect()
}

impl ObservedServer {
    pub fn new(ctx: &Context, server: &DevServer) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let pods = pods_of(ctx, server);
        let admission = active_admission(server.status.as_ref());
        let assigned = admission.map(|admission| admission.nodes.as_slice()).unwrap_or_default();
        let assigned = assigned.iter().filter_map(|node| Some((node.clone(), ctx.cluster.nodes.get("", node)?)));
        let of_pods = pods
            .iter()
            .filter_map(|pod| pod.node.as_ref())
            .map(|node| (node.clone(), ctx.cluster.node_of_pod(node, ctx.now())));
        let nodes = assigned.chain(of_pods).collect();
        let services = ctx.cluster.managed_objects.kind(Kind::Service);
        let service = services.and_then(|services| services.get(namespace, name));
        Self {
            pods,
            nodes,
            service,
            soft_state: ctx.soft_states.get(uid),
            leader_since: ctx.leader_since,
            control_ca: ctx.control_ca.borrow().ready(),
            owner: ctx.cluster.owner(namespace),
            guests: ctx.cluster.guests(server),
        }
    }

    /// Returns the highest run among the pods of this server.
    pub fn newest_run(&self, uid: &str) -> Option<i64> {
        let details = self.pods.iter().filter_map(|pod| pod.server.as_deref());
        let owned = details.filter(|pod| pod.belongs_to(uid));
        owned.filter_map(|pod| pod.run).max()
    }

    pub fn observed(&self) -> Observed<'_> {
        Observed {
            pods: self.pods.iter().map(|pod| &**pod).collect(),
            nodes: self.nodes.iter().map(|(name, node)| (name.as_str(), &**node)).collect(),
            service: self.service.as_deref(),
            owner: self.owner.as_deref(),
            guests: self.guests.iter().map(|guest| &**guest).collect(),
            control_cas: self.control_ca.as_ref().map_or(&[], |ca| &ca.trusted_keys),
        }
    }

    pub fn soft_state(&self) -> SoftState {
        SoftState {
            secret: self.soft_state.secret.clone(),
            secret_checked_at: self.soft_state.secret_checked_at,
            entrypoint: self.soft_state.entrypoint.clone(),
            deferred_phase: self.soft_state.deferred_phase,
            hibernate: None,
            agents: Agents {
                leader_since: Some(self.leader_since),
                by_pod: self.soft_state.agents.iter().cloned().collect(),
            },
            recurring_error: self.soft_state.recurring_error.clone(),
            rejection: self.soft_state.rejection.clone(),
        }
    }
}
