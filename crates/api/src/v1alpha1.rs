//! The kinds of `odc.dev/v1alpha1`. The doc comments of fields are printed by `kubectl explain`.

#![expect(clippy::doc_markdown, reason = "kubectl explain prints Markdown verbatim")]
#![allow(rustdoc::bare_urls, reason = "the same")]

pub mod condition;
mod devserver;
mod disk;
mod disk_operation;
mod flavor;
mod phase;
mod quota;
mod team;
mod usage;
mod user;

pub use devserver::*;
pub use disk::*;
pub use disk_operation::*;
pub use flavor::*;
pub use phase::Phase;
pub use quota::Quota;
pub use team::{Team, TeamPriority, TeamSpec, TeamStatus};
pub use usage::Usage;
pub use user::{Defaults, DevServerUser, DevServerUserSpec, DevServerUserStatus, Identity, Role};
