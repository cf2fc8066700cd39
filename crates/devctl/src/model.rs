//! What devctl reads from the cluster and what it means. No I/O.

pub mod activity;
pub mod disk;
pub mod queue;
pub mod server;
pub mod wake;
