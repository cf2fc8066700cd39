//! Drives one server towards its spec. Reads and writes here; decides in `odc_core::devserver`.

mod answer;
mod observe;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::Api;
use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};
use odc_api::v1alpha1::{DevServer, DevServerStatus, Phase};
use odc_core::devserver::{self, Plan};
use odc_core::object::Kind;
use odc_core::plan::{Again, Write};
use serde_json::Value;

use crate::agents;
use crate::apply::apply;
use crate::context::Context;
use crate::error::{Class, Error};
use crate::facts::Known;
use crate::report::{self, Manager};
use crate::request::in_time;
use crate::requeue;
use crate::unreadable;

pub const NAME: &str = "devserver";
/// A decision asks at most for keys, the Secret and the entrypoint, each once.
const ROUNDS: usize = 5;
/// Failures in a row before the owner is told.
const PATIENCE: u32 = 2;
/// What the owner of a server reads over which we fall.
const STUMBLES: &str = "ODC fails at this server by a mistake of its own, and tries again from time to time. \
    What runs goes on. Tell your administrator, or delete it and create another.";
/// How long to wait for a watch that is behind.
const CATCH_UP: Duration = Duration::from_secs(1);

pub async fn reconcile(server: Arc<DevServer>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let done = drive(&server, &ctx).await;
    ctx.metrics.looked(NAME, started.elapsed());
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    match done {
        Ok(action) => {
            let stood = ctx.hints.change(uid, |hint| {
                hint.failures = 0;
                hint.obstacle.take().is_some()
            });
            // What people were told stood in the way does so no more.
            Ok(if stood { Action::requeue(Duration::ZERO) } else { action })
        }
        Err(error) => {
            tell_obstacle(&server, &ctx, uid, &error).await;
            Err(error)
        }
    }
}

/// What goes wrong again and again is told to the owner: they may be the one who can mend it.
async fn tell_obstacle(server: &DevServer, ctx: &Context, uid: &str, error: &Error) {
    if error.class() == Class::Conflict || matches!(error, Error::NotLeading) {
        return;
    }
    let again = ctx.hints.change(uid, |hint| {
        hint.obstacle = (hint.failures >= PATIENCE).then(|| error.sentence());
        hint.obstacle.is_some()
    });
    if !again {
        return;
    }
    if let Some(status) = decide(server, ctx, None).status
        && let Err(other) = report::status(ctx, server, own_part(status), Manager::Driver).await
    {
        // The obstacle itself is being reported; that this cannot be told either is no news.
        tracing::debug!(error = &other as &dyn std::error::Error, "an obstacle was not told");
    }
}

async fn drive(server: &DevServer, ctx: &Arc<Context>) -> Result<Action, Error> {
    if is_behind(server, ctx).await? {
        // The watch will tell; this is for the case that it does not.
        return Ok(Action::requeue(CATCH_UP));
    }
    let mut keys = None;
    for _ in 0..ROUNDS {
        // One that went meanwhile needs nothing more, and answers about it are not kept.
        if !ctx.hints.knows(server.metadata.uid.as_deref().unwrap_or_default()) {
            return Ok(Action::await_change());
        }
        let plan = decide(server, ctx, keys.as_ref());
        if let Some(question) = &plan.ask {
            answer::answer(ctx, server, question, &mut keys).await?;
            continue;
        }
        return carry_out(server, ctx, plan).await;
    }
    Err(Error::Malformed { what: "a plan".into(), reason: "it asks for more than there is".into() })
}

/// Whether our copy of the server is older than that of its pods. A grant is stored before its pods are made and each pod
/// carries its number, so a number we do not know is news. Deciding without it would stop what runs rightly; it comes
/// when a list was old, which is why the API server itself is asked.
async fn is_behind(server: &DevServer, ctx: &Context) -> Result<bool, Error> {
    let known =
        server.status.as_ref().and_then(|status| status.admission.as_ref()).map_or(0, |admission| admission.run);
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    if observe::Observed::of(ctx, server).newest_run(uid).is_none_or(|run| run <= known) {
        return Ok(false);
    }
    let name = server.name_any();
    let api: Api<DevServer> = Api::namespaced(ctx.client.clone(), &server.namespace().unwrap_or_default());
    let answer = in_time(api.get_metadata_opt(&name)).await;
    let stored = answer.map_err(|source| Error::Read { kind: Kind::DevServer, name, source: Box::new(source) })?;
    Ok(stored.is_none_or(|stored| stored.metadata.resource_version != server.metadata.resource_version))
}

fn decide(server: &DevServer, ctx: &Context, keys: Option<&devserver::build::Keys>) -> Plan {
    let settings = &ctx.config.server;
    let known = Known::of(ctx, server);
    let facts = known.facts(&settings.default_image);
    let checked = devserver::validate::validate(server, &facts);
    let observed = observe::Observed::of(ctx, server);
    devserver::decide(server, &checked, &observed.seen(keys), settings, ctx.now())
}

async fn carry_out(server: &DevServer, ctx: &Arc<Context>, plan: Plan) -> Result<Action, Error> {
    let uid = server.metadata.uid.as_deref().unwrap_or_default();
    for write in &plan.writes {
        let stored = apply(ctx, write).await.inspect_err(|error| answer::learn_from(ctx, uid, error))?;
        if let (Write::Create(object), Some(stored)) = (write, stored)
            && object.kind == Kind::Secret
        {
            answer::learn_secret(ctx, uid, &stored);
        }
    }
    let stored = server.status.as_ref().and_then(|status| status.phase);
    let held = plan.status.is_none() && plan.phase.is_some() && plan.phase != stored;
    let now = ctx.now();
    ctx.hints.change(uid, |hint| {
        match plan.phase.filter(|_| held) {
            Some(phase) if hint.held.is_none_or(|(before, _)| before != phase) => hint.held = Some((phase, now)),
            Some(_) => {}
            None => hint.held = None,
        }
        if plan.phase == Some(Phase::Running) {
            hint.agents.iter_mut().for_each(|(_, agent)| agent.goes_on());
        }
    });
    agents::make(ctx, server, plan.calls);
    if let Some(status) = plan.status {
        let written = report::status(ctx, server, own_part(status), Manager::Driver).await?;
        started(ctx, server, &written);
        if is_somebodys(ctx, server) {
            ctx.reporter.tell(&server.object_ref(&()), &plan.events);
        }
    }
    Ok(match plan.again {
        Again::OnChange => Action::await_change(),
        Again::After(time) => Action::requeue(time),
    })
}

/// Only in the namespaces of users may we write events.
fn is_somebodys(ctx: &Context, server: &DevServer) -> bool {
    server.metadata.namespace.as_deref().is_some_and(|namespace| ctx.owner(namespace).is_some())
}

/// The status without what the queue writes.
fn own_part(status: DevServerStatus) -> Value {
    let own = DevServerStatus { admission: None, flavor: None, ..status };
    // A status always becomes JSON.
    serde_json::to_value(own).unwrap_or_default()
}

fn started(ctx: &Context, before: &DevServer, now: &DevServer) {
    let running = |server: &DevServer| server.status.as_ref().and_then(|status| status.running_since.clone());
    let granted = now.status.as_ref().and_then(|status| status.admission.as_ref()?.granted_at.clone());
    if let (None, Some(since), Some(granted)) = (running(before), running(now), granted) {
        ctx.metrics.start_seconds.observe(since.0.duration_since(granted.0).as_secs_f64().max(0.0));
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the applier's signature")]
pub fn on_error(server: Arc<DevServer>, error: &Error, ctx: Arc<Context>) -> Action {
    let failures = ctx.hints.failed(server.metadata.uid.as_deref().unwrap_or_default());
    let name = server.metadata.name.as_deref().unwrap_or_default();
    let namespace = server.metadata.namespace.as_deref().unwrap_or_default();
    if matches!(error, Error::Panicked(_)) && failures > PATIENCE {
        // No plan can say so: making one is what fails.
        unreadable::refuse(&ctx, &server.metadata, STUMBLES);
    }
    requeue::failed(&ctx, NAME, &format!("{namespace}/{name}"), error, failures)
}
