//! Talks to the agents in servers: says what `odc_core::devserver` decided to say, and keeps what they answered as hints.
//! Nobody waits for them.

pub mod authority;
pub mod dial;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use odc_api::v1alpha1::DevServer;
use odc_control::{About, Reply, Request, Signals, Text};
use odc_core::devserver::agents::{AgentSeen, Answer, Call, Failed, Quiesce, Say, Told};
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::metrics::Called;
use dial::Dial;

/// Conversations at once. Each is a key exchange; more would only take the time from the others.
const AT_ONCE: usize = 16;
/// For everything that is answered from memory.
const ANSWER: Duration = Duration::from_secs(10);

/// Which conversations are under way: the same one is not begun twice.
pub struct Calls {
    under_way: Mutex<HashSet<(String, &'static str)>>,
    at_once: Semaphore,
    key: dial::Key,
}

impl Calls {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { under_way: Mutex::default(), at_once: Semaphore::new(AT_ONCE), key: dial::Key::fresh()? })
    }

    fn begin(&self, call: &(String, &'static str)) -> bool {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(call.clone())
    }

    fn end(&self, call: &(String, &'static str)) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(call);
    }
}

/// Begins what is to be said; the server is looked at again when it was.
pub fn make(ctx: &Arc<Context>, server: &DevServer, calls: Vec<Call>) {
    for call in calls {
        let name = name(&call.say);
        let this = (call.pod.clone(), name);
        if !ctx.calls.begin(&this) {
            continue;
        }
        let uid = server.metadata.uid.clone().unwrap_or_default();
        if matches!(call.say, Say::Quiesce(_)) {
            let now = ctx.now();
            note(ctx, &uid, &call.pod, |agent| {
                if agent.quiesce == Quiesce::NotAsked {
                    agent.quiesce = Quiesce::Asked(now);
                }
            });
        }
        let (namespace, server) = crate::follow::key(server);
        let ctx = ctx.clone();
        tokio::spawn(async move {
            let good = say(&ctx, &uid, call).await;
            ctx.metrics.calls.get_or_create(&Called { say: name, ok: good.to_string() }).inc();
            ctx.calls.end(&this);
            ctx.look_at_server(&namespace, &server);
        });
    }
}

fn name(say: &Say) -> &'static str {
    match say {
        Say::Tell(_) => "tell",
        Say::Signals => "signals",
        Say::Quiesce(_) => "quiesce",
    }
}

fn note(ctx: &Context, uid: &str, pod: &str, change: impl FnOnce(&mut AgentSeen)) {
    ctx.hints.change(uid, |hint| change(hint.agents.entry(pod.to_owned()).or_default()));
}

/// True if it was said and taken.
async fn say(ctx: &Context, uid: &str, call: Call) -> bool {
    let Ok(_permit) = ctx.calls.at_once.acquire().await else { return false };
    let Some(authority) = ctx.authority.borrow().clone() else { return false };
    let Call { pod, address, host_key, say } = call;
    let dial = Dial {
        authority: &authority,
        key: &ctx.calls.key,
        uid,
        address: &address,
        host_key: &host_key,
        now: ctx.now(),
    };
    match say {
        Say::Tell(told) => {
            let done = async { taken(dial.ask(&words(&told, ctx.now()), ANSWER).await?) }.await;
            if let Err(why) = &done {
                tracing::debug!(pod, address, why, "an agent could not be told");
            }
            let now = ctx.now();
            let good = done.is_ok();
            note(ctx, uid, &pod, |agent| {
                if good {
                    (agent.told, agent.deaf) = (Some(*told), None);
                } else {
                    let times = agent.deaf.map_or(0, |deaf| deaf.times).saturating_add(1);
                    agent.deaf = Some(Failed { at: now, times });
                }
            });
            good
        }
        Say::Signals => {
            let signals = async { signals(dial.ask(&[Request::Signals], ANSWER).await?) }.await;
            let (now, good) = (ctx.now(), signals.is_ok());
            note(ctx, uid, &pod, |agent| {
                let before = agent.answer.as_ref().map_or(0, |answer| answer.failures);
                let failures = if good { 0 } else { before.saturating_add(1) };
                agent.answer = Some(Answer { at: now, signals, failures });
            });
            good
        }
        Say::Quiesce(within) => {
            let request = Request::Quiesce { within_seconds: within.as_secs() };
            let done = dial.ask(&[request], within + Duration::from_secs(2)).await;
            if let Err(why) = &done {
                tracing::debug!(pod, address, why, "an agent did not quiesce; its container is asked to stop instead");
            }
            note(ctx, uid, &pod, |agent| agent.quiesce = Quiesce::Over);
            done.is_ok()
        }
    }
}

/// Everything, in an order in which each may be the last that arrives.
fn words(told: &Told, now: jiff::Timestamp) -> Vec<Request> {
    let left = |at: jiff::Timestamp| Duration::try_from(now.duration_until(at)).unwrap_or_default().as_secs();
    let mut all = vec![
        Request::SetAccess(told.access.clone()),
        Request::SetDeadline { remaining_seconds: told.expires_at.map(left), idle: told.idle },
        Request::Notify { about: About::Idle, text: told.notice.as_deref().map(Text::new) },
    ];
    all.extend(told.verdict.as_deref().map(|verdict| Request::TellIdle { verdict: Text::new(verdict) }));
    all.extend(told.jupyter.map(|on| Request::Jupyter { on }));
    all
}

fn taken(replies: Vec<Reply>) -> Result<(), String> {
    for reply in replies {
        if let Reply::Refused { reason } = reply {
            return Err(reason.into_string());
        }
    }
    Ok(())
}

fn signals(replies: Vec<Reply>) -> Result<Signals, String> {
    match replies.into_iter().next() {
        Some(Reply::Signals(signals)) => Ok(*signals),
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("it answered {other:?}")),
    }
}
