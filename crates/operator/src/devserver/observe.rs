//! Reads what exists of a server from our copies of the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use odc_api::v1alpha1::{DevServer, DevServerUser};
use odc_core::devserver::agents::Agents;
use odc_core::devserver::build::Keys;
use odc_core::devserver::{Seen, granted, parts};
use odc_core::object::Kind;
use odc_core::seen::{Child, Node, Pod};

use crate::agents::authority::Authority;
use crate::context::{Context, Hint};

/// Held while a decision looks at it.
pub struct Observed {
    pods: Vec<Arc<Pod>>,
    nodes: BTreeMap<String, Arc<Node>>,
    service: Option<Arc<Child>>,
    hint: Hint,
    admitting: bool,
    since: Timestamp,
    authority: Option<Arc<Authority>>,
    owner: Option<Arc<DevServerUser>>,
    guests: Vec<Arc<DevServerUser>>,
}

impl Observed {
    pub fn of(ctx: &Context, server: &DevServer) -> Self {
        let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let ordinals = 0..server.spec.nodes as usize;
        // A server's size never changes, so these are all the names its pods can have.
        let pods: Vec<Arc<Pod>> =
            ordinals.filter_map(|ordinal| ctx.cluster.pods.get(namespace, &parts::name(name, ordinal))).collect();
        let granted = granted(server.status.as_ref()).map(|grant| grant.nodes.as_slice()).unwrap_or_default();
        let granted = granted.iter().filter_map(|node| Some((node.clone(), ctx.cluster.nodes.get("", node)?)));
        let of_pods = pods.iter().filter_map(|pod| pod.node.as_ref()).map(|node| (node.clone(), ctx.node_of_pod(node)));
        let nodes = granted.chain(of_pods).collect();
        let services = ctx.cluster.children.of(Kind::Service);
        let service = services.and_then(|services| services.get(namespace, name));
        Self {
            pods,
            nodes,
            service,
            hint: ctx.hints.get(uid),
            admitting: ctx.admitting.has(uid),
            since: ctx.since,
            authority: ctx.authority.borrow().usable(),
            owner: ctx.owner(namespace),
            guests: ctx.guests(server),
        }
    }

    /// The latest grant that a pod of this server was made for.
    pub fn newest_run(&self, uid: &str) -> Option<i64> {
        let details = self.pods.iter().filter_map(|pod| pod.server.as_deref());
        let ours = details.filter(|pod| pod.owner.as_deref().or(pod.made_for.as_deref()) == Some(uid));
        ours.filter_map(|pod| pod.run).max()
    }

    pub fn seen<'a>(&'a self, keys: Option<&'a Keys>) -> Seen<'a> {
        Seen {
            pods: self.pods.iter().map(|pod| &**pod).collect(),
            nodes: self.nodes.iter().map(|(name, node)| (name.as_str(), &**node)).collect(),
            service: self.service.as_deref(),
            secret: self.hint.secret.clone(),
            secret_checked: self.hint.secret_checked,
            keys,
            entrypoint: self.hint.entrypoint.clone(),
            held: self.hint.held,
            admitting: self.admitting,
            sleep: None,
            owner: self.owner.as_deref(),
            guests: self.guests.iter().map(|guest| &**guest).collect(),
            agents: Agents { since: Some(self.since), of: self.hint.agents.iter().cloned().collect() },
            authorities: self.authority.as_ref().map_or(&[], |authority| &authority.trusted),
            obstacle: self.hint.obstacle.clone(),
            refused: self.hint.refused.clone(),
        }
    }
}
