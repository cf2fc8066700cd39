//! Why a server is pending, as a reason and a message. Messages contain no times, queue positions or names of other users:
//! the same state always gives the same message, and it reveals nothing about others.

pub(super) mod resource;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use odc_api::v1alpha1::condition::Reason;
use odc_control::duration;

use super::ClusterState;
use super::cycle::quota::AccountId;
use super::cycle::quota::violation::{NANOS_PER_MILLI, NANOS_PER_UNIT, QuotaResource, QuotaViolation, saturating_i64};
use super::event::Request;
use super::node_match;
use super::plan::{PendingReason, PendingServer};
use super::state::Entry;
use super::state::arena::ClassIdx;
use super::state::node::NodeInfo;
use super::state::request_class::{NodeFit, RequestClass};
use crate::admission::REJECTION_TTL;
use resource::ResourceKind;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    pub reason: Reason,
    pub message: String,
}

/// Explains why servers are pending. Servers of the same class with the same reason share a message, unless nodes rejected
/// them.
pub struct Explainer<'a> {
    state: &'a ClusterState,
    shared: BTreeMap<(Option<ClassIdx>, &'static str), Explanation>,
}

impl ClusterState {
    /// Returns an explainer for the current state, which should include the assignments of the plan.
    pub fn explainer(&self) -> Explainer<'_> {
        Explainer { state: self, shared: BTreeMap::new() }
    }
}

impl Explainer<'_> {
    pub fn explain(&mut self, pending: &PendingServer) -> Explanation {
        let Some(entry) = self.state.find_entry(&pending.id) else { return not_queued() };
        if let PendingReason::Quota(violation) = &pending.reason {
            return quota_exceeded(self.state, violation);
        }
        if !entry.server.rejected_by.is_empty() {
            return explain(self.state, entry, &pending.reason);
        }
        let (state, key) = (self.state, (entry.class, pending.reason.as_str()));
        self.shared.entry(key).or_insert_with(|| explain(state, entry, &pending.reason)).clone()
    }
}

fn explain(state: &ClusterState, entry: &Entry, reason: &PendingReason) -> Explanation {
    let Some(class) = state.request_class(entry) else { return not_queued() };
    let context = MessageContext { request: &entry.server.request, class, state, entry };
    let explanation = match reason {
        PendingReason::Unsatisfiable => context.unsatisfiable(),
        PendingReason::NodesRejected => context.nodes_rejected(),
        PendingReason::Priority => context.reserved_for_others(),
        PendingReason::ConflictsWithReservation => context.conflicts_with_reservation(),
        PendingReason::Resources | PendingReason::ExcludedThisCycle => context.insufficient_capacity(),
        PendingReason::Quota(violation) => return quota_exceeded(state, violation),
        PendingReason::BeginTime { confirmed } => {
            return Explanation { reason: Reason::Booked, message: booking(*confirmed).to_owned() };
        }
    };
    Explanation { message: explanation.message + &context.home_location(), ..explanation }
}

/// Returns the message of a server that waits for the start time of its booking.
pub(crate) fn booking(confirmed: bool) -> &'static str {
    if confirmed {
        "Booking confirmed; waiting for the start time."
    } else {
        "Booking not confirmed: servers queued earlier may still hold the nodes at the start time."
    }
}

fn not_queued() -> Explanation {
    Explanation { reason: Reason::NotQueued, message: "The server is not in the queue.".to_owned() }
}

fn quota_exceeded(state: &ClusterState, violation: &QuotaViolation) -> Explanation {
    Explanation { reason: Reason::QuotaExceeded, message: quota_message(state, violation) }
}

fn quota_message(state: &ClusterState, violation: &QuotaViolation) -> String {
    let QuotaViolation { account, resource, limit, used, reserved, requested } = violation;
    let kind = match account {
        AccountId::User(_) => "user",
        AccountId::Team(_) => "team",
    };
    let name = state.account(*account).map_or("", |account| account.spec.name.as_str());
    let text = |amount: i128| match resource {
        QuotaResource::Servers | QuotaResource::Devices | QuotaResource::Flavor(_) => amount.to_string(),
        QuotaResource::Cpu => resource::format_cpu(saturating_i64(amount / NANOS_PER_MILLI)),
        QuotaResource::Memory => resource::format_bytes_rounded_down(saturating_i64(amount / NANOS_PER_UNIT)),
    };
    let unit = match resource {
        QuotaResource::Servers => {
            return format!(
                "Exceeds quota of {kind} {name}: requested {requested} server, used {used} (hibernated servers included), \
                 limit {limit}. Delete a server, or ask an administrator to raise the quota."
            );
        }
        QuotaResource::Devices if *requested == 1 => "device",
        QuotaResource::Devices => "devices",
        QuotaResource::Flavor(flavor) => flavor,
        QuotaResource::Cpu => "CPU",
        QuotaResource::Memory => "of memory",
    };
    let reserved_text = match *reserved {
        0 => String::new(),
        reserved => format!(" reserved {} for servers ahead in the queue,", text(reserved)),
    };
    let hint = if requested > limit { "Request less" } else { "Stop or hibernate another server" };
    format!(
        "Exceeds quota of {kind} {name}: requested {} {unit}, used {},{reserved_text} limit {}. {hint}, or ask an \
         administrator to raise the quota.",
        text(*requested),
        text(used - reserved),
        text(*limit),
    )
}

/// The server that a message is about.
struct MessageContext<'a> {
    request: &'a Request,
    class: &'a RequestClass,
    state: &'a ClusterState,
    entry: &'a Entry,
}

impl MessageContext<'_> {
    fn unsatisfiable(&self) -> Explanation {
        let (short, cause) = self.unsatisfiable_cause();
        Explanation { reason: Reason::Unsatisfiable, message: self.requires(short, &cause) }
    }

    fn reserved_for_others(&self) -> Explanation {
        let cause = "Capacity is free but reserved for servers ahead in the queue.";
        Explanation { reason: Reason::Reserved, message: self.requires(None, cause) }
    }

    fn conflicts_with_reservation(&self) -> Explanation {
        let cause = "Capacity is free now but reserved before this server would end. It could start now with a shorter \
                     lifetime.";
        Explanation { reason: Reason::Reserved, message: self.requires(None, cause) }
    }

    fn nodes_rejected(&self) -> Explanation {
        let rejected_by = &self.entry.server.rejected_by;
        let ttl = duration::format(REJECTION_TTL.as_secs());
        let cause = match (rejected_by.len(), rejected_by.first_key_value()) {
            (1, Some((node, message))) => {
                format!("Node {node} rejected the pod: {message}. The node is retried when it changes, or after {ttl}.")
            }
            (count, Some((node, message))) => {
                format!(
                    "{count} nodes rejected the pod ({node}: {message}). They are retried when they change, or after {ttl}."
                )
            }
            (_, None) => "All matching nodes rejected the pod.".to_owned(),
        };
        Explanation { reason: Reason::Unschedulable, message: self.requires(None, &cause) }
    }

    fn insufficient_capacity(&self) -> Explanation {
        let nodes: Vec<&NodeInfo> = self.schedulable_nodes().map(|(_, info)| info).collect();
        let explanation = if nodes.is_empty() {
            let message = self.requires(None, "No matching node is schedulable.");
            Explanation { reason: Reason::InsufficientCapacity, message }
        } else if let Some(short) =
            ResourceKind::requested(self.request).find(|kind| self.is_insufficient(*kind, &nodes))
        {
            self.insufficient_resource(short, &nodes)
        } else {
            Explanation { reason: Reason::Fragmented, message: self.requires(None, &self.fragmentation_cause()) }
        };
        let rejected_by = &self.entry.server.rejected_by;
        let excluded = match (rejected_by.len(), rejected_by.first_key_value()) {
            (_, None) => String::new(),
            (1, Some((node, _))) => format!(" Node {node} is excluded because it rejected the pod."),
            (count, _) => format!(" {count} nodes are excluded because they rejected the pod."),
        };
        Explanation { message: explanation.message + &excluded, ..explanation }
    }

    /// Returns matching nodes that accept pods and did not reject this one.
    fn schedulable_nodes(&self) -> impl Iterator<Item = (&NodeFit, &NodeInfo)> {
        let schedulable = self.matching_nodes().filter(|(fit, _)| fit.schedulable);
        schedulable.filter(|(_, info)| !self.entry.server.rejected_by.contains_key(&info.node.name))
    }

    /// Returns nodes whose labels, permanent taints and volume affinity match.
    fn matching_nodes(&self) -> impl Iterator<Item = (&NodeFit, &NodeInfo)> {
        self.class.node_fits().filter_map(|(node, fit)| Some((fit, self.state.node(node)?)))
    }

    /// Reports whether too few nodes have enough of one resource.
    fn is_insufficient(&self, kind: ResourceKind<'_>, nodes: &[&NodeInfo]) -> bool {
        let requested = kind.amount(&self.request.per_node);
        nodes.iter().filter(|info| kind.amount(&info.free) >= requested).count() < self.request.nodes()
    }

    /// `Insufficient gpu: requires 8 on one node; at most 2 free on a node, 5 in total.`
    fn insufficient_resource(&self, short: ResourceKind<'_>, nodes: &[&NodeInfo]) -> Explanation {
        let free = || nodes.iter().map(|info| short.amount(&info.free).max(0));
        let (largest, sum) = (free().max().unwrap_or_default(), free().fold(0, i64::saturating_add));
        let requested = short.amount(&self.request.per_node);
        let total = short.format_rounded_down(sum);
        let cause = match free().filter(|free| *free >= requested).count() {
            _ if sum == 0 => "none free".to_owned(),
            0 => format!("at most {} free on a node, {total} in total", short.format_rounded_down(largest)),
            1 => format!("only 1 node has enough, {total} free in total"),
            count => format!("only {count} nodes have enough, {total} free in total"),
        };
        let is_enough = sum >= self.request.total(requested);
        let reason = if is_enough { Reason::Fragmented } else { Reason::InsufficientCapacity };
        let (name, requested, nodes) = (short.name(), short.format_rounded_up(requested), self.nodes_text());
        Explanation { reason, message: format!("Insufficient {name}: requires {requested} on {nodes}; {cause}.") }
    }

    /// There is enough of each resource, but not on the same nodes.
    fn fragmentation_cause(&self) -> String {
        let fitting = self.schedulable_nodes().filter(|(_, info)| info.free.fits(&self.request.per_node));
        match largest_domain(fitting) {
            0 => "No single node has all requested resources free.".to_owned(),
            1 => "Only 1 node has all requested resources free.".to_owned(),
            count => format!("Only {count} matching nodes have all requested resources free."),
        }
    }

    fn unsatisfiable_cause(&self) -> (Option<ResourceKind<'_>>, String) {
        if self.matching_nodes().next().is_none() {
            return (None, self.no_match_cause());
        }
        let large_enough = || self.matching_nodes().filter(|(fit, _)| fit.fits_empty);
        let excluded = self.on_request_nodes_text();
        let cause = match largest_domain(large_enough()) {
            0 if large_enough().next().is_none() => return self.too_small_cause(),
            0 => {
                let label = self.request.topology_label().unwrap_or_default();
                format!("No node that is large enough has the label {label}{excluded}.")
            }
            1 => format!("Only 1 node is large enough{excluded}."),
            count => format!("Only {count} matching nodes are large enough{excluded}."),
        };
        (None, cause)
    }

    fn on_request_nodes_text(&self) -> &'static str {
        let selector = &self.request.selector;
        let mut on_request = self.state.nodes().filter(|node| {
            node_match::has_labels(&node.labels, selector) && !node_match::is_selected(&node.labels, selector)
        });
        if on_request.next().is_some() { " (on-request nodes not counted)" } else { "" }
    }

    /// No node is large enough, even when empty.
    fn too_small_cause(&self) -> (Option<ResourceKind<'_>>, String) {
        let largest = |kind: ResourceKind<'_>| {
            let all = self.matching_nodes().map(|(_, info)| kind.amount(&info.node.capacity));
            all.max().unwrap_or_default()
        };
        let matching = if self.request.selector.is_empty() { "" } else { " with the requested labels" };
        let excluded = self.on_request_nodes_text();
        let mut kinds = ResourceKind::requested(self.request);
        let short = kinds.find(|kind| largest(*kind) < kind.amount(&self.request.per_node));
        let cause = match short.map(|short| (short, largest(short))) {
            None => format!("No node{matching} has all requested resources{excluded}."),
            Some((short @ (ResourceKind::Device(_) | ResourceKind::Volumes(_)), ..=0)) => {
                format!("No node{matching} provides {}{excluded}.", short.name())
            }
            Some((short, largest)) => {
                let largest = short.format_rounded_down(largest);
                format!("No node{matching} has more than {largest} {}{excluded}.", short.name())
            }
        };
        (short, cause)
    }

    /// Returns the first constraint that no node matches.
    fn no_match_cause(&self) -> String {
        let selector = &self.request.selector;
        let labelled = || self.state.nodes().filter(|node| node_match::has_labels(&node.labels, selector));
        let mut selected = labelled().filter(|node| node_match::is_selected(&node.labels, selector)).peekable();
        if self.state.nodes().next().is_none() {
            "The cluster has no nodes.".to_owned()
        } else if labelled().next().is_none() {
            let labels: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("No node has the requested labels ({}).", labels.join(", "))
        } else if selected.peek().is_none() {
            let labels: BTreeSet<&str> =
                labelled().flat_map(|node| node_match::unselected_on_request_labels(&node.labels, selector)).collect();
            let labels: Vec<&str> = labels.into_iter().collect();
            let labels = labels.join(", ");
            format!(
                "All matching nodes are on-request nodes. Request the label {labels} in scheduling.nodeLabels to use them."
            )
        } else if selected.any(|node| node_match::matches_volumes(self.request, &node.labels)) {
            "All matching nodes have a taint that the flavor does not tolerate.".to_owned()
        } else {
            "No matching node satisfies the node affinity of all volumes.".to_owned()
        }
    }

    /// ` The home is on node n1.`, if its volume restricts the nodes.
    fn home_location(&self) -> String {
        let Some(affinity) = &self.request.home_affinity else { return String::new() };
        let (usable, others): (Vec<_>, Vec<_>) = self.state.nodes().partition(|node| affinity.matches(&node.labels));
        match (usable.as_slice(), others.is_empty()) {
            ([node], false) => format!(" The home is on node {}.", node.name),
            (_, false) => {
                affinity.describe().map_or_else(String::new, |nodes| format!(" The home is on nodes with {nodes}."))
            }
            (_, true) => String::new(),
        }
    }

    /// `one node`, or `each of 2 nodes with the same zone`.
    fn nodes_text(&self) -> String {
        let nodes = match self.request.nodes() {
            1 => "one node".to_owned(),
            count => format!("each of {count} nodes"),
        };
        let topology = self.request.topology_label();
        nodes + &topology.map_or_else(String::new, |label| format!(" with the same {label}"))
    }

    /// `Requires 4 nvidia.com/gpu on one node. <cause>`
    fn requires(&self, short: Option<ResourceKind<'_>>, cause: &str) -> String {
        format!("Requires {} on {}. {cause}", request_text(self.request, short), self.nodes_text())
    }
}

/// Returns the number of nodes in the largest topology domain.
fn largest_domain<'a>(nodes: impl Iterator<Item = (&'a NodeFit, &'a NodeInfo)>) -> usize {
    let mut domains: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (fit, _) in nodes {
        if let Some(domain) = &fit.domain {
            *domains.entry(domain.clone()).or_default() += 1;
        }
    }
    domains.into_values().max().unwrap_or_default()
}

/// Describes the request on each node: its devices, or CPU and memory if it has none, and the resource that is short.
fn request_text(request: &Request, short: Option<ResourceKind<'_>>) -> String {
    let text = |kind: ResourceKind<'_>| kind.request_text(kind.amount(&request.per_node));
    let kinds = ResourceKind::requested(request);
    let mut shown: Vec<_> = kinds.filter(|kind| matches!(kind, ResourceKind::Device(_))).collect();
    if shown.is_empty() {
        shown = vec![ResourceKind::Cpu, ResourceKind::Memory];
    }
    let main = shown.iter().map(|kind| text(*kind)).collect::<Vec<_>>().join(" and ");
    match short.filter(|short| !shown.contains(short)) {
        Some(short) => format!("{main} with {}", text(short)),
        None => main,
    }
}
