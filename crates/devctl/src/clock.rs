//! The current time, which tests can set.

use jiff::Timestamp;

/// In debug builds, the time to use instead of the current one, so that tests can compare whole outputs.
#[cfg(debug_assertions)]
const NOW_ENV: &str = "DEVCTL_NOW";

/// Returns the current time.
pub fn now() -> Timestamp {
    #[cfg(debug_assertions)]
    if let Some(now) = std::env::var(NOW_ENV).ok().and_then(|text| text.parse().ok()) {
        return now;
    }
    Timestamp::now()
}
