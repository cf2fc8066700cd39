//! The history of the Lease as observed by one candidate.

use std::time::{Duration, Instant};

use super::RENEW_DEADLINE;
use crate::dynamic_api::REQUEST_TIMEOUT;

/// A leader writes nothing later than this after its last renewal.
const MAX_WRITE_DELAY: Duration = RENEW_DEADLINE.saturating_add(REQUEST_TIMEOUT);

#[derive(Debug, Default)]
pub struct Observed {
    /// The version of the Lease, `None` if it does not exist, and since when.
    state: Option<(Option<String>, Instant)>,
    /// The highest epoch observed anywhere.
    epoch: i64,
}

impl Observed {
    pub fn observe_version(&mut self, version: Option<&str>, now: Instant) {
        let unchanged = self.state.as_ref().is_some_and(|(previous, _)| previous.as_deref() == version);
        if !unchanged {
            self.state = Some((version.map(str::to_owned), now));
        }
    }

    pub fn observe_epoch(&mut self, epoch: i64) {
        self.epoch = self.epoch.max(epoch);
    }

    /// Returns the epoch of the next leader.
    pub const fn next_epoch(&self) -> i64 {
        self.epoch.saturating_add(1)
    }

    /// Returns how much of `duration` remains since the last change.
    pub fn remaining(&self, duration: Duration, now: Instant) -> Duration {
        self.state
            .as_ref()
            .map_or(duration, |(_, since)| duration.saturating_sub(now.saturating_duration_since(*since)))
    }

    /// Returns how long the previous leader may still write after the Lease was deleted; it may not have noticed yet.
    /// Zero if there was no leader.
    pub fn remaining_after_deletion(&self, now: Instant) -> Duration {
        if self.epoch > 0 { self.remaining(MAX_WRITE_DELAY, now) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LEASE_DURATION, RETRY_PERIOD};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lease_duration_counts_from_last_change() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        observed.observe_version(Some("1"), start);
        observed.observe_version(Some("1"), start + 10 * SECOND);
        assert_eq!(observed.remaining(LEASE_DURATION, start + 10 * SECOND), 5 * SECOND);
        observed.observe_version(Some("2"), start + 11 * SECOND);
        assert_eq!(observed.remaining(LEASE_DURATION, start + 11 * SECOND), LEASE_DURATION);
        assert_eq!(observed.remaining(LEASE_DURATION, start + 60 * SECOND), Duration::ZERO);
    }

    #[test]
    fn epoch_never_decreases() {
        let mut observed = Observed::default();
        assert_eq!(observed.next_epoch(), 1);
        for (observed_epoch, next) in [(5, 6), (3, 6), (9, 10), (0, 10), (i64::MAX, i64::MAX)] {
            observed.observe_epoch(observed_epoch);
            assert_eq!(observed.next_epoch(), next);
        }
    }

    #[test]
    fn deleted_lease_is_acquired_after_last_possible_write() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        observed.observe_version(None, start);
        assert_eq!(observed.remaining_after_deletion(start), Duration::ZERO);
        observed.observe_epoch(1);
        // Counts from the deletion, not from the last observed version: the Lease may have been renewed in between.
        observed.observe_version(Some("1"), start);
        observed.observe_version(None, start + SECOND);
        assert_eq!(observed.remaining_after_deletion(start + SECOND), MAX_WRITE_DELAY);
        assert_eq!(observed.remaining_after_deletion(start + SECOND + MAX_WRITE_DELAY), Duration::ZERO);
        assert!(RETRY_PERIOD + MAX_WRITE_DELAY < LEASE_DURATION + RETRY_PERIOD);
    }
}
