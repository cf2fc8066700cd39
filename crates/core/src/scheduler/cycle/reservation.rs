//! Reservations: found, held against later servers, and released.

use std::collections::BTreeMap;

use super::{Evaluation, SchedulingCycle};
use crate::scheduler::plan::PendingReason;
use crate::scheduler::policy::Backfill;
use crate::scheduler::state::arena::{NodeIdx, ServerIdx};
use crate::scheduler::timeline::Window;

/// Nodes and quotas move a start to later times until both allow it. Each step is the end of a server or reservation, so
/// the search ends; this bounds it for extreme inputs.
pub(crate) const MAX_START_SEARCH_STEPS: usize = 10_000;

/// A planned start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub start: i64,
    pub end: i64,
    pub nodes: Vec<NodeIdx>,
}

impl SchedulingCycle<'_> {
    /// Reports whether a server gets a reservation: within the reservation depth, or if it had one before other servers
    /// were queued ahead of it. Bookings always have one, also when they are due.
    pub(super) fn gets_reservation(&self, server: ServerIdx, reservations: usize) -> bool {
        let is_booking = self.state.entry(server).is_some_and(|entry| entry.server.is_booking());
        let had_one = self.policy.backfill == Backfill::Conservative && self.previous_reservation(server).is_some();
        is_booking || reservations < self.policy.max_reservations() || had_one
    }

    /// Reserves what a server waits for, or returns a preemption with which it starts earlier.
    pub(super) fn reserve_or_preempt(
        &mut self,
        server: ServerIdx,
        duration: i64,
        reservations: usize,
        reason: PendingReason,
    ) -> Evaluation {
        let gets_reservation = self.gets_reservation(server, reservations);
        let window = Window { start: self.now, duration };
        let found = if gets_reservation { self.find_reservation(server, window) } else { None };
        let is_backfill_enabled = self.policy.backfill != Backfill::Disabled;
        if is_backfill_enabled && !gets_reservation {
            return Evaluation::pending(reason, None);
        }
        if is_backfill_enabled {
            let planned_start = found.as_ref().map(|reservation| reservation.start);
            if self.attempt.budget.allows_preemption()
                && let Some(preemption) = self.try_preempt(server, duration, planned_start)
            {
                return Evaluation::Preempt(preemption);
            }
            self.attempt.budget.charge_preemption();
        }
        // A server that is beyond the reservation depth and lost its reservation does not hold nodes.
        if found.is_none() && (!is_backfill_enabled || reservations < self.policy.max_reservations()) {
            self.hold_nodes_and_quota(server);
        }
        Evaluation::pending(reason, found.map(|reservation| self.reserve(server, reservation)))
    }

    /// Reserves the earliest start not before that of `earliest`.
    pub(super) fn reserve_earliest(&mut self, server: ServerIdx, earliest: Window) -> Option<i64> {
        let reservation = self.find_reservation(server, earliest)?;
        Some(self.reserve(server, reservation))
    }

    /// Holds nodes and quota against all servers that are evaluated later. Returns the start.
    pub(super) fn reserve(&mut self, server: ServerIdx, reservation: Reservation) -> i64 {
        let start = reservation.start;
        let Some(entry) = self.state.entry(server) else { return start };
        for node in &reservation.nodes {
            let Some(info) = self.state.node(*node) else { continue };
            let timeline = self.attempt.node_reservations.entry(*node).or_insert_with(|| info.availability());
            timeline.update(start, reservation.end, |free| free.saturating_sub_assign(&entry.server.request.per_node));
        }
        self.attempt.ledger.reserve(self.state, server, entry, &reservation);
        self.attempt.reservations.insert(server, reservation);
        start
    }

    /// Releases the reservation of a server and returns it.
    pub(super) fn unreserve(&mut self, server: ServerIdx) -> Option<Reservation> {
        let (reservation, entry) = (self.attempt.reservations.remove(&server)?, self.state.entry(server)?);
        for node in &reservation.nodes {
            if let Some(timeline) = self.attempt.node_reservations.get_mut(node) {
                timeline.update(reservation.start, reservation.end, |free| {
                    free.saturating_add_assign(&entry.server.request.per_node);
                });
            }
        }
        self.attempt.ledger.unreserve(self.state, server, entry, &reservation);
        Some(reservation)
    }

    /// Finds the earliest start that both nodes and quotas allow. Keeps the nodes of the previous reservation if the start
    /// is the same, so that servers behind it are not moved needlessly.
    fn find_reservation(&mut self, server: ServerIdx, earliest: Window) -> Option<Reservation> {
        let entry = self.state.entry(server)?;
        // A server that fits now was assigned nodes; one that is excluded from this cycle may start in the next.
        let first_start = self.now.saturating_add(i64::from(!entry.server.is_booking()));
        let mut from = earliest.starting_at(earliest.start.max(first_start));
        for _ in 0..MAX_START_SEARCH_STEPS {
            let allowed = self.attempt.ledger.earliest_start(self.state, server, entry, from)?;
            let mut found = self.find_earliest_start(entry, from.starting_at(allowed))?;
            from.start = found.start;
            if self.attempt.ledger.earliest_start(self.state, server, entry, from)? == found.start {
                if let Some(nodes) = self.reserved_nodes_at(server, from) {
                    found.nodes = nodes;
                }
                return Some(found);
            }
        }
        None
    }

    /// Holds all nodes a server waits for, because its start is unknown. With the nodes it holds quota, so that other
    /// servers of the account cannot make the held nodes useless.
    fn hold_nodes_and_quota(&mut self, server: ServerIdx) {
        let Some(entry) = self.state.entry(server) else { return };
        let Some(class) = self.state.request_class(entry) else { return };
        let needed = entry.server.request.nodes();
        let mut domains: BTreeMap<_, Vec<NodeIdx>> = BTreeMap::new();
        let fits = class.node_fits().filter(|(_, fit)| fit.fits_without_servers);
        for (node, fit) in fits.filter(|(node, _)| !self.state.is_rejected_by(entry, *node)) {
            if let Some(domain) = &fit.domain {
                domains.entry(domain.clone()).or_default().push(node);
            }
        }
        let nodes: Vec<NodeIdx> = domains.into_values().filter(|nodes| nodes.len() >= needed).flatten().collect();
        if !nodes.is_empty() {
            let unbounded = Reservation { start: self.now, end: i64::MAX, nodes: Vec::new() };
            self.attempt.ledger.reserve(self.state, server, entry, &unbounded);
        }
        self.attempt.node_holds.insert(server, nodes);
    }
}
