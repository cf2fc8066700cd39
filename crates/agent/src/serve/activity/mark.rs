//! When something was last seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Set many times a second by whoever carries bytes, so it must cost nothing.
#[derive(Debug, Default)]
pub struct Mark {
    /// Milliseconds since the node was started; 0 is never.
    at: AtomicU64,
}

impl Mark {
    pub fn set(&self, now: Duration) {
        self.at.fetch_max(milliseconds(now).max(1), Ordering::Relaxed);
    }

    pub fn at(&self) -> Option<Duration> {
        Some(self.at.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Duration::from_millis)
    }

    /// In whole seconds; what is seen while we look was seen just now.
    pub fn ago(&self, now: Duration) -> Option<u64> {
        self.at().map(|at| ago(at, now))
    }
}

pub fn ago(at: Duration, now: Duration) -> u64 {
    now.saturating_sub(at).as_secs()
}

fn milliseconds(now: Duration) -> u64 {
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_tells_how_long_ago() {
        let mark = Mark::default();
        let at = Duration::from_secs(100);
        assert_eq!(mark.ago(at), None);
        mark.set(at);
        assert_eq!(mark.ago(at), Some(0));
        assert_eq!(mark.ago(at + Duration::from_millis(59_999)), Some(59));
        assert_eq!(mark.ago(at + Duration::from_secs(60)), Some(60));
        mark.set(Duration::from_secs(90));
        assert_eq!(mark.at(), Some(at), "a late writer does not turn time back");
        assert_eq!(mark.ago(Duration::from_secs(99)), Some(0));
    }
}
