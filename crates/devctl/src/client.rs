//! The API that commands use. The selected context decides which backend implements it.
//!
//! All methods fail with an [`Error`](crate::error::Error) that has a hint. The backend `kube` does not retry writes; the
//! backend `api` does, because a repeated request has no further effect.

pub mod api;
pub mod kube;
mod status;

use std::sync::Arc;
use std::time::Duration;

use ::kube::Resource as _;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use odc_api::v1alpha1::{DevServer, DevServerFlavor, DevServerUser, Disk, DiskOperation, DiskOperationSpec, Team};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::ContextSelection;
use crate::error::{Kind, Result};
use crate::model::disk::DiskSummary;
use crate::model::server::ServerSummary;

/// The cluster and namespace a command acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name of the context, or why there is none.
    pub context: String,
    /// Whether `--context` selects the context.
    pub is_named: bool,
    /// The address of the API server, or of the HTTP API.
    pub address: String,
    pub namespace: String,
    /// The user who owns the namespace, derived from its name.
    pub owner: Option<String>,
}

/// The namespaces of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Own,
    Namespace(String),
    All,
}

/// An event of a watch, of servers by default, as in `kube::runtime::watcher::Event`.
#[derive(Clone, Debug)]
pub enum WatchEvent<T = ServerSummary> {
    /// A list begins. Objects not applied before [`WatchEvent::InitDone`] no longer exist.
    Init,
    Apply(Box<T>),
    Delete(Box<T>),
    InitDone,
    /// The connection was lost and is being reestablished.
    Interrupted(String),
}

/// A Kubernetes Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Option<Timestamp>,
    /// The kind and name of the involved object, such as `Pod box-0`.
    pub object: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub count: i32,
}

/// Attempts to change an object that other clients change concurrently.
const MAX_CONFLICT_ATTEMPTS: usize = 5;

/// Reads and writes an object, again if another client changed it in between. Returns what was read and written.
pub async fn retry_on_conflict<R, W>(
    mut read: impl AsyncFnMut() -> Result<R>,
    mut write: impl AsyncFnMut(&R) -> Result<W>,
) -> Result<(R, W)> {
    let mut attempt = 1;
    loop {
        let before = read().await?;
        match write(&before).await {
            Err(error) if error.kind == Kind::Conflict && attempt < MAX_CONFLICT_ATTEMPTS => attempt += 1,
            result => return result.map(|after| (before, after)),
        }
    }
}

/// The container and lines to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub pod: String,
    /// Defaults to [`SERVER_CONTAINER`].
    pub container: Option<String>,
    pub follow: bool,
    pub tail: Option<i64>,
    pub since: Option<Duration>,
    pub timestamps: bool,
    pub previous: bool,
}

/// The container users work in.
pub const SERVER_CONTAINER: &str = "dev";

/// The reason why the queue API is unavailable. Statuses still have older data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUnavailable(pub String);

/// A response of the queue API.
pub type QueueResult<T> = std::result::Result<T, QueueUnavailable>;

/// The kinds administrators manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    User,
    Team,
    Flavor,
}

impl ObjectKind {
    /// Returns the kind in the API.
    pub fn kind(self) -> String {
        match self {
            Self::User => DevServerUser::kind(&()),
            Self::Team => Team::kind(&()),
            Self::Flavor => DevServerFlavor::kind(&()),
        }
        .into_owned()
    }

    /// Returns the word at the start of a message.
    pub const fn title(self) -> &'static str {
        match self {
            Self::User => "User",
            Self::Team => "Team",
            Self::Flavor => "Flavor",
        }
    }

    /// Returns the word inside a message.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Team => "team",
            Self::Flavor => "flavor",
        }
    }
}

/// Credentials of a user.
#[derive(Clone, Debug)]
pub struct UserKubeconfig {
    pub kubeconfig: String,
    /// The API server may grant less time than requested.
    pub expires_at: Timestamp,
}

/// A byte stream to a port of a pod.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

pub type LogStream = std::pin::Pin<Box<dyn futures_util::io::AsyncBufRead + Send>>;

/// Creates the client of a context.
pub async fn connect(selection: &ContextSelection) -> Result<Arc<dyn Client>> {
    Ok(match &selection.api {
        Some(endpoint) => Arc::new(api::ApiClient::connect(endpoint, selection).await?),
        None => Arc::new(kube::KubeClient::connect(selection).await?),
    })
}

/// A cluster.
pub trait Client: Servers + Disks + Flavors + QueueApi + Events + Pods + Admin {
    fn target(&self) -> &Target;
}

#[async_trait]
pub trait Servers: Send + Sync {
    /// Returns the server of this name, if it exists.
    async fn get_summary(&self, name: &str) -> Result<Option<ServerSummary>>;
    async fn get(&self, name: &str) -> Result<Option<DevServer>>;
    /// Lists servers page by page, sorted by namespace and name.
    fn list(&self, scope: Scope) -> BoxStream<'_, Result<Vec<ServerSummary>>>;
    /// Watches all servers of a scope, or one of them. The stream does not end.
    fn watch(&self, scope: Scope, name: Option<&str>) -> BoxStream<'static, Result<WatchEvent>>;
    /// Fails with [`Kind::Conflict`](crate::error::Kind::Conflict) if the name is taken.
    async fn create(&self, server: &DevServer, dry_run: bool) -> Result<ServerSummary>;
    /// Applies a merge patch, conditional on the resource version if one is given.
    async fn patch(
        &self,
        name: &str,
        patch: Value,
        resource_version: Option<&str>,
        dry_run: bool,
    ) -> Result<ServerSummary>;
    /// Deletes the object with this UID. Succeeds if it no longer exists.
    async fn delete(&self, name: &str, uid: &str, dry_run: bool) -> Result<()>;
}

/// Disks and operations of the own namespace. Fail with a hint if the cluster does not serve disks.
#[async_trait]
pub trait Disks: Send + Sync {
    /// Returns all disks, sorted by name.
    async fn disks(&self) -> Result<Vec<DiskSummary>>;
    /// Returns the disk of this name, if it exists.
    async fn disk(&self, name: &str) -> Result<Option<DiskSummary>>;
    /// Fails with [`Kind::Conflict`](crate::error::Kind::Conflict) if the name is taken.
    async fn create_disk(&self, disk: &Disk, dry_run: bool) -> Result<DiskSummary>;
    /// Applies a merge patch.
    async fn patch_disk(&self, name: &str, patch: Value, dry_run: bool) -> Result<DiskSummary>;
    /// Confirms that the disk with this UID is deleted with its data, and deletes it.
    async fn purge_disk(&self, name: &str, uid: &str) -> Result<()>;
    /// Returns the compressed listing of a restore point of a disk, if one is stored.
    async fn listing(&self, disk: &str, point: &str) -> Result<Option<Vec<u8>>>;
    /// Creates an operation with a generated name.
    async fn create_operation(&self, spec: &DiskOperationSpec) -> Result<DiskOperation>;
    /// Deletes the operation with this UID, which ends it. Succeeds if it no longer exists.
    async fn delete_operation(&self, name: &str, uid: &str) -> Result<()>;
    /// Returns the operations on a disk.
    async fn operations(&self, disk: &str) -> Result<Vec<DiskOperation>>;
    /// Watches one operation. The stream does not end.
    fn watch_operation(&self, name: &str) -> BoxStream<'static, Result<WatchEvent<DiskOperation>>>;
}

#[async_trait]
pub trait Flavors: Send + Sync {
    async fn flavors(&self) -> Result<Vec<DevServerFlavor>>;
    /// Returns all flavors after every change.
    fn watch_flavors(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>>;
}

/// `queue.odc.dev`: the current state of the scheduler.
#[async_trait]
pub trait QueueApi: Send + Sync {
    /// Returns the queue of each flavor, without names, and the accuracy of its estimates.
    async fn queues(&self) -> Result<QueueResult<Vec<Queue>>>;
    /// Returns the pending servers of a scope.
    async fn queue_entries(&self, scope: Scope) -> Result<QueueResult<Vec<QueueEntry>>>;
    /// Returns the expected start times of the common sizes.
    async fn availabilities(&self) -> Result<QueueResult<Vec<Availability>>>;
    /// Returns when a server would start. Fails if it could never start.
    async fn dry_run(&self, spec: DryRunSpec) -> Result<QueueResult<DryRunStatus>>;
    /// Returns the start times that other quotas would change.
    async fn what_if(&self, spec: WhatIfSpec) -> Result<QueueResult<WhatIfStatus>>;
}

#[async_trait]
pub trait Events: Send + Sync {
    /// Returns the events of a server and its pods, oldest first.
    async fn events(&self, server: &str) -> Result<Vec<Event>>;
    /// Streams the events of a server and its pods, including the stored ones.
    fn watch_events(&self, server: &str) -> BoxStream<'static, Result<Event>>;
}

#[async_trait]
pub trait Pods: Send + Sync {
    async fn logs(&self, request: LogRequest) -> Result<LogStream>;
    /// Connects to a port of a pod.
    async fn connect(&self, pod: &str, port: u16) -> Result<Box<dyn Connection>>;
    /// Returns the name and size of each PVC of the namespace.
    async fn claims(&self) -> Result<Vec<(String, String)>>;
}

#[async_trait]
pub trait Admin: Send + Sync {
    async fn objects(&self, kind: ObjectKind) -> Result<Vec<Value>>;
    async fn object(&self, kind: ObjectKind, name: &str) -> Result<Option<Value>>;
    /// Creates the object, or changes the given fields of an existing one.
    async fn apply(&self, kind: ObjectKind, object: Value, dry_run: bool) -> Result<Value>;
    /// Applies a complete manifest (server-side apply). Without `force`, fails with
    /// [`Kind::Conflict`](crate::error::Kind::Conflict) if another field manager owns one of its fields.
    async fn apply_manifest(&self, kind: ObjectKind, manifest: Value, force: bool, dry_run: bool) -> Result<Value>;
    async fn delete_object(&self, kind: ObjectKind, name: &str, dry_run: bool) -> Result<()>;
    /// Creates a kubeconfig with a token for a user.
    async fn user_kubeconfig(&self, user: &str, valid_for: Duration) -> Result<UserKubeconfig>;
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::error::Error;

    #[tokio::test]
    async fn conflict_is_retried_with_a_fresh_read() {
        let reads = Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            std::future::ready(Ok(reads.get()))
        };
        let until = |last: usize| {
            move |version: &usize| {
                let changed = *version < last;
                std::future::ready(if changed { Err(Error::conflict("changed")) } else { Ok(*version) })
            }
        };
        assert_eq!(retry_on_conflict(read, until(3)).await.unwrap(), (3, 3));
        reads.set(0);
        assert_eq!(retry_on_conflict(read, until(usize::MAX)).await.unwrap_err().kind, Kind::Conflict);
        assert_eq!(reads.get(), MAX_CONFLICT_ATTEMPTS);
    }
}
