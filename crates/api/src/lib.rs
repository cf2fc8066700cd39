//! The API of ODC: the custom resources as Rust types, the CRDs generated from them, and local validation by the same
//! schemas and CEL rules that the API server enforces.
//!
//! Input is parsed here once into validated types; no other crate parses the text of a spec. This crate contains no
//! business logic and does no I/O.

pub mod annotation;
pub mod api_key;
pub mod check;
pub mod crd;
pub mod duration;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
pub mod http;
pub mod label;
pub mod mount_path;
pub mod name;
pub mod namespace;
pub mod open_enum;
pub mod port;
pub mod price;
pub mod quantity;
pub mod queue;
mod rule;
pub mod ssh_key;
pub mod text;
pub mod time;
pub mod v1alpha1;

/// The API group of all kinds.
pub const GROUP: &str = "odc.dev";

/// The `apiVersion` of all kinds.
pub const API_VERSION: &str = "odc.dev/v1alpha1";

/// The home directory in every server.
pub const HOME: &str = "/home/dev";
