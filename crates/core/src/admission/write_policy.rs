//! Which decisions are written, and when: rate limit, back-off, and dropping those invalidated by a failed write.

pub(super) mod drop_dependents;
pub(super) mod status_throttle;
pub(super) mod write_backoff;
