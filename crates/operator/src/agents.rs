//! Talks to the agents in servers: says what `odc_core::devserver` decided to say, and keeps what they answered as hints.
//! Nobody waits for them.

pub mod authority;
pub mod dial;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use odc_api::v1alpha1::DevServer;
use odc_control::{About, Quiesced, Reply, Request, Signals, Text};
use odc_core::devserver::agents::{AgentSeen, Call, Say, Told};
use odc_core::devserver::unfit::Unfit;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::context::Context;
use crate::metrics::Called;
use dial::Dial;

/// Connections that are being made at once.
const REACHED_AT_ONCE: usize = 256;
/// Conversations at once. Each is a key exchange; more would only take the time from the others.
const AT_ONCE: usize = 16;
/// Stops at once. They take as long as people's own scripts, so they have room of their own.
const STOPS_AT_ONCE: usize = 128;
/// Names of conversations.
const TELL: &str = "tell";
const QUIESCE: &str = "quiesce";
/// For everything that is answered from memory.
const ANSWER: Duration = Duration::from_secs(10);

/// Which conversations are under way: the same one is not begun twice.
pub struct Calls {
    under_way: Mutex<HashSet<(String, &'static str)>>,
    reached: Semaphore,
    at_once: Semaphore,
    stops: Semaphore,
    key: dial::Key,
}

impl Calls {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            under_way: Mutex::default(),
            reached: Semaphore::new(REACHED_AT_ONCE),
            at_once: Semaphore::new(AT_ONCE),
            stops: Semaphore::new(STOPS_AT_ONCE),
            key: dial::Key::fresh()?,
        })
    }

    /// False if it is under way already, or one that must not overtake it is: to tell an agent how long its server has
    /// means that no stop takes place, so that and a stop never meet.
    fn begin(&self, call: &(String, &'static str)) -> bool {
        let (pod, name) = call;
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let other = match *name {
            TELL => Some(QUIESCE),
            QUIESCE => Some(TELL),
            _ => None,
        };
        if other.is_some_and(|other| under_way.contains(&(pod.clone(), other))) {
            return false;
        }
        under_way.insert(call.clone())
    }
}

/// A conversation, and the look at its server that follows however it ends.
struct UnderWay {
    ctx: Arc<Context>,
    call: (String, &'static str),
    server: (String, String),
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.ctx.calls.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.call);
        self.ctx.look_at_server(&self.server.0, &self.server.1);
    }
}

/// Begins what is to be said; the server is looked at again when it was.
pub fn make(ctx: &Arc<Context>, server: &DevServer, calls: Vec<Call>) {
    for call in calls {
        let name = name(&call.say);
        let this = (call.pod.clone(), name);
        let uid = server.metadata.uid.clone().unwrap_or_default();
        if matches!(call.say, Say::Quiesce(_)) {
            let now = ctx.now();
            note(ctx, &uid, &call.pod, |agent| agent.stops(now));
        }
        // Whatever is under way has the server looked at again when it ends.
        if !ctx.calls.begin(&this) {
            continue;
        }
        let under_way = UnderWay { ctx: ctx.clone(), call: this, server: crate::follow::key(server) };
        tokio::spawn(async move {
            let ctx = &under_way.ctx;
            let reached = {
                let Ok(_permit) = ctx.calls.reached.acquire().await else { return };
                dial::reach(&call.address).await
            };
            let room = if matches!(call.say, Say::Quiesce(_)) { &ctx.calls.stops } else { &ctx.calls.at_once };
            let Ok(_permit) = room.acquire().await else { return };
            // On the heap from here on, so that the many that wait for their turn are small.
            let good = Box::pin(say(ctx, &uid, call, reached)).await;
            ctx.metrics.calls.get_or_create(&Called { say: name, ok: good.to_string() }).inc();
        });
    }
}

fn name(say: &Say) -> &'static str {
    match say {
        Say::Tell(_) => TELL,
        Say::Signals => "signals",
        Say::Quiesce(_) => QUIESCE,
    }
}

/// Of a server that is gone meanwhile, nothing is kept.
fn note(ctx: &Context, uid: &str, pod: &str, change: impl FnOnce(&mut AgentSeen)) {
    ctx.hints.change(uid, |hint| change(hint.agent(pod)));
}

/// True if it was said and taken.
async fn say(ctx: &Context, uid: &str, call: Call, reached: Result<TcpStream, String>) -> bool {
    let Some(authority) = ctx.authority.borrow().usable() else { return false };
    // Whoever leads now may have said something newer.
    if !ctx.leads() {
        return false;
    }
    let Call { pod, address, host_key, say } = call;
    let dial = Dial { authority: &authority, key: &ctx.calls.key, uid, host_key: &host_key, now: ctx.now() };
    match say {
        Say::Tell(told) => {
            let done = async { taken(dial.ask(reached?, &words(&told, ctx.now()), ANSWER).await?) }.await;
            if let Err(why) = &done {
                tracing::debug!(pod, address, why, "an agent could not be told");
            }
            let now = ctx.now();
            let good = done.is_ok();
            note(ctx, uid, &pod, |agent| if good { agent.took(told, now) } else { agent.was_deaf(now) });
            good
        }
        Say::Signals => {
            let signals = async { signals(dial.ask(reached?, &[Request::Signals], ANSWER).await?) }.await;
            let (now, good) = (ctx.now(), signals.is_ok());
            note(ctx, uid, &pod, |agent| agent.answered(signals, now));
            good
        }
        Say::Quiesce(within) => {
            let request = Request::Quiesce { within_seconds: within.as_secs() };
            let done = async { quiesced(dial.ask(reached?, &[request], within + Duration::from_secs(2)).await?) }.await;
            let now = ctx.now();
            let unfit = match &done {
                Ok(done) => Unfit::of(done, now),
                Err(why) => {
                    tracing::info!(pod, address, why, "an agent did not say that its server is fit for a stop");
                    None
                }
            };
            let good = done.is_ok() && unfit.is_none();
            note(ctx, uid, &pod, |agent| agent.stopped(unfit));
            good
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

fn quiesced(replies: Vec<Reply>) -> Result<Quiesced, String> {
    match replies.into_iter().next() {
        Some(Reply::Quiesced(done)) => Ok(*done),
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("it answered {other:?}")),
    }
}

fn signals(replies: Vec<Reply>) -> Result<Signals, String> {
    match replies.into_iter().next() {
        Some(Reply::Signals(signals)) => Ok(*signals),
        Some(Reply::Refused { reason }) => Err(reason.into_string()),
        other => Err(format!("it answered {other:?}")),
    }
}
