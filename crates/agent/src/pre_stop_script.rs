//! The user's preStop script, which is not a hook of the kubelet. It runs once per stop, started by `serve` when the
//! operator prepares the stop, or by `init` on SIGTERM, whichever comes first.

pub mod claim;
pub mod runner;
