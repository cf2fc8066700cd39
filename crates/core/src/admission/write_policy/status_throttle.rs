//! Rate limit for pending-status updates: not in the first second, at most every 30 s per server, at most 20 per second in
//! total, in queue order. Times are those of a monotonic clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::admission::{Action, Decision};
use crate::plan::Requeue;

/// A server must be pending for this time before its status is written.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Between two updates of a server.
const MIN_INTERVAL: Duration = Duration::from_secs(30);
const MAX_PER_SECOND: usize = 20;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default)]
pub struct StatusThrottle {
    /// Pending servers by uid.
    pending: HashMap<String, PendingUpdates>,
    /// Times of updates in the last second.
    recent: VecDeque<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct PendingUpdates {
    since: Duration,
    last_write: Option<Duration>,
}

impl PendingUpdates {
    /// Returns the time until the next update is allowed.
    fn delay(self, now: Duration) -> Duration {
        let initial = (self.since + INITIAL_DELAY).saturating_sub(now);
        let interval = self.last_write.map(|written| (written + MIN_INTERVAL).saturating_sub(now));
        initial.max(interval.unwrap_or_default())
    }
}

impl StatusThrottle {
    /// Sets the pending servers.
    pub fn set_pending(&mut self, uids: &HashSet<&str>, now: Duration) {
        self.pending.retain(|uid, _| uids.contains(uid.as_str()));
        for uid in uids {
            if !self.pending.contains_key(*uid) {
                self.pending.insert((*uid).to_owned(), PendingUpdates { since: now, last_write: None });
            }
        }
    }

    /// Returns the decisions to write now, and when to retry the others. Only pending-status updates are delayed.
    pub fn due(&mut self, decisions: Vec<Decision>, now: Duration) -> (Vec<Decision>, Requeue) {
        while self.recent.front().is_some_and(|written| *written + SECOND <= now) {
            self.recent.pop_front();
        }
        let mut requeue = Requeue::AwaitChange;
        let mut is_due = |decision: &Decision| {
            if decision.action != Action::UpdatePending {
                return true;
            }
            let own = self.pending.get(&decision.uid).map_or(Duration::ZERO, |pending| pending.delay(now));
            let oldest = if self.recent.len() < MAX_PER_SECOND { None } else { self.recent.front() };
            let total = oldest.map_or(Duration::ZERO, |oldest| (*oldest + SECOND).saturating_sub(now));
            let delay = own.max(total);
            if delay.is_zero() {
                self.recent.push_back(now);
            } else {
                requeue = requeue.earlier(Requeue::After(delay));
            }
            delay.is_zero()
        };
        let due = decisions.into_iter().filter(|decision| is_due(decision)).collect();
        (due, requeue)
    }

    /// Records a successful write. An update that was not written stays due.
    pub fn record_write(&mut self, uid: &str, now: Duration) {
        if let Some(pending) = self.pending.get_mut(uid) {
            pending.last_write = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Admission;

    use super::*;

    fn decision(number: usize, action: Action) -> Decision {
        let name = format!("s{number}");
        let uid = format!("uid-{number}");
        Decision { namespace: "dev-ada".into(), name, uid, action, admission: Admission::default() }
    }

    /// Returns a throttle with servers that are pending since time zero, and updates for them.
    fn throttle(count: usize) -> (StatusThrottle, Vec<Decision>) {
        let mut throttle = StatusThrottle::default();
        let updates: Vec<Decision> = (0..count).map(|number| decision(number, Action::UpdatePending)).collect();
        throttle.set_pending(&updates.iter().map(|update| update.uid.as_str()).collect(), Duration::ZERO);
        (throttle, updates)
    }

    fn names((due, _): &(Vec<Decision>, Requeue)) -> Vec<&str> {
        due.iter().map(|decision| decision.name.as_str()).collect()
    }

    #[test]
    fn update_is_delayed_in_first_second() {
        let (mut throttle, updates) = throttle(1);
        let (due, requeue) = throttle.due(updates.clone(), Duration::from_millis(400));
        assert_eq!((due, requeue), (vec![], Requeue::After(Duration::from_millis(600))));
        assert_eq!(names(&throttle.due(updates, Duration::from_secs(1))), ["s0"]);
    }

    #[test]
    fn server_is_updated_at_most_every_thirty_seconds() {
        let (mut throttle, updates) = throttle(1);
        assert_eq!(names(&throttle.due(updates.clone(), Duration::from_secs(5))), ["s0"]);
        // It was not written, so it stays due.
        assert_eq!(names(&throttle.due(updates.clone(), Duration::from_secs(7))), ["s0"]);
        throttle.record_write("uid-0", Duration::from_secs(7));
        let (due, requeue) = throttle.due(updates.clone(), Duration::from_secs(20));
        assert_eq!((due, requeue), (vec![], Requeue::After(Duration::from_secs(17))));
        assert_eq!(names(&throttle.due(updates, Duration::from_secs(37))), ["s0"]);
    }

    #[test]
    fn at_most_twenty_updates_per_second_in_queue_order() {
        let (mut throttle, updates) = throttle(45);
        let mut written: Vec<(Duration, String)> = Vec::new();
        for tick in 0..40_u32 {
            let now = Duration::from_millis(2_000 + u64::from(tick) * 100);
            let is_unwritten = |update: &&Decision| written.iter().all(|(_, uid)| *uid != update.uid);
            let rest: Vec<Decision> = updates.iter().filter(is_unwritten).cloned().collect();
            for decision in throttle.due(rest, now).0 {
                throttle.record_write(&decision.uid, now);
                written.push((now, decision.uid));
            }
        }
        assert_eq!(
            written.iter().map(|(_, uid)| uid).collect::<Vec<_>>(),
            updates.iter().map(|update| &update.uid).collect::<Vec<_>>()
        );
        for (from, _) in &written {
            let within = written.iter().filter(|(time, _)| (*from..*from + SECOND).contains(time)).count();
            assert!(within <= MAX_PER_SECOND, "{within} from {from:?} on");
        }
    }

    #[test]
    fn admissions_are_never_delayed() {
        let (mut throttle, _) = throttle(50);
        let admissions: Vec<Decision> = (0..50).map(|number| decision(number, Action::Admit)).collect();
        let (due, requeue) = throttle.due(admissions, Duration::ZERO);
        assert_eq!((due.len(), requeue), (50, Requeue::AwaitChange));
    }

    #[test]
    fn server_that_left_the_queue_is_forgotten() {
        let (mut throttle, updates) = throttle(1);
        throttle.record_write("uid-0", Duration::from_secs(5));
        throttle.set_pending(&HashSet::new(), Duration::from_secs(6));
        throttle.set_pending(&["uid-0"].into(), Duration::from_secs(7));
        assert_eq!(names(&throttle.due(updates, Duration::from_secs(8))), ["s0"]);
    }
}
