//! The nodes assigned to a server, matched with its pods.

use std::borrow::Cow;
use std::collections::BTreeMap;

use odc_api::v1alpha1::Admission;

use super::snapshot::ArrivalKey;
use super::volume_limits::AttachedVolumes;
use super::{Server, Snapshot};
use crate::cluster::Pod;
use crate::devserver::pods::pod_name;
use crate::resources::Resources;

/// Pods by the uid of their server.
pub(crate) struct PodsByServer<'a> {
    by_server: BTreeMap<&'a str, Vec<&'a Pod>>,
    attached_volumes: &'a AttachedVolumes,
}

pub(crate) struct RunningAssignment<'a> {
    pub server: &'a Server,
    pub admission: &'a Admission,
    /// One for each node, by the ordinal of the pod.
    pub nodes: Vec<NodeAssignment<'a>>,
    /// The server has no pod, of this run or an earlier one.
    pub has_no_pods: bool,
    attached_volumes: &'a AttachedVolumes,
}

pub(crate) struct NodeAssignment<'a> {
    pub node: &'a str,
    /// The pod of this run, if it is not terminating.
    pub pod: Option<&'a Pod>,
    /// What the pod will use once it is bound; `None` if it is, because bound pods are counted separately.
    pub unbound_request: Option<Resources>,
    /// The pod of this run, if it is terminating on this node.
    pub terminating_pod: Option<&'a Pod>,
}

impl<'a> PodsByServer<'a> {
    pub fn new(snapshot: &'a Snapshot<'_>) -> Self {
        let mut by_server: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in &snapshot.pods {
            if let Some(uid) = pod.server.as_ref().and_then(|server| server.server_uid()) {
                by_server.entry(uid).or_default().push(pod);
            }
        }
        Self { by_server, attached_volumes: &snapshot.attached_volumes }
    }

    /// Returns the pods of a server. Pods of other namespaces never belong to it, whatever their metadata says.
    fn get<'s>(&'s self, server: &'s Server) -> impl Iterator<Item = &'a Pod> + use<'s, 'a> {
        let pods = self.by_server.get(server.uid.as_str()).into_iter().flatten().copied();
        pods.filter(|pod| pod.namespace == server.namespace)
    }
}

impl<'a> RunningAssignment<'a> {
    /// Returns `None` if the server is not admitted.
    pub fn new(server: &'a Server, pods: &PodsByServer<'a>) -> Option<Self> {
        let admission = server.admission.as_ref().filter(|_| server.is_admitted())?;
        let own: Vec<&Pod> = pods.get(server).collect();
        let attached_volumes = pods.attached_volumes;
        let nodes =
            admission.nodes.iter().enumerate().map(|(ordinal, node)| {
                NodeAssignment::new(server, admission.run, ordinal, node, &own, attached_volumes)
            });
        let nodes = nodes.collect();
        Some(Self { server, admission, nodes, has_no_pods: own.is_empty(), attached_volumes })
    }

    /// Returns what is not bound yet, by node.
    pub fn unbound_requests(&self) -> impl Iterator<Item = (&'a str, &Resources)> {
        self.nodes.iter().filter_map(|node| Some((node.node, node.unbound_request.as_ref()?)))
    }

    /// Returns what a pod uses, including volumes.
    pub fn pod_usage(&self, pod: &'a Pod) -> Cow<'a, Resources> {
        self.attached_volumes.pod_usage(pod)
    }

    /// Reports whether no pod uses any of it yet.
    pub fn is_unbound(&self) -> bool {
        self.nodes.iter().all(|node| node.unbound_request.is_some() && node.terminating_pod.is_none())
    }

    /// Orders assignments of the same capacity: by leader, time of admission, and arrival. The first one stays valid.
    pub fn precedence(&self) -> impl Ord + use<'a> {
        let admitted_at = self.admission.admitted_at.as_ref().map_or(i64::MIN, |time| time.0.as_second());
        let arrival: ArrivalKey<'a> = self.server.arrival_key();
        (self.admission.epoch, admitted_at, arrival)
    }
}

impl<'a> NodeAssignment<'a> {
    fn new(
        server: &Server,
        run: i64,
        ordinal: usize,
        node: &'a str,
        own: &[&'a Pod],
        attached_volumes: &AttachedVolumes,
    ) -> Self {
        let name = pod_name(&server.name, ordinal);
        let run_of = |pod: &Pod| pod.server.as_ref().and_then(|server| server.run);
        let pod = own.iter().copied().find(|pod| pod.name == name && run_of(pod) == Some(run));
        let per_node = &server.request.per_node;
        let unbound_request = match pod {
            Some(pod) if pod.deletion_timestamp.is_some() => {
                Some(additional_request(per_node, pod, node, attached_volumes))
            }
            Some(pod) if pod.node.is_some() && !pod.is_terminated() => None,
            _ => Some(per_node.clone()),
        };
        let is_terminating =
            |pod: &&Pod| pod.deletion_timestamp.is_some() && !pod.is_terminated() && pod.node.as_deref() == Some(node);
        let terminating_pod = pod.filter(is_terminating);
        Self { node, pod: pod.filter(|pod| pod.deletion_timestamp.is_none()), unbound_request, terminating_pod }
    }
}

/// Returns what a pod uses in addition to the terminating pod of the same run that it replaces. It is created only when the
/// name is free, so the two never use the node at once. Pods of earlier runs are counted in full: this run was admitted
/// in addition to them.
fn additional_request(
    per_node: &Resources,
    terminating: &Pod,
    node: &str,
    attached_volumes: &AttachedVolumes,
) -> Resources {
    if terminating.node.as_deref() == Some(node) && !terminating.is_terminated() {
        let used = attached_volumes.pod_usage(terminating);
        per_node.max(&used).saturating_sub(&used)
    } else {
        per_node.clone()
    }
}
