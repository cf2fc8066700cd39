//! Borrowing of idle quota: after all other assignments, and only by servers from which it can be reclaimed.

use super::placement::{NodeSelection, ReservationUse};
use super::quota::violation::{QuotaResource, QuotaViolation};
use super::quota::{AccountId, QuotaLedger};
use super::{AssumedAssignment, Pending, SchedulingCycle};
use crate::scheduler::ClusterState;
use crate::scheduler::plan::PendingReason;
use crate::scheduler::state::Entry;
use crate::scheduler::state::arena::ServerIdx;
use crate::scheduler::timeline::Window;

impl SchedulingCycle<'_> {
    /// Assigns nodes to servers that only exceed the quota of their team, with quota that other teams leave idle.
    pub(super) fn admit_borrowing(&mut self, results: &[Option<Pending>]) {
        let exceeds_quota = |(server, result): (&ServerIdx, &Option<Pending>)| {
            let reason = &result.as_ref()?.reason;
            matches!(reason, PendingReason::Quota(_)).then_some(*server)
        };
        let servers: Vec<ServerIdx> = self.order.iter().zip(results).filter_map(exceeds_quota).collect();
        for server in servers {
            if !self.state.entry(server).is_some_and(|entry| self.is_reclaimable(entry)) {
                continue;
            }
            // A server that borrows now does not need its reservation.
            let reservation = self.unreserve(server);
            if let Some(NodeSelection { nodes, placement }) = self.nodes_with_borrowing(server) {
                self.assign(AssumedAssignment { server, nodes, placement, backfilled: true, borrowed: true });
            } else if let Some(reservation) = reservation {
                self.reserve(server, reservation);
            }
        }
    }

    /// Reports whether a server could start now and be preempted later. A server that was preempted too often is exempt, so
    /// quota that it borrows could not be reclaimed.
    fn is_reclaimable(&self, entry: &Entry) -> bool {
        let server = &entry.server;
        server.preemptible
            && server.preemptions < self.policy.max_preemptions
            && !server.excluded_this_cycle
            && server.is_due(self.now)
    }

    /// Finds nodes for a server that borrows the quota its team lacks.
    fn nodes_with_borrowing(&self, server: ServerIdx) -> Option<NodeSelection> {
        let entry = self.state.entry(server)?;
        let window = Window { start: self.now, duration: entry.server.hold_time() };
        let ledger = &self.attempt.ledger;
        let mut borrowed: Vec<QuotaViolation> = Vec::new();
        // Each exceeded resource must be borrowable. Earlier servers may have borrowed since the attempt.
        while let Some(violation) = ledger.violation(self.state, server, entry, window, &borrowed) {
            let is_repeated = borrowed.iter().any(|known| known.resource == violation.resource);
            if is_repeated || !ledger.can_borrow(self.state, &violation) {
                return None;
            }
            borrowed.push(violation);
        }
        if borrowed.is_empty() { None } else { self.find_nodes(entry, window.duration, ReservationUse::Respect) }
    }
}

impl QuotaLedger {
    /// Reports whether a team may borrow what it lacks: up to its borrowing limit, from the unused quota of other teams for
    /// the same resource.
    fn can_borrow(&self, state: &ClusterState, violation: &QuotaViolation) -> bool {
        let QuotaViolation { resource, used, requested, limit, .. } = violation;
        let AccountId::Team(team) = violation.account else { return false };
        let (excess, borrowing_limit) =
            (used + requested - limit, state.teams.get(team).and_then(|account| account.spec.borrowing_limit));
        let is_allowed = match resource {
            // The number of servers is not a resource that is idle elsewhere.
            QuotaResource::Servers => false,
            QuotaResource::Devices | QuotaResource::Flavor(_) => {
                borrowing_limit.is_none_or(|limit| excess <= i128::from(limit))
            }
            // The borrowing limit counts devices; 0 forbids all borrowing.
            QuotaResource::Cpu | QuotaResource::Memory => borrowing_limit.is_none_or(|limit| limit > 0),
        };
        if !is_allowed {
            return false;
        }
        let (mut idle, mut borrowed) = (0_i128, 0_i128);
        for (other, account) in state.teams.iter().filter(|(other, _)| *other != team) {
            let Some(limit) = resource.limit(&account.spec.limits) else { continue };
            let unused =
                limit - account.usage.amount(resource) - self.assigned_amount(AccountId::Team(other), resource);
            if unused > 0 { idle += unused } else { borrowed -= unused }
        }
        excess <= idle - borrowed
    }
}

#[cfg(test)]
mod tests {
    use crate::scheduler::event::{AccountSpec, Event, Limits, Node, Server};
    use crate::scheduler::fixtures::server;
    use crate::scheduler::{ClusterState, Policy};

    #[test]
    fn server_exempt_from_preemption_does_not_borrow() {
        let policy = Policy::default();
        for (preemptions, borrows) in [(policy.max_preemptions - 1, true), (policy.max_preemptions, false)] {
            let mut state = ClusterState::new();
            let mut apply = |event| state.apply(event, policy.usage_half_life, 0);
            let server = Server { team: Some("poor".into()), preemptible: true, preemptions, ..server("s", 0) };
            let capacity = server.request.per_node.clone();
            apply(Event::Node(Node { name: "n1".into(), capacity, ..Node::default() }));
            for (name, devices) in [("poor", 0), ("rich", 8)] {
                let limits = Limits { devices: Some(devices), ..Limits::default() };
                apply(Event::Team(AccountSpec { name: name.into(), limits, ..AccountSpec::default() }));
            }
            apply(Event::Server(Box::new(server)));
            let plan = state.plan(&policy, 0);
            let borrowed: Vec<bool> = plan.assignments.iter().map(|assignment| assignment.borrowed).collect();
            assert_eq!(borrowed, vec![true; borrows.into()]);
        }
    }
}
