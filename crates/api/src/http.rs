//! The bodies of the HTTP API.
//!
//! Specs and statuses are those of the custom resources. The schemas of all types are part of the `OpenAPI` document.

#![expect(clippy::doc_markdown, reason = "descriptions in the OpenAPI document are printed verbatim")]
#![allow(rustdoc::bare_urls, reason = "the same")]

mod access;
mod activity;
mod cluster;
mod devserver;
mod disk;
mod event;
mod problem;
mod request;
mod resource;

pub use access::{CreateKey, CreatedKey, Key, Me};
pub use activity::{AuditEntry, FlavorUsage, ModelUsage, ReportTokens, TimelineEntry};
pub use cluster::{ApplySpec, ClusterStatistics, ClusterStatus, FlavorSummary, Health, Node, Version};
pub use devserver::{CreateDevServer, Extend, KubeEvent, SetWake};
pub use disk::{Claim, CreateDisk, DiskActionBody};
pub use event::{Event, EventType};
pub use problem::{FieldError, Problem, ProblemType};
pub use request::{Accepted, Request, RequestState};
pub use resource::{
    DevServerResource, DiskOperationResource, DiskResource, FlavorResource, Page, TeamResource, UserResource,
};

/// The media type of [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The header with the id of a request.
pub const REQUEST_ID_HEADER: &str = "x-request-id";
/// The header with the version of `devctl`.
pub const CLIENT_VERSION_HEADER: &str = "x-devctl-version";
/// The header that makes a repeated request safe.
pub const IDEMPOTENCY_KEY_HEADER: &str = "idempotency-key";
