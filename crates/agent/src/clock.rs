//! Time that nobody can set: what passed since the node was started, also while it slept.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}
