//! Which admissions stay valid. Others are revoked, and the server is pending again in its previous position.

mod quota_conflict;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::{Message, Reason};

use super::capacity::FreeCapacity;
use super::node_assignment::{NodeAssignment, PodsByServer, RunningAssignment};
use super::{AccountRef, Fingerprint, NodeRejection, Policy, Server, Snapshot, fit};
use crate::cluster::Pod;
use crate::plan::Requeue;
use crate::resources::Resources;
use crate::time::remaining;
use quota_conflict::QuotaConflicts;

/// All admissions by what becomes of them.
pub(super) struct Review<'a> {
    pub valid: Vec<HeldResources<'a>>,
    /// By uid.
    pub released: BTreeSet<&'a str>,
    /// By uid.
    pub revoked: BTreeMap<&'a str, RevocationCause<'a>>,
    pub rejections: Vec<NodeRejection>,
    /// What bound pods and valid admissions leave.
    pub capacity: FreeCapacity<'a>,
    pub requeue: Requeue,
}

/// What the pods of a server use, or will use, on each node.
pub(super) struct HeldResources<'a> {
    pub server: &'a Server,
    pub nodes: Vec<(&'a str, Resources)>,
}

#[derive(Clone)]
pub(super) enum RevocationCause<'a> {
    NodeDeleted(&'a str),
    /// The node was unready for too long.
    NodeLost(&'a str),
    /// The node, or the kube-scheduler for it, rejected or terminated the pod.
    PodRejected {
        node: &'a str,
        pod: &'a Pod,
    },
    /// The capacity is used by an admission of another leader, or by foreign pods.
    CapacityTaken(&'a str),
    /// The number of nodes is not that of the request: the admission was written by another client.
    SizeMismatch,
    /// Another leader admitted from the same quota at the same time.
    QuotaConflict(AccountRef),
    Preempted,
}

pub(super) fn review<'a>(snapshot: &'a Snapshot<'a>, policy: &Policy, now: Timestamp) -> Review<'a> {
    let pods = PodsByServer::new(snapshot);
    let bound = FreeCapacity::after_bound_pods(snapshot);
    let mut review = Review {
        valid: Vec::new(),
        released: BTreeSet::new(),
        revoked: BTreeMap::new(),
        rejections: Vec::new(),
        capacity: bound.clone(),
        requeue: Requeue::AwaitChange,
    };
    let mut unchecked = Vec::new();
    let servers = snapshot.in_arrival_order().into_iter();
    for assignment in servers.filter_map(|server| RunningAssignment::new(server, &pods)) {
        if assignment.server.is_stopped() {
            review.release_without_pods(&assignment);
        } else if let Some(cause) = revocation_cause(&assignment, &bound, policy, now) {
            review.rejections.extend(rejections(&assignment, &bound, policy, now));
            review.revoked.insert(&assignment.server.uid, cause);
        } else if assignment.server.is_preemption_due(now) {
            review.revoke_preempted_without_pods(&assignment);
        } else {
            review.requeue = review.requeue.earlier(until_rejected(&assignment, policy, now));
            unchecked.push(assignment);
        }
    }
    unchecked.sort_by_key(RunningAssignment::precedence);
    let mut conflicts = QuotaConflicts::default();
    review.valid.iter().for_each(|held| conflicts.add(held.server));
    for assignment in &unchecked {
        let server = assignment.server;
        match conflicts.find(server, &snapshot.accounts).filter(|_| assignment.is_unbound()) {
            Some(account) => drop(review.revoked.insert(&server.uid, RevocationCause::QuotaConflict(account))),
            None => review.keep_if_fits(assignment),
        }
        if !review.revoked.contains_key(server.uid.as_str()) {
            conflicts.add(server);
        }
    }
    review
}

impl<'a> Review<'a> {
    /// Releases a stopped server when its last pod is gone; a graceful stop takes time.
    fn release_without_pods(&mut self, assignment: &RunningAssignment<'a>) {
        if assignment.has_no_pods {
            self.released.insert(&assignment.server.uid);
        } else {
            self.keep(assignment);
        }
    }

    /// Revokes the admission of a preempted server when its last pod is gone.
    fn revoke_preempted_without_pods(&mut self, assignment: &RunningAssignment<'a>) {
        if assignment.has_no_pods {
            self.revoked.insert(&assignment.server.uid, RevocationCause::Preempted);
        } else {
            self.keep(assignment);
        }
    }

    /// Keeps an admission if its unbound pods fit. A gang with some bound pods needs the capacity of the others too.
    fn keep_if_fits(&mut self, assignment: &RunningAssignment<'a>) {
        let fits = |(node, request): &(&str, &Resources)| {
            self.capacity.node(node).is_some_and(|capacity| capacity.free.fits(request))
        };
        let taken = assignment.unbound_requests().find(|request| !fits(request));
        if let Some((node, _)) = taken {
            self.revoked.insert(&assignment.server.uid, RevocationCause::CapacityTaken(node));
        } else {
            self.keep(assignment);
        }
    }

    fn keep(&mut self, assignment: &RunningAssignment<'a>) {
        self.capacity.subtract_unbound(assignment);
        self.valid.push(HeldResources::new(assignment));
    }
}

impl<'a> HeldResources<'a> {
    fn new(assignment: &RunningAssignment<'a>) -> Self {
        let nodes = assignment.nodes.iter().filter_map(|node| match (&node.unbound_request, node.pod) {
            // A terminating pod of this run belongs to the server until it is gone.
            (Some(request), _) => match node.terminating_pod {
                Some(pod) => Some((node.node, request.saturating_add(&assignment.pod_usage(pod)))),
                None => Some((node.node, request.clone())),
            },
            (None, Some(pod)) => Some((pod.node.as_deref()?, assignment.pod_usage(pod).into_owned())),
            (None, None) => None,
        });
        Self { server: assignment.server, nodes: nodes.collect() }
    }
}

/// Returns why an admission is invalid, apart from conflicts with others. Lost nodes are checked first, because the status of
/// their pods is outdated.
fn revocation_cause<'a>(
    assignment: &RunningAssignment<'a>,
    capacity: &FreeCapacity<'_>,
    policy: &Policy,
    now: Timestamp,
) -> Option<RevocationCause<'a>> {
    let mut nodes = assignment.nodes.iter();
    let lost = nodes.find_map(|node| match capacity.node(node.node) {
        None => Some(RevocationCause::NodeDeleted(node.node)),
        Some(capacity) => {
            let is_lost = capacity.node.is_lost(policy.node_lost_timeout, now);
            is_lost.then_some(RevocationCause::NodeLost(node.node))
        }
    });
    let is_mismatch = assignment.nodes.len() != assignment.server.request.nodes();
    let mismatch = is_mismatch.then_some(RevocationCause::SizeMismatch);
    let rejected = || {
        let mut nodes = assignment.nodes.iter();
        nodes.find_map(|node| {
            let pod = rejected_pod(node, policy, now)?;
            Some(RevocationCause::PodRejected { node: node.node, pod })
        })
    };
    lost.or(mismatch).or_else(rejected)
}

/// Returns the pod of a node assignment if it was rejected. Terminating pods are ignored: they end in the same phases as
/// evicted pods.
fn rejected_pod<'a>(assignment: &NodeAssignment<'a>, policy: &Policy, now: Timestamp) -> Option<&'a Pod> {
    assignment.pod.filter(|pod| match unschedulable_since(pod) {
        Some(since) => remaining(policy.unschedulable_timeout, since, now).is_none(),
        None => pod.is_terminated(),
    })
}

/// Returns since when the kube-scheduler reports a pod as unschedulable.
fn unschedulable_since(pod: &Pod) -> Option<Timestamp> {
    let is_unbound = pod.node.is_none() && !pod.is_terminated();
    pod.server.as_ref().filter(|_| is_unbound).and_then(|server| server.unschedulable_since)
}

fn until_rejected(assignment: &RunningAssignment<'_>, policy: &Policy, now: Timestamp) -> Requeue {
    let since = assignment.nodes.iter().filter_map(|node| unschedulable_since(node.pod?));
    let remaining = since.filter_map(|since| remaining(policy.unschedulable_timeout, since, now));
    remaining.min().map_or(Requeue::AwaitChange, Requeue::After)
}

/// Returns the nodes to avoid. Only rejections with an unknown cause are recorded: a node that is full or unschedulable is
/// not assigned anyway, and may be suitable as soon as it is not.
fn rejections(
    assignment: &RunningAssignment<'_>,
    bound: &FreeCapacity<'_>,
    policy: &Policy,
    now: Timestamp,
) -> Vec<NodeRejection> {
    let server = assignment.server;
    let rejection = |node: &NodeAssignment<'_>| {
        let pod = rejected_pod(node, policy, now)?;
        let capacity = bound.node(node.node).filter(|capacity| fit::fits(&server.request, capacity))?;
        Some(NodeRejection {
            uid: server.uid.clone(),
            node: node.node.to_owned(),
            fingerprint: Fingerprint::new(capacity.node),
            at: now,
            message: Message::truncated(&pod.reason_and_message()),
        })
    };
    assignment.nodes.iter().filter_map(rejection).collect()
}

impl RevocationCause<'_> {
    pub fn reason(&self) -> Reason {
        match self {
            Self::NodeDeleted(_) | Self::NodeLost(_) => Reason::NodeLost,
            Self::PodRejected { .. } | Self::CapacityTaken(_) | Self::SizeMismatch => Reason::Unschedulable,
            Self::QuotaConflict(_) => Reason::QuotaExceeded,
            Self::Preempted => Reason::Preempted,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::NodeDeleted(node) => format!("Node {node} was deleted."),
            Self::NodeLost(node) => format!("Node {node} is unreachable and considered lost."),
            Self::PodRejected { node, pod } if pod.is_terminated() => {
                format!("Node {node} terminated the pod: {}.", pod.reason_and_message())
            }
            Self::PodRejected { node, pod } => format!("Node {node} rejected the pod: {}.", pod.reason_and_message()),
            Self::CapacityTaken(node) => {
                format!("Capacity on node {node} was used by other pods before the server could start.")
            }
            Self::SizeMismatch => {
                "Admission revoked: the number of assigned nodes does not match spec.nodes.".to_owned()
            }
            Self::QuotaConflict(account) => {
                let account = match account {
                    AccountRef::User(name) => format!("user {name}"),
                    AccountRef::Team(name) => format!("team {name}"),
                };
                format!("Admission revoked: quota of {account} was exhausted by a concurrent admission.")
            }
            Self::Preempted => "Preempted; returned to its previous position in the queue.".to_owned(),
        }
    }
}
