//! Whose turn it is: one total order. Whoever comes before somebody who asked earlier does so by a right that has a name.

use odc_api::v1alpha1::Priority;
use serde::{Deserialize, Serialize};

use super::Policy;
use super::event::Server;

/// A place in the order. The field that differs first is the right by which one comes before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn<'a> {
    /// Who was promised a time comes before those who were not.
    unbooked: bool,
    /// Higher priority first. It rises with the time somebody waits, so nobody waits for ever.
    level: std::cmp::Reverse<i64>,
    /// Who used less lately, for their weight: first the team, then the user.
    team: i64,
    user: i64,
    arrival: Arrival<'a>,
}

/// A place in the order of arrival. Total, so that results repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival<'a> {
    queued: i64,
    name: &'a str,
    id: &'a str,
}

/// Why somebody started before somebody who asked earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Right {
    Priority,
    FairShare,
    /// The other one is held up by a quota, or has less claim to quota that is lent.
    Quota,
    /// It delays nobody's planned start. That is also the right of a booking: its time was promised only where that
    /// delays nobody who asked earlier.
    Backfill,
}

/// What a team and a user used, in steps that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    pub team: i64,
    pub user: i64,
}

impl<'a> Turn<'a> {
    pub fn of(server: &'a Server, shares: Shares, policy: &Policy, now: i64) -> Self {
        let rank = match server.priority {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        };
        let waited = now.saturating_sub(server.queued).max(0);
        Self {
            unbooked: !server.booked,
            level: std::cmp::Reverse(rank + waited / policy.ageing.max(1)),
            team: shares.team,
            user: shares.user,
            arrival: Arrival::of(server),
        }
    }

    /// By which right this comes before one that asked earlier; nothing if it comes after it.
    pub fn right_before(&self, earlier: &Self) -> Option<Right> {
        if self > earlier {
            None
        } else if self.unbooked != earlier.unbooked {
            Some(Right::Backfill)
        } else if self.level != earlier.level {
            Some(Right::Priority)
        } else {
            Some(Right::FairShare)
        }
    }
}

impl<'a> Arrival<'a> {
    pub fn of(server: &'a Server) -> Self {
        Self { queued: server.queued, name: &server.name, id: &server.id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixtures::server;

    const DAY: i64 = 24 * 3_600;

    fn turn(server: &Server, team: i64, user: i64, now: i64) -> Turn<'_> {
        Turn::of(server, Shares { team, user }, &Policy::default(), now)
    }

    #[test]
    fn priority_comes_before_share_and_share_before_age() {
        let early = server("early", 0);
        let urgent = Server { priority: Priority::High, ..server("urgent", 50) };
        let late = server("late", 60);
        let right = |one: &Turn<'_>, two: &Turn<'_>| one.right_before(two);
        let base = turn(&early, 5, 5, 100);
        assert_eq!(right(&turn(&urgent, 9, 9, 100), &base), Some(Right::Priority));
        assert_eq!(right(&turn(&late, 4, 9, 100), &base), Some(Right::FairShare));
        assert_eq!(right(&turn(&late, 5, 4, 100), &base), Some(Right::FairShare));
        assert_eq!(right(&turn(&late, 5, 5, 100), &base), None);
        let booked = Server { booked: true, ..server("booked", 70) };
        assert_eq!(right(&turn(&booked, 9, 9, 100), &turn(&urgent, 0, 0, 100)), Some(Right::Backfill));
    }

    #[test]
    fn nobody_who_comes_three_days_later_gets_before_the_lowest() {
        let low = Server { priority: Priority::Low, ..server("low", 0) };
        let high = Server { priority: Priority::High, ..server("high", 3 * DAY) };
        for now in (3 * DAY..9 * DAY).step_by(3_600) {
            let (low, high) = (turn(&low, i64::MAX, i64::MAX, now), turn(&high, 0, 0, now));
            assert!(low < high, "after {now} s");
        }
    }
}
