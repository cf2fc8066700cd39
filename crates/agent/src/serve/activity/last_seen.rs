//! The time of the last occurrence of an event.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Lock-free, because it is set for every chunk of data.
#[derive(Debug, Default)]
pub struct LastSeen {
    /// Milliseconds since the boot of the node; 0 is never.
    at: AtomicU64,
}

impl LastSeen {
    pub fn set(&self, now: Duration) {
        self.at.fetch_max(milliseconds(now).max(1), Ordering::Relaxed);
    }

    pub fn get(&self) -> Option<Duration> {
        Some(self.at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Duration::from_millis)
    }

    /// Returns whole seconds; 0 if the event occurred after `now` was read.
    pub fn seconds_ago(&self, now: Duration) -> Option<u64> {
        self.get().map(|at| seconds_since(at, now))
    }
}

pub fn seconds_since(at: Duration, now: Duration) -> u64 {
    now.saturating_sub(at).as_secs()
}

fn milliseconds(now: Duration) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_in_whole_seconds() {
        let last_seen = LastSeen::default();
        let at = Duration::from_secs(100);
        assert_eq!(last_seen.seconds_ago(at), None);
        last_seen.set(at);
        assert_eq!(last_seen.seconds_ago(at), Some(0));
        assert_eq!(last_seen.seconds_ago(at + Duration::from_millis(59_999)), Some(59));
        assert_eq!(last_seen.seconds_ago(at + Duration::from_secs(60)), Some(60));
        last_seen.set(Duration::from_secs(90));
        assert_eq!(last_seen.get(), Some(at), "an earlier time does not replace a later one");
        assert_eq!(last_seen.seconds_ago(Duration::from_secs(99)), Some(0));
    }
}
