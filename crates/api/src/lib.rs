//! The API of ODC: its custom resources as Rust types, the definitions generated from them, and the rules the API
//! server enforces, evaluated in our own process too.
//!
//! Whatever comes from outside is parsed here once, into types that cannot be wrong; no other crate reads raw text of a
//! spec. Nothing here decides anything or talks to anybody.

pub mod annotation;
pub mod check;
pub mod crd;
pub mod duration;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod label;
pub mod mount_path;
pub mod name;
pub mod namespace;
pub mod port;
pub mod price;
pub mod quantity;
pub mod queue;
mod rule;
pub mod ssh_key;
pub mod text;
pub mod time;
pub mod v1alpha1;
pub mod word;

/// The API group of all kinds.
pub const GROUP: &str = "odc.dev";

/// Holds a `DevServer` until its disk is released in order. A server without a disk has no finalizer.
pub const FINALIZER: &str = "odc.dev/disk-release";

/// The home directory in every server.
pub const HOME: &str = "/home/dev";
