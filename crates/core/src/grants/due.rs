//! What time alone makes true.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::seen::{Node, Readiness};

/// How long until `after` has passed since then; nothing if it has. A time to come, of a clock that is ahead, counts
/// as now.
pub(super) fn left(since: Timestamp, after: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    after.checked_sub(passed).filter(|left| !left.is_zero())
}

/// How long until a silent node counts as lost; nothing if it is, or is well. A node that has not spoken yet is not
/// lost: it is about to come.
pub(super) fn until_lost(node: &Node, lost_after: Duration, now: Timestamp) -> Option<Duration> {
    match node.readiness {
        Readiness::Unready(since) => left(since, lost_after, now),
        Readiness::Ready | Readiness::New => None,
    }
}

pub(super) fn is_lost(node: &Node, lost_after: Duration, now: Timestamp) -> bool {
    matches!(node.readiness, Readiness::Unready(since) if left(since, lost_after, now).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_ends_exactly_when_the_time_has_passed() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = at("2026-01-01T00:00:00Z");
        let after = Duration::from_secs(5);
        for (now, expect) in [
            ("2026-01-01T00:00:00Z", Some(5_000)),
            ("2026-01-01T00:00:04.999Z", Some(1)),
            ("2026-01-01T00:00:05Z", None),
            ("2026-01-01T00:00:06Z", None),
            ("2025-12-31T00:00:00Z", Some(5_000)),
        ] {
            assert_eq!(left(since, after, at(now)), expect.map(Duration::from_millis), "{now}");
        }
        assert!(left(Timestamp::MIN, Duration::MAX, Timestamp::MAX).is_some());
        assert_eq!(left(Timestamp::MAX, Duration::ZERO, Timestamp::MIN), None);
    }
}
