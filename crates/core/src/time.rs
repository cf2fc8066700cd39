//! Arithmetic on timestamps that saturates instead of failing.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

/// Returns how long ago `since` was, or zero if it lies in the future.
pub fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Returns how long it is until `deadline`, or zero if it has passed.
pub fn until(deadline: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_until(deadline)).unwrap_or_default()
}

/// Returns how much of `timeout` remains since `since`, or `None` if it has expired. A start in the future, from a clock
/// that is ahead, counts as now.
pub fn remaining(timeout: Duration, since: Timestamp, now: Timestamp) -> Option<Duration> {
    timeout.checked_sub(elapsed(since, now)).filter(|remaining| !remaining.is_zero())
}

/// Reports whether a stored time can only come from a clock that was ahead.
pub fn is_far_ahead(stored: Timestamp, now: Timestamp) -> bool {
    until(stored, now) > MAX_CLOCK_SKEW
}

/// The difference between the clocks of two operators that is not corrected.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

pub fn add(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// Returns the time of a Unix second, or the latest time if there is no such time.
pub fn from_second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

pub fn sub(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_ends_exactly_at_the_timeout() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = at("2026-01-01T00:00:00Z");
        let timeout = Duration::from_secs(5);
        for (now, expect) in [
            ("2026-01-01T00:00:00Z", Some(5_000)),
            ("2026-01-01T00:00:04.999Z", Some(1)),
            ("2026-01-01T00:00:05Z", None),
            ("2026-01-01T00:00:06Z", None),
            ("2025-12-31T00:00:00Z", Some(5_000)),
        ] {
            assert_eq!(remaining(timeout, since, at(now)), expect.map(Duration::from_millis), "{now}");
        }
        assert!(remaining(Duration::MAX, Timestamp::MIN, Timestamp::MAX).is_some());
        assert_eq!(remaining(Duration::ZERO, Timestamp::MAX, Timestamp::MIN), None);
    }
}
