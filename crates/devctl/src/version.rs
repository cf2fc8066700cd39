//! The version of this build.

pub const NUMBER: &str = env!("CARGO_PKG_VERSION");
pub const COMMIT: &str = env!("DEVCTL_COMMIT");
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("DEVCTL_COMMIT"), ")");
