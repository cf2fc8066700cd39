//! Node selection: all nodes a server needs or none, distinct, and in one topology domain.

use std::sync::Arc;

use super::SchedulingCycle;
use super::reservation::Reservation;
use crate::resources::Resources;
use crate::scheduler::event::NodeState;
use crate::scheduler::plan::Placement;
use crate::scheduler::state::Entry;
use crate::scheduler::state::arena::{NodeIdx, ServerIdx};
use crate::scheduler::state::node::IMMEDIATELY;
use crate::scheduler::state::request_class::{NodeFit, NodeScore, RequestClass, TopologyDomain};
use crate::scheduler::timeline::{Timeline, Window};

/// The nodes for a server that starts now.
pub(super) struct NodeSelection {
    pub nodes: Vec<NodeIdx>,
    pub placement: Placement,
}

/// Whether a server may use what is reserved for other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReservationUse {
    Respect,
    Ignore,
}

impl SchedulingCycle<'_> {
    /// Finds nodes to start on now for `duration`.
    pub(super) fn find_nodes(
        &self,
        entry: &Entry,
        duration: i64,
        reservations: ReservationUse,
    ) -> Option<NodeSelection> {
        let class = self.state.request_class(entry)?;
        let needed = class.request.nodes();
        let window = Window { start: self.now, duration };
        let is_usable = |node: NodeIdx| {
            (reservations == ReservationUse::Ignore || self.fits_reservations(class, node, window))
                && !self.state.is_rejected_by(entry, node)
        };
        // The smallest domain that has enough nodes, so that large ones stay free for large gangs.
        let mut domains: Vec<(&Arc<str>, &TopologyDomain)> =
            class.domains.iter().filter(|(_, domain)| domain.available_now >= needed).collect();
        domains.sort_by_key(|(value, domain)| (domain.available_now, *value));
        domains.into_iter().find_map(|(_, domain)| {
            let available = domain.nodes.iter().take_while(|ranked| ranked.available_from == IMMEDIATELY);
            let usable = available.map(|ranked| ranked.node).filter(|node| is_usable(*node));
            let nodes: Vec<NodeIdx> = usable.take(needed).collect();
            (nodes.len() == needed).then(|| {
                let placement = self.placement(class, &nodes);
                NodeSelection { nodes, placement }
            })
        })
    }

    /// Reports whether a request fits on a node without overlapping holds and reservations. What is used now is not
    /// considered for nodes without reservations.
    fn fits_reservations(&self, class: &RequestClass, node: NodeIdx, window: Window) -> bool {
        let fits = |timeline: &Timeline<Resources>| {
            timeline.first_violation(window, |free| free.fits(&class.request.per_node)).is_none()
        };
        !self.attempt.node_holds.contains(node) && self.attempt.node_reservations.get(&node).is_none_or(fits)
    }

    /// Returns the nodes of a reservation that starts now, if they are still usable.
    pub(super) fn reserved_nodes_now(&self, server: ServerIdx, entry: &Entry, duration: i64) -> Option<NodeSelection> {
        let reservation = self.previous_reservation(server).filter(|reservation| reservation.start <= self.now)?;
        let class = self.state.request_class(entry)?;
        let window = Window { start: self.now, duration };
        let nodes = self.usable_nodes(reservation, entry, class, window, |_, time| time == IMMEDIATELY)?;
        Some(NodeSelection { nodes: nodes.to_vec(), placement: self.placement(class, nodes) })
    }

    /// Returns the nodes of a reservation with the start of a window, if they are still usable then.
    pub(super) fn reserved_nodes_at(&self, server: ServerIdx, window: Window) -> Option<Vec<NodeIdx>> {
        let reservation = self.previous_reservation(server).filter(|reservation| reservation.start == window.start)?;
        let entry = self.state.entry(server)?;
        let class = self.state.request_class(entry)?;
        let is_available = |node, time| time <= window.start && self.is_expected_back(node);
        self.usable_nodes(reservation, entry, class, window, is_available).map(<[NodeIdx]>::to_vec)
    }

    /// Returns the nodes of a reservation if all are usable. `is_available` gets a node and the time from which on the
    /// request fits.
    fn usable_nodes<'a>(
        &self,
        reservation: &'a Reservation,
        entry: &Entry,
        class: &RequestClass,
        window: Window,
        is_available: impl Fn(NodeIdx, i64) -> bool,
    ) -> Option<&'a [NodeIdx]> {
        let is_usable = |node: &NodeIdx| {
            let available_from = class.node_fit(*node).and_then(NodeFit::available_from);
            available_from.is_some_and(|time| is_available(*node, time))
                && !self.state.is_rejected_by(entry, *node)
                && self.fits_reservations(class, *node, window)
        };
        let nodes = &reservation.nodes;
        let is_complete = nodes.len() == class.request.nodes() && in_same_domain(class, nodes);
        (is_complete && nodes.iter().all(is_usable)).then_some(nodes.as_slice())
    }

    fn placement(&self, class: &RequestClass, nodes: &[NodeIdx]) -> Placement {
        let infos = || nodes.iter().filter_map(|node| self.state.node(*node));
        let scores = || infos().map(|info| NodeScore::new(&class.request, info));
        if class.request.topology_label().is_some() {
            Placement::SmallestDomain
        } else if scores().any(|score| score.wastes_devices) {
            Placement::DeviceNode
        } else if scores().any(|score| score.empty_node) {
            Placement::EmptyNode
        } else {
            Placement::BestFit
        }
    }

    /// Finds the earliest window that overlaps no reservation, and the nodes for it.
    pub(super) fn find_earliest_start(&self, entry: &Entry, earliest: Window) -> Option<Reservation> {
        let class = self.state.request_class(entry)?;
        let needed = class.request.nodes();
        let domains = class.domains.iter().filter(|(_, domain)| domain.nodes.len() >= needed);
        let found = domains.filter_map(|(value, domain)| {
            let reservation = self.find_earliest_start_in_domain(entry, class, value, earliest)?;
            Some((domain.nodes.len(), value, reservation))
        });
        let earliest = found.min_by_key(|(size, value, reservation)| (reservation.start, *size, *value));
        earliest.map(|(_, _, reservation)| reservation)
    }

    fn find_earliest_start_in_domain(
        &self,
        entry: &Entry,
        class: &RequestClass,
        value: &Arc<str>,
        earliest: Window,
    ) -> Option<Reservation> {
        let (domain, needed, per_node) = (class.domains.get(value)?, class.request.nodes(), &class.request.per_node);
        let node_reservations = &self.attempt.node_reservations;
        let is_usable = |node: NodeIdx| {
            !self.attempt.node_holds.contains(node)
                && !self.state.is_rejected_by(entry, node)
                && self.is_expected_back(node)
        };
        // Without reservations a node stays usable once the request fits.
        let unreserved = domain.nodes.iter();
        let unreserved =
            unreserved.filter(|ranked| !node_reservations.contains_key(&ranked.node) && is_usable(ranked.node));
        // Ties are broken by name, because indices depend on history.
        let mut found: Vec<(i64, &str, NodeIdx)> = unreserved
            .take(needed)
            .map(|ranked| (ranked.available_from.max(earliest.start), &*ranked.name, ranked.node))
            .collect();
        let latest = found.get(needed - 1).map_or(i64::MAX, |(start, ..)| *start);
        for (node, timeline) in node_reservations {
            let fit = class.node_fit(*node).filter(|fit| fit.domain.as_ref() == Some(value));
            let available_from = fit.and_then(NodeFit::available_from);
            // Nodes that are available only after `latest` cannot make the start earlier.
            if available_from.is_none_or(|time| time > latest) || !is_usable(*node) {
                continue;
            }
            let start = timeline.earliest_window(earliest, |free| free.fits(per_node));
            let name = self.state.node(*node).map_or("", |info| &*info.name);
            found.extend(start.filter(|start| *start <= latest).map(|start| (start, name, *node)));
        }
        // All nodes must be free for the same window; a node that is free earlier may not be free then.
        loop {
            found.sort_unstable();
            let (start, ..) = *found.get(needed - 1)?;
            let window = earliest.starting_at(start);
            let is_violated =
                |timeline: &Timeline<Resources>| timeline.first_violation(window, |free| free.fits(per_node)).is_some();
            let violated = found
                .iter()
                .position(|(from, _, node)| *from < start && node_reservations.get(node).is_some_and(is_violated));
            let Some(violated) = violated else {
                let nodes = found.iter().take(needed).map(|(.., node)| *node).collect();
                return Some(Reservation { start, end: window.end(), nodes });
            };
            let (_, name, node) = found.swap_remove(violated);
            let timeline = node_reservations.get(&node);
            let next = timeline.and_then(|timeline| timeline.earliest_window(window, |free| free.fits(per_node)));
            found.extend(next.map(|next| (next, name, node)));
        }
    }

    /// Reports whether a node is schedulable, or expected to be.
    fn is_expected_back(&self, node: NodeIdx) -> bool {
        self.state.node(node).is_some_and(|info| match info.node.state {
            NodeState::Schedulable => true,
            NodeState::UnavailableUntil(time) => time > self.now,
            NodeState::Unschedulable => false,
        })
    }
}

fn in_same_domain(class: &RequestClass, nodes: &[NodeIdx]) -> bool {
    let domain = |node: &NodeIdx| class.node_fit(*node).and_then(|fit| fit.domain.clone());
    let first = nodes.first().and_then(domain);
    first.is_some() && nodes.iter().all(|node| domain(node) == first)
}
