//! Where servers come from. Commands know this trait alone; which back end is behind it, the context decides.
//!
//! Whatever goes wrong comes back as a [`Failure`] that says what to do, so that commands need not know whom they asked.
//! Nothing here retries a write: whoever asked is told.

pub mod kube;

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use odc_api::queue::{Availability, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIfSpec, WhatIfStatus};
use odc_api::v1alpha1::{DevServer, DevServerFlavor};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::failure::Result;
use crate::glance::Glance;

/// Where a command acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The context, as people call it.
    pub context: String,
    /// The address of the API.
    pub address: String,
    pub namespace: String,
    /// The user whose namespace it is, as far as its name tells.
    pub owner: Option<String>,
}

/// Whose servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Own,
    Namespace(String),
    Everybody,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// All that follow until [`Change::Listed`] are all there are. Also after a broken connection.
    Relisted,
    Put(Box<Glance>),
    Gone(Box<Glance>),
    Listed,
    /// The connection broke and is being made anew.
    Interrupted(String),
}

/// Something that happened, as Kubernetes tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    pub at: Option<Timestamp>,
    /// The kind and name of what it happened to, such as `Pod box-0`.
    pub about: String,
    pub warning: bool,
    pub reason: String,
    pub message: String,
    pub times: i32,
}

/// Which lines of which container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    pub pod: String,
    /// [`SERVER_CONTAINER`] if nothing is said.
    pub container: Option<String>,
    pub follow: bool,
    pub tail: Option<i64>,
    pub since: Option<Duration>,
    pub timestamps: bool,
    pub previous: bool,
}

/// The container people work in.
pub const SERVER_CONTAINER: &str = "dev";

/// Why the queue does not answer for itself. What is known of it then is what statuses say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence(pub String);

/// What the queue says this moment, if it can be asked.
pub type Live<T> = std::result::Result<T, Silence>;

/// Kinds that administrators manage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Team,
    Flavor,
}

/// What lets a user in.
#[derive(Clone, Debug)]
pub struct Login {
    pub kubeconfig: String,
    /// When it no longer does; the cluster may allow less than was asked for.
    pub until: Timestamp,
}

/// A connection to a port in a server.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Pipe for T {}

pub type Answer<'a, T> = BoxFuture<'a, Result<T>>;
pub type Lines = std::pin::Pin<Box<dyn futures_util::io::AsyncBufRead + Send>>;

pub trait Backend: Send + Sync {
    fn place(&self) -> &Place;

    /// A server by its whole name; nothing if there is none.
    fn glance<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Glance>>;
    fn get<'a>(&'a self, name: &'a str) -> Answer<'a, Option<DevServer>>;
    /// Page by page, in the order of namespaces and names.
    fn list(&self, scope: Scope) -> BoxStream<'_, Result<Vec<Glance>>>;
    /// What is there, then every change, for ever; one server, or all of a scope.
    fn watch(&self, scope: Scope, name: Option<&str>) -> BoxStream<'static, Result<Change>>;

    /// Fails with [`crate::failure::Kind::Conflict`] if the name is taken.
    fn create<'a>(&'a self, server: &'a DevServer, dry_run: bool) -> Answer<'a, Glance>;
    /// A merge patch. With a version, only if nobody else has written since.
    fn change<'a>(&'a self, name: &'a str, patch: Value, version: Option<&'a str>, dry_run: bool)
    -> Answer<'a, Glance>;
    /// Deletes this very object, not a later one of the same name; one that is gone is deleted.
    fn delete<'a>(&'a self, name: &'a str, uid: &'a str, dry_run: bool) -> Answer<'a, ()>;

    fn flavors(&self) -> Answer<'_, Vec<DevServerFlavor>>;
    /// All flavors, then all again at every change.
    fn watch_flavors(&self) -> BoxStream<'static, Result<Vec<DevServerFlavor>>>;

    /// Who waits for each flavor, without names, and how promises were kept.
    fn queues(&self) -> Answer<'_, Live<Vec<Queue>>>;
    /// The servers of a scope that wait, as they stand this moment.
    fn entries(&self, scope: Scope) -> Answer<'_, Live<Vec<QueueEntry>>>;
    /// When servers of the usual sizes would start.
    fn availabilities(&self) -> Answer<'_, Live<Vec<Availability>>>;
    /// When a server would start, and what is in its way. Fails where no such server can be had at all.
    fn dry_run(&self, asked: DryRunSpec) -> Answer<'_, Live<DryRunStatus>>;
    /// What other quotas would change for those who wait.
    fn what_if(&self, asked: WhatIfSpec) -> Answer<'_, Live<WhatIfStatus>>;

    /// What happened to a server and its pods, oldest first.
    fn happenings<'a>(&'a self, server: &'a str) -> Answer<'a, Vec<Happening>>;
    /// The same as it happens, from now on and as far as it is remembered.
    fn watch_happenings(&self, server: &str) -> BoxStream<'static, Result<Happening>>;
    /// What a container prints.
    fn logs(&self, request: LogRequest) -> Answer<'_, Lines>;
    /// A connection to a port of a pod.
    fn connect<'a>(&'a self, pod: &'a str, port: u16) -> Answer<'a, Box<dyn Pipe>>;
    /// The claims of the namespace, by name and size: what can be a home.
    fn claims(&self) -> Answer<'_, Vec<(String, String)>>;

    fn objects(&self, kind: Kind) -> Answer<'_, Vec<Value>>;
    fn object<'a>(&'a self, kind: Kind, name: &'a str) -> Answer<'a, Option<Value>>;
    /// Creates it, or changes only the fields that are said.
    fn apply(&self, kind: Kind, object: Value, dry_run: bool) -> Answer<'_, Value>;
    /// Makes it what this manifest says, and keeps what others set beside it. Fails with
    /// [`crate::failure::Kind::Conflict`] if somebody else set one of its fields otherwise, unless they are taken over.
    fn declare(&self, kind: Kind, manifest: Value, take_over: bool, dry_run: bool) -> Answer<'_, Value>;
    fn remove<'a>(&'a self, kind: Kind, name: &'a str, dry_run: bool) -> Answer<'a, ()>;
    /// A kubeconfig for a user of this cluster, with a token that is to be good for so long.
    fn kubeconfig<'a>(&'a self, user: &'a str, good_for: Duration) -> Answer<'a, Login>;
}
