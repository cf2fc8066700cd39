//! `queue.odc.dev`: an aggregated API that the leader serves from memory, so that users see the current queue within
//! their own permissions.
//!
//! The API server authenticates and authorizes a user and forwards the request over TLS as its front proxy, with the
//! user in a header. Requests of other clients are rejected ([`request_header_auth`]). [`registration`] maintains the
//! objects by which the API server finds this process; [`serving_cert`] is the certificate by which it verifies it.

mod backend;
mod handshake_limit;
mod registration;
mod request_header_auth;
mod routes;
mod server;
mod serving_cert;

use std::sync::Arc;

use odc_api::queue::{
    Availability, DryRunSpec, DryRunStatus, HeartbeatServer, Queue, QueueEntry, WhatIfSpec, WhatIfStatus,
};
use tokio::sync::watch;

use crate::context::Context;
use crate::leader_tasks::{Task, task};
use backend::PlannerBackend;
use request_header_auth::RequestHeaderAuth;
use serving_cert::ServingCert;

/// The name of the Service and of the serving certificate.
const SERVICE: &str = "odc-queue";

/// Answers queries about the queue.
pub trait QueueBackend: Send + Sync + 'static {
    /// Reports whether a plan exists. A new leader has none.
    fn is_ready(&self) -> bool;
    fn queues(&self) -> Vec<Queue>;
    /// Returns the entries of one namespace, or of all.
    fn entries(&self, namespace: Option<&str>) -> Vec<QueueEntry>;
    /// Estimates when servers of each size of one flavor, or of all, would start for the user of a namespace.
    fn availabilities(&self, namespace: &str, flavor: Option<&str>) -> Vec<Availability>;
    /// Estimates when a server would start. Returns a message if the request is invalid.
    fn dry_run(&self, namespace: &str, request: &DryRunSpec) -> Result<DryRunStatus, String>;
    /// Compares the plan with one under other quotas. Returns a message if the request is invalid.
    fn what_if(&self, request: WhatIfSpec) -> Result<WhatIfStatus, String>;
    /// Starts to pass heartbeats to agents. Returns the number of servers with an agent.
    fn heartbeat(&self, servers: &[HeartbeatServer]) -> u64;
}

/// The credentials without which no connection is accepted.
#[derive(Default)]
struct Credentials {
    client_auth: Option<Arc<RequestHeaderAuth>>,
    serving_cert: Option<Arc<ServingCert>>,
}

/// Returns the tasks of the API. It is disabled without an address, because the API server could not reach a process
/// outside the cluster.
pub fn tasks(ctx: &Arc<Context>) -> Vec<Task> {
    let backend: Arc<dyn QueueBackend> = Arc::new(PlannerBackend(ctx.clone()));
    let Some(address) = ctx.config.queue_api else { return vec![] };
    let (sender, credentials) = watch::channel(Credentials::default());
    let sender = Arc::new(sender);
    vec![
        task("queue API authentication", request_header_auth::watch(ctx.clone(), sender.clone())),
        task("queue API certificate", serving_cert::watch(ctx.clone(), sender)),
        task("queue API", server::run(address, credentials.clone(), backend)),
        task("queue API registration", registration::run(ctx.clone(), address, credentials)),
    ]
}
