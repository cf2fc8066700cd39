//! Requests to the agents in servers. `odc_core::devserver` decides on them; responses go into the server's soft state. No
//! reconciliation waits for an agent.

pub mod ssh_client;
pub mod ssh_control_ca;
pub mod ssh_keygen;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use odc_api::v1alpha1::{DevServer, Disk};
use odc_control::{Flushed, NoticeKind, Quiesced, Reply, Request, Signals, Text};
use odc_core::devserver::agent_requests::{AgentCall, AgentConfig, AgentRequest, AgentState};
use odc_core::devserver::quiesce_failure::QuiesceFailure;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::cache::{Key, key};
use crate::context::Context;
use crate::disk::listings;
use crate::metrics::AgentRequestLabels;
use ssh_client::{AgentClient, ClientKey};

const MAX_CONCURRENT_CONNECTS: usize = 256;
/// Each request costs a key exchange, so more concurrency would not be faster.
const MAX_CONCURRENT_REQUESTS: usize = 16;
/// A quiesce takes as long as the user's preStop script, and a flush as long as the disk, so they have a limit of their own.
const MAX_CONCURRENT_QUIESCES: usize = 128;
/// For requests that agents answer from memory.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Added to the time limit of a quiesce or flush.
const QUIESCE_MARGIN: Duration = Duration::from_secs(2);

const CONFIGURE: &str = "configure";
const SIGNALS: &str = "signals";
const QUIESCE: &str = "quiesce";
const FLUSH: &str = "flush";
const HEARTBEAT: &str = "heartbeat";

/// The uid of a pod and the name of a request.
type CallId = (String, &'static str);

/// The requests in progress. The same request is not sent twice at a time.
pub struct AgentCalls {
    in_progress: Mutex<HashSet<CallId>>,
    connects: Semaphore,
    requests: Semaphore,
    quiesces: Semaphore,
    key: ClientKey,
}

impl AgentCalls {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            in_progress: Mutex::default(),
            connects: Semaphore::new(MAX_CONCURRENT_CONNECTS),
            requests: Semaphore::new(MAX_CONCURRENT_REQUESTS),
            quiesces: Semaphore::new(MAX_CONCURRENT_QUIESCES),
            key: ClientKey::generate()?,
        })
    }

    /// Returns false if the request, or one that excludes it, is in progress. A configuration tells the agent that its
    /// server continues to run, so it must not overlap with a quiesce.
    fn begin(&self, call: &CallId) -> bool {
        let (pod, name) = call;
        let mut in_progress = self.in_progress.lock();
        let exclusive = match *name {
            CONFIGURE => Some(QUIESCE),
            QUIESCE => Some(CONFIGURE),
            _ => None,
        };
        if exclusive.is_some_and(|other| in_progress.contains(&(pod.clone(), other))) {
            return false;
        }
        in_progress.insert(call.clone())
    }
}

/// The object whose pod has the agent.
enum Subject {
    Server(Key),
    /// The disk of an operation, or of a server that holds it.
    Disk {
        key: Key,
        uid: String,
    },
}

impl Subject {
    fn namespace(&self) -> &str {
        match self {
            Self::Server((namespace, _)) | Self::Disk { key: (namespace, _), .. } => namespace,
        }
    }
}

/// A request in progress. The object is enqueued when it ends, however it ends, unless it is a heartbeat: nothing depends on
/// the reply.
struct CallGuard {
    ctx: Arc<Context>,
    call: CallId,
    subject: Subject,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.ctx.agent_calls.in_progress.lock().remove(&self.call);
        if self.call.1 == HEARTBEAT {
            return;
        }
        match &self.subject {
            Subject::Server((namespace, name)) => self.ctx.work_queues.enqueue_server(namespace, name),
            Subject::Disk { key: (namespace, name), .. } => self.ctx.work_queues.enqueue_disk(namespace, name),
        }
    }
}

/// Starts the requests in the background.
pub fn start(ctx: &Arc<Context>, server: &DevServer, calls: Vec<AgentCall>) {
    for call in calls {
        start_call(ctx, server.metadata.uid.clone().unwrap_or_default(), Subject::Server(key(server)), call);
    }
}

/// Starts a request for a disk in the background. `uid` is the one of the operation or server that the pod was created
/// for.
pub fn start_for_disk(ctx: &Arc<Context>, disk: &Disk, uid: String, call: AgentCall) {
    let subject = Subject::Disk { key: key(disk), uid: disk.metadata.uid.clone().unwrap_or_default() };
    start_call(ctx, uid, subject, call);
}

/// `uid` is the one of the object that the pod was created for, which the agent knows.
fn start_call(ctx: &Arc<Context>, uid: String, subject: Subject, call: AgentCall) {
    let name = request_name(&call.request);
    let id = (call.pod.clone(), name);
    if matches!(call.request, AgentRequest::Quiesce(_)) {
        let now = ctx.now();
        update_agent(ctx, &uid, &call.pod, |agent| agent.start_quiesce(now));
    }
    // The request in progress enqueues the object when it ends.
    if !ctx.agent_calls.begin(&id) {
        return;
    }
    if let (AgentRequest::Flush(_), Subject::Disk { uid, .. }) = (&call.request, &subject) {
        let now = ctx.now();
        ctx.soft_states.update_disk(uid, |state| state.start_flush(&call.pod, now));
    }
    let guard = CallGuard { ctx: ctx.clone(), call: id, subject };
    tokio::spawn(async move {
        let ctx = &guard.ctx;
        let connection = {
            let Ok(_permit) = ctx.agent_calls.connects.acquire().await else { return };
            ssh_client::connect(&call.address).await
        };
        let is_slow = matches!(call.request, AgentRequest::Quiesce(_) | AgentRequest::Flush(_));
        let permits = if is_slow { &ctx.agent_calls.quiesces } else { &ctx.agent_calls.requests };
        let Ok(_permit) = permits.acquire().await else { return };
        // Boxed so that the tasks that wait for a permit are small.
        let ok = Box::pin(send(ctx, &uid, &guard.subject, call, connection)).await;
        let result = if ok { "success" } else { "error" };
        ctx.metrics.agent_requests.get_or_create(&AgentRequestLabels { request: name, result }).inc();
    });
}

fn request_name(request: &AgentRequest) -> &'static str {
    match request {
        AgentRequest::Configure(_) => CONFIGURE,
        AgentRequest::GetSignals => SIGNALS,
        AgentRequest::Quiesce(_) => QUIESCE,
        AgentRequest::Flush(_) => FLUSH,
        AgentRequest::Heartbeat => HEARTBEAT,
    }
}

fn update_agent(ctx: &Context, uid: &str, pod: &str, update: impl FnOnce(&mut AgentState)) {
    ctx.soft_states.update(uid, |entry| update(entry.agent_mut(pod)));
}

/// Sends one request and records the result. Returns true if the agent accepted it.
async fn send(
    ctx: &Context,
    uid: &str,
    subject: &Subject,
    call: AgentCall,
    connection: Result<TcpStream, String>,
) -> bool {
    let Some(ca) = ctx.control_ca.borrow().ready() else { return false };
    // A newer leader may have sent a newer configuration.
    if !ctx.is_leader() {
        return false;
    }
    let AgentCall { pod, address, host_key, request } = call;
    let client = AgentClient { ca: &ca, key: &ctx.agent_calls.key, uid, host_key: &host_key, now: ctx.now() };
    match request {
        AgentRequest::Configure(config) => {
            let requests = configuration(&config, ctx.now());
            let result = async { all_accepted(client.request(connection?, &requests, REQUEST_TIMEOUT).await?) }.await;
            if let Err(error) = &result {
                tracing::debug!(pod, address, error, "failed to configure an agent");
            }
            let now = ctx.now();
            let ok = result.is_ok();
            update_agent(
                ctx,
                uid,
                &pod,
                |agent| if ok { agent.record_config(config, now) } else { agent.record_failure(now) },
            );
            ok
        }
        AgentRequest::GetSignals => {
            let signals =
                async { signals(client.request(connection?, &[Request::Signals], REQUEST_TIMEOUT).await?) }.await;
            let (now, ok) = (ctx.now(), signals.is_ok());
            update_agent(ctx, uid, &pod, |agent| agent.record_signals(signals, now));
            ok
        }
        AgentRequest::Heartbeat => {
            let result =
                async { all_accepted(client.request(connection?, &[Request::Heartbeat], REQUEST_TIMEOUT).await?) }
                    .await;
            if let Err(error) = &result {
                tracing::debug!(pod, address, error, "failed to pass a heartbeat to an agent");
            }
            result.is_ok()
        }
        AgentRequest::Quiesce(within) => {
            let request = Request::Quiesce { within_seconds: within.as_secs() };
            let result =
                async { quiesced(client.request(connection?, &[request], within + QUIESCE_MARGIN).await?) }.await;
            let now = ctx.now();
            let failure = match &result {
                Ok(quiesced) => QuiesceFailure::from_outcome(quiesced, now),
                Err(error) => {
                    tracing::info!(pod, address, error, "failed to quiesce a server");
                    None
                }
            };
            let ok = result.is_ok() && failure.is_none();
            if let Some(home) = result.ok().and_then(|quiesced| quiesced.home) {
                listings::record(ctx, subject.namespace(), &pod, home, now);
            }
            update_agent(ctx, uid, &pod, |agent| agent.finish_quiesce(failure));
            ok
        }
        AgentRequest::Flush(within) => {
            let request = Request::Flush { within_seconds: within.as_secs() };
            let result =
                async { flushed(client.request(connection?, &[request], within + QUIESCE_MARGIN).await?) }.await;
            let (now, ok) = (ctx.now(), result.as_ref().is_ok_and(|flushed| flushed.synced));
            match result {
                Ok(Flushed { synced, sync_error, home }) => {
                    if !synced {
                        tracing::info!(
                            pod,
                            address,
                            error = sync_error.as_deref(),
                            "an agent failed to flush its home"
                        );
                    }
                    if let Some(home) = home {
                        listings::record(ctx, subject.namespace(), &pod, home, now);
                    }
                }
                Err(error) => tracing::info!(pod, address, error, "failed to flush the home of a server"),
            }
            if let Subject::Disk { uid, .. } = subject {
                ctx.soft_states.update_disk(uid, |state| state.finish_flush(&pod, now));
            }
            ok
        }
    }
}

/// Returns the requests of a configuration, ordered so that any prefix leaves the agent in a consistent state.
fn configuration(config: &AgentConfig, now: jiff::Timestamp) -> Vec<Request> {
    let remaining = |at: jiff::Timestamp| odc_core::time::until(at, now).as_secs();
    let mut requests = vec![
        Request::SetAccess(config.access.clone()),
        Request::SetDeadline { remaining_seconds: config.expires_at.map(remaining), idle: config.idle },
        Request::Notify { kind: NoticeKind::Idle, text: config.idle_warning.as_deref().map(Text::new) },
        Request::Notify { kind: NoticeKind::Message, text: config.preemption_notice.as_deref().map(Text::new) },
    ];
    requests.extend(config.idle_status.as_deref().map(|status| Request::SetIdleStatus { status: Text::new(status) }));
    requests.extend(config.jupyter.map(|on| Request::Jupyter { on }));
    requests
}

fn all_accepted(replies: Vec<Reply>) -> Result<(), String> {
    for reply in replies {
        if let Reply::Refused { reason } = reply {
            return Err(reason.into_string());
        }
    }
    Ok(())
}

fn quiesced(replies: Vec<Reply>) -> Result<Quiesced, String> {
    match replies.into_iter().next() {
        Some(Reply::Quiesced(quiesced)) => Ok(*quiesced),
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("unexpected reply {other:?}")),
    }
}

fn flushed(replies: Vec<Reply>) -> Result<Flushed, String> {
    match replies.into_iter().next() {
        Some(Reply::Flushed(flushed)) => Ok(*flushed),
        // Also from an agent that does not know the request.
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("unexpected reply {other:?}")),
    }
}

fn signals(replies: Vec<Reply>) -> Result<Signals, String> {
    match replies.into_iter().next() {
        Some(Reply::Signals(signals)) => Ok(*signals),
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("unexpected reply {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use odc_control::Access;

    use super::*;

    #[test]
    fn idle_warning_and_preemption_notice_have_their_own_kind() {
        let config = AgentConfig {
            restarts: 0,
            access: Access::default(),
            expires_at: None,
            idle: None,
            idle_warning: None,
            preemption_notice: Some("Preempted.".into()),
            idle_status: None,
            jupyter: None,
        };
        let requests = configuration(&config, jiff::Timestamp::UNIX_EPOCH);
        let notices = requests.into_iter().filter(|request| matches!(request, Request::Notify { .. }));
        assert_eq!(
            notices.collect::<Vec<_>>(),
            [
                Request::Notify { kind: NoticeKind::Idle, text: None },
                Request::Notify { kind: NoticeKind::Message, text: Some("Preempted.".into()) },
            ]
        );
    }
}
