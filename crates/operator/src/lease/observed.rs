//! What a candidate has seen of the Lease, and what follows from it.

use std::time::{Duration, Instant};

use super::{RENEW_DEADLINE, REQUEST_LIMIT};

/// Whoever led writes nothing any more so long after its last renewal.
const OVER: Duration = RENEW_DEADLINE.saturating_add(REQUEST_LIMIT);

#[derive(Debug, Default)]
pub struct Observed {
    /// The version of the Lease, or that there is none, and since when that is so.
    state: Option<(Option<String>, Instant)>,
    /// The highest number of a leader that was seen anywhere.
    epoch: i64,
}

impl Observed {
    /// How it is now.
    pub fn note(&mut self, version: Option<&str>, now: Instant) {
        let same = self.state.as_ref().is_some_and(|(before, _)| before.as_deref() == version);
        if !same {
            self.state = Some((version.map(str::to_owned), now));
        }
    }

    /// Somebody led by this number once.
    pub fn led(&mut self, epoch: i64) {
        self.epoch = self.epoch.max(epoch);
    }

    /// The number of the next leader.
    pub const fn next(&self) -> i64 {
        self.epoch.saturating_add(1)
    }

    /// How long it is not as it is for so long.
    pub fn left(&self, duration: Duration, now: Instant) -> Duration {
        self.state
            .as_ref()
            .map_or(duration, |(_, since)| duration.saturating_sub(now.saturating_duration_since(*since)))
    }

    /// How long whoever led may still write after the Lease was deleted, of which it perhaps knows nothing yet. Nobody has
    /// to be waited for where nobody ever led.
    pub fn left_without(&self, now: Instant) -> Duration {
        if self.epoch > 0 { self.left(OVER, now) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DURATION, RETRY};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_holder_has_its_time_from_the_last_change_on() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        observed.note(Some("1"), start);
        observed.note(Some("1"), start + 10 * SECOND);
        assert_eq!(observed.left(DURATION, start + 10 * SECOND), 5 * SECOND);
        observed.note(Some("2"), start + 11 * SECOND);
        assert_eq!(observed.left(DURATION, start + 11 * SECOND), DURATION);
        assert_eq!(observed.left(DURATION, start + 60 * SECOND), Duration::ZERO);
    }

    #[test]
    fn numbers_only_grow() {
        let mut observed = Observed::default();
        assert_eq!(observed.next(), 1);
        for (seen, next) in [(5, 6), (3, 6), (9, 10), (0, 10), (i64::MAX, i64::MAX)] {
            observed.led(seen);
            assert_eq!(observed.next(), next);
        }
    }

    #[test]
    fn a_leader_whose_lease_was_deleted_is_waited_for_and_not_for_too_long() {
        let (mut observed, start) = (Observed::default(), Instant::now());
        observed.note(None, start);
        assert_eq!(observed.left_without(start), Duration::ZERO);
        observed.led(1);
        // From when it was missing, not from when it was seen: it may have been renewed in between.
        observed.note(Some("1"), start);
        observed.note(None, start + SECOND);
        assert_eq!(observed.left_without(start + SECOND), OVER);
        assert_eq!(observed.left_without(start + SECOND + OVER), Duration::ZERO);
        assert!(RETRY + OVER < DURATION + RETRY);
    }
}
