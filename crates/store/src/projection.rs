//! Copies of the custom resources, with their history.
//!
//! One worker at a time writes them: it holds a [`Writer`]. Every write can be repeated with the same or newer objects.

mod cluster_object;
mod devserver;
mod disk;
mod flavor;
mod writer;

pub use cluster_object::ClusterObjectRow;
pub use devserver::{DevServerRow, IntervalRow, ServerBatch, ServerFilter, TimelineRow};
pub use disk::{DiskOperationRow, DiskRow};
pub use flavor::FlavorRow;
pub use writer::Writer;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

/// What all copies have in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Copied {
    pub uid: Uuid,
    pub namespace: String,
    pub name: String,
    pub user_name: String,
    /// The request that created the object.
    pub request_id: Option<Uuid>,
    pub requested_by: Option<String>,
    pub created_at: Timestamp,
    pub generation: i64,
    /// The field manager of the last change of the spec, if the change is to be recorded in the audit log: it was not made
    /// by the worker, which records its requests itself.
    pub changed_by: Option<String>,
    /// The object without managed fields.
    pub object: Value,
}

/// A deleted object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deleted {
    pub uid: Uuid,
    /// When it was deleted or, if that was not observed, when it was noticed.
    pub at: Timestamp,
    /// Whether the deletion was observed.
    pub observed: bool,
    /// Whether the deletion is to be recorded in the audit log.
    pub audit: bool,
}

/// Serializes rows for `jsonb_to_recordset`.
pub(crate) fn json<T: Serialize>(rows: &[T]) -> Value {
    serde_json::to_value(rows).unwrap_or_default()
}
