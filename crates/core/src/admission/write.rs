//! When and in which order decisions are written.

pub(super) mod failed_releases;
pub(super) mod status_throttle;
pub(super) mod write_backoff;
