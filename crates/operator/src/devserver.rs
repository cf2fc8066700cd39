//! The server controller: reads the caches, gets a plan from `odc_core::devserver`, and executes it.

mod observe;
pub mod uncached_reads;
pub mod validation_inputs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::Api;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use odc_api::v1alpha1::{DevServer, DevServerStatus, Phase};
use odc_core::devserver::{self, Plan};
use odc_core::manifest::Kind;
use odc_core::plan::{Requeue, Write};
use serde_json::Value;

use crate::agents;
use crate::apply::apply;
use crate::context::Context;
use crate::dynamic_api::with_timeout;
use crate::error::{Class, Error};
use crate::error_policy;
use crate::invalid_objects;
use crate::status_writer::{FieldManager, write_status};
use observe::ObservedServer;

pub const NAME: &str = "devserver";
/// A plan needs at most two queries (the Secret, the entrypoint), each once.
const MAX_QUERY_ROUNDS: usize = 4;
/// Consecutive failures before the error is shown in the status.
const MAX_SILENT_FAILURES: u32 = 2;
/// The message of a server whose reconciliation panics.
const INTERNAL_ERROR: &str = "Internal error while reconciling this server; retrying. Running pods are not affected. \
    Contact your administrator, or recreate the server.";
/// How long to wait for a stale cache.
const STALE_CACHE_DELAY: Duration = Duration::from_secs(1);

pub async fn reconcile(server: Arc<DevServer>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let result = reconcile_once(&server, &ctx).await;
    ctx.metrics.record_reconcile(NAME, started.elapsed());
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    match result {
        Ok(action) => {
            let had_error = ctx.soft_states.update(uid, |entry| {
                entry.failures = 0;
                entry.recurring_error.take().is_some()
            });
            // Reconciled again to remove the error from the status.
            Ok(if had_error { Action::requeue(Duration::ZERO) } else { action })
        }
        Err(error) => {
            report_error(&server, &ctx, uid, &error).await;
            Err(error)
        }
    }
}

/// Starts to pass a heartbeat to an agent of the server. Returns false if there is none.
pub fn heartbeat(ctx: &Arc<Context>, namespace: &str, name: &str) -> bool {
    let Some(server) = ctx.cluster.server(namespace, name) else { return false };
    let pods = observe::pods_of(ctx, &server);
    let pods: Vec<_> = pods.iter().map(|pod| &**pod).collect();
    let call = devserver::agent_requests::heartbeat(&server, &pods);
    let found = call.is_some();
    agents::start(ctx, &server, call.into_iter().collect());
    found
}

/// Shows a repeated error in the status, because the owner may be able to fix it.
async fn report_error(server: &DevServer, ctx: &Context, uid: &str, error: &Error) {
    if error.class() == Class::Conflict || matches!(error, Error::NotLeader) {
        return;
    }
    let is_shown = ctx.soft_states.update(uid, |entry| {
        entry.recurring_error = (entry.failures >= MAX_SILENT_FAILURES).then(|| error.user_message());
        entry.recurring_error.is_some()
    });
    if !is_shown {
        return;
    }
    if let Some(status) = plan(server, ctx).status
        && let Err(other) = write_status(ctx, server, without_admission(status), FieldManager::Operator).await
    {
        // The first error is returned and logged by the caller.
        tracing::debug!(error = &other as &dyn std::error::Error, "failed to write an error to the status");
    }
}

async fn reconcile_once(server: &DevServer, ctx: &Arc<Context>) -> Result<Action, Error> {
    if is_stale(server, ctx).await? {
        // The watch event of the newer version also enqueues the server; this is a fallback.
        return Ok(Action::requeue(STALE_CACHE_DELAY));
    }
    for _ in 0..MAX_QUERY_ROUNDS {
        // A server that was deleted during a query needs no plan.
        if !ctx.soft_states.contains(server.metadata.uid.as_deref().unwrap_or_default()) {
            return Ok(Action::await_change());
        }
        let plan = plan(server, ctx);
        if let Some(query) = &plan.query {
            uncached_reads::run(ctx, server, query).await?;
            continue;
        }
        return execute(server, ctx, plan).await;
    }
    Err(Error::Internal(format!("the plan has more than {MAX_QUERY_ROUNDS} queries")))
}

/// Reports whether the cached server is older than its cached pods. An admission is stored before its pods are created,
/// and each pod carries the run of its admission, so a pod of a later run means that the server is stale. A plan from
/// it would stop the pods of the current run. Stale lists cause this, so the version is compared with the API server.
async fn is_stale(server: &DevServer, ctx: &Context) -> Result<bool, Error> {
    let known_run =
        server.status.as_ref().and_then(|status| status.admission.as_ref()).map_or(0, |admission| admission.run);
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if ObservedServer::new(ctx, server).newest_run(uid).is_none_or(|run| run <= known_run) {
        return Ok(false);
    }
    let name = server.name_any();
    let api: Api<DevServer> = Api::namespaced(ctx.client.clone(), &server.namespace().unwrap_or_default());
    let response = with_timeout(api.get_metadata_opt(&name)).await;
    let stored =
        response.map_err(|source| Error::Read { kind: Kind::DevServer.as_str(), name, source: Box::new(source) })?;
    Ok(stored.is_none_or(|stored| stored.metadata.resource_version != server.metadata.resource_version))
}

fn plan(server: &DevServer, ctx: &Context) -> Plan {
    let settings = &ctx.config.server;
    let observed = ObservedServer::new(ctx, server);
    ctx.validated_servers.get(&ctx.cluster, server, settings).with_request(server, settings, |request| {
        devserver::reconcile(server, request, &observed.observed(), &observed.soft_state(), settings, ctx.now())
    })
}

async fn execute(server: &DevServer, ctx: &Arc<Context>, plan: Plan) -> Result<Action, Error> {
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    for write in &plan.writes {
        let stored = apply(ctx, write).await.inspect_err(|error| uncached_reads::record_error(ctx, uid, error))?;
        if let (Write::CreateWithKeys { .. }, Some(stored)) = (write, stored) {
            uncached_reads::record_secret(ctx, uid, &stored);
        }
    }
    let stored_phase = server.status.as_ref().and_then(|status| status.phase);
    let is_deferred = plan.status.is_none() && plan.phase.is_some() && plan.phase != stored_phase;
    let now = ctx.now();
    ctx.soft_states.update(uid, |entry| {
        match plan.phase.filter(|_| is_deferred) {
            Some(phase) if entry.deferred_phase.is_none_or(|(deferred, _)| deferred != phase) => {
                entry.deferred_phase = Some((phase, now));
            }
            Some(_) => {}
            None => entry.deferred_phase = None,
        }
        if plan.phase == Some(Phase::Running) {
            entry.agents.iter_mut().for_each(|(_, agent)| agent.cancel_stop());
        }
    });
    agents::start(ctx, server, plan.calls);
    if let Some(status) = plan.status {
        let written = write_status(ctx, server, without_admission(status), FieldManager::Operator).await?;
        observe_start(ctx, server, &written);
        if has_owner(ctx, server) {
            ctx.events.publish(&server.object_ref(&()), &plan.events);
        }
    }
    Ok(match plan.requeue {
        Requeue::AwaitChange => Action::await_change(),
        Requeue::After(time) => Action::requeue(time),
    })
}

/// Reports whether the server is in a user's namespace. The operator may create events only there.
fn has_owner(ctx: &Context, server: &DevServer) -> bool {
    server.metadata.namespace.as_deref().is_some_and(|namespace| ctx.cluster.owner(namespace).is_some())
}

/// Removes the fields that the scheduler owns.
fn without_admission(status: DevServerStatus) -> Value {
    let status = DevServerStatus { admission: None, flavor: None, ..status };
    // Serializing a status cannot fail.
    serde_json::to_value(status).unwrap_or_default()
}

/// Observes the time from admission to ready when a server starts to run.
fn observe_start(ctx: &Context, old: &DevServer, new: &DevServer) {
    let running_since = |server: &DevServer| server.status.as_ref().and_then(|status| status.running_since.clone());
    let admitted_at = new.status.as_ref().and_then(|status| status.admission.as_ref()?.admitted_at.clone());
    if let (None, Some(since), Some(admitted_at)) = (running_since(old), running_since(new), admitted_at) {
        ctx.metrics.start_seconds.observe(since.0.duration_since(admitted_at.0).as_secs_f64().max(0.0));
    }
}

#[expect(clippy::needless_pass_by_value, reason = "signature required by the applier")]
pub fn on_error(server: Arc<DevServer>, error: &Error, ctx: Arc<Context>) -> Action {
    let failures = ctx.soft_states.record_failure(server.metadata.uid.as_deref().unwrap_or_default());
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    if matches!(error, Error::Panicked(_)) && failures > MAX_SILENT_FAILURES {
        // The status cannot be planned, because planning is what panics.
        invalid_objects::reject(&ctx, &server.metadata, INTERNAL_ERROR);
    }
    error_policy::handle_error(&ctx, NAME, &format!("{namespace}/{name}"), error, failures)
}
