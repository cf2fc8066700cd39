//! The order of the queue: one total order. A server that goes before one that was queued earlier does so by a named
//! [`Precedence`].

use std::cmp::Reverse;

use odc_api::v1alpha1::Priority;
use serde::{Deserialize, Serialize};

use super::cycle::quota::AccountId;
use super::event::Server;
use super::plan::PendingReason;
use super::state::Entry;
use super::{ClusterState, Policy};

/// The sort key of a pending server. The first field that differs is the precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey<'a> {
    /// Confirmed bookings first.
    is_unconfirmed: bool,
    /// Higher priority first. It rises with the time in the queue, so that no server starves.
    priority: Reverse<i64>,
    /// Lower usage per weight first.
    team_share: i64,
    user_share: i64,
    arrival: ArrivalKey<'a>,
}

/// Sorts servers by arrival. The order is total, so that results are reproducible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ArrivalKey<'a> {
    queued_at: i64,
    name: &'a str,
    id: &'a str,
}

/// Why a server starts before one that was queued earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Precedence {
    Priority,
    FairShare,
    /// The earlier server exceeds a quota, or has lower precedence for borrowed quota.
    Quota,
    /// It delays no reservation. This includes bookings: they are confirmed only if they delay no earlier server.
    Backfill,
}

/// Decayed usage per weight, in units of [`Policy::fair_share_resolution`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FairShares {
    pub team: i64,
    pub user: i64,
}

impl FairShares {
    /// Takes the shares of a server's accounts. A user without a team is a team of one.
    pub fn new(entry: &Entry, share: impl Fn(AccountId) -> i64) -> Self {
        let user = share(AccountId::User(entry.user));
        Self { team: entry.team.map_or(user, |team| share(AccountId::Team(team))), user }
    }
}

impl<'a> QueueKey<'a> {
    pub fn new(server: &'a Server, shares: FairShares, policy: &Policy, now: i64) -> Self {
        let priority = match server.priority {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        };
        let age = now.saturating_sub(server.queued_at).max(0);
        Self {
            is_unconfirmed: !server.booking_confirmed,
            priority: Reverse(priority + age / policy.priority_aging_interval.max(1)),
            team_share: shares.team,
            user_share: shares.user,
            arrival: ArrivalKey::new(server),
        }
    }

    /// Returns why this goes before a server that was queued earlier; `None` if it does not.
    pub fn precedence_over(&self, earlier: &Self) -> Option<Precedence> {
        if self > earlier {
            None
        } else if self.is_unconfirmed != earlier.is_unconfirmed {
            Some(Precedence::Backfill)
        } else if self.priority != earlier.priority {
            Some(Precedence::Priority)
        } else {
            Some(Precedence::FairShare)
        }
    }
}

impl<'a> ArrivalKey<'a> {
    pub fn new(server: &'a Server) -> Self {
        Self { queued_at: server.queued_at, name: &server.name, id: &server.id }
    }
}

impl ClusterState {
    /// Returns the precedence by which `late` starts now while `early`, which was queued before it and could use the same
    /// nodes, is pending for `reason`. `None` if `early` could not start anyway.
    pub fn precedence(
        &self,
        late: &str,
        early: &str,
        reason: &PendingReason,
        policy: &Policy,
        now: i64,
    ) -> Option<Precedence> {
        if *reason == PendingReason::Unsatisfiable || !self.server(early)?.is_due(now) {
            return None;
        }
        let (late, early) = (self.queue_key(late, policy, now)?, self.queue_key(early, policy, now)?);
        Some(late.precedence_over(&early).unwrap_or(if matches!(reason, PendingReason::Quota(_)) {
            Precedence::Quota
        } else {
            Precedence::Backfill
        }))
    }

    fn queue_key(&self, id: &str, policy: &Policy, now: i64) -> Option<QueueKey<'_>> {
        let entry = self.find_entry(id)?;
        let share = |id: AccountId| self.account(id).map_or(0, |account| account.fair_share(policy, now));
        Some(QueueKey::new(&entry.server, FairShares::new(entry, share), policy, now))
    }

    /// Reports whether two pending servers could ever use the same node.
    pub fn compete_for_nodes(&self, one: &str, other: &str) -> bool {
        let class = |id: &str| self.find_entry(id).and_then(|entry| self.request_class(entry));
        let (Some(one), Some(other)) = (class(one), class(other)) else { return false };
        let fits_both = |node| other.node_fit(node).is_some_and(|fit| fit.fits_empty);
        std::ptr::eq(one, other) || one.node_fits().any(|(node, fit)| fit.fits_empty && fits_both(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixtures::server;

    const DAY: i64 = 24 * 3_600;

    fn key(server: &Server, team: i64, user: i64, now: i64) -> QueueKey<'_> {
        QueueKey::new(server, FairShares { team, user }, &Policy::default(), now)
    }

    #[test]
    fn order_is_priority_then_share_then_age() {
        let early = server("early", 0);
        let urgent = Server { priority: Priority::High, ..server("urgent", 50) };
        let late = server("late", 60);
        let precedence = |one: &QueueKey<'_>, other: &QueueKey<'_>| one.precedence_over(other);
        let base = key(&early, 5, 5, 100);
        assert_eq!(precedence(&key(&urgent, 9, 9, 100), &base), Some(Precedence::Priority));
        assert_eq!(precedence(&key(&late, 4, 9, 100), &base), Some(Precedence::FairShare));
        assert_eq!(precedence(&key(&late, 5, 4, 100), &base), Some(Precedence::FairShare));
        assert_eq!(precedence(&key(&late, 5, 5, 100), &base), None);
        let booked = Server { booking_confirmed: true, ..server("booked", 70) };
        assert_eq!(precedence(&key(&booked, 9, 9, 100), &key(&urgent, 0, 0, 100)), Some(Precedence::Backfill));
    }

    #[test]
    fn high_priority_server_queued_three_days_later_stays_behind_low_priority() {
        let low = Server { priority: Priority::Low, ..server("low", 0) };
        let high = Server { priority: Priority::High, ..server("high", 3 * DAY) };
        for now in (3 * DAY..9 * DAY).step_by(3_600) {
            let (low, high) = (key(&low, i64::MAX, i64::MAX, now), key(&high, 0, 0, now));
            assert!(low < high, "after {now} s");
        }
    }
}
