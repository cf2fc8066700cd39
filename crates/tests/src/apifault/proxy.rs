//! Takes one request from the client to the API server and its answer back, with whatever the plan does to it on the
//! way. Deciding is left to `tally`, telling of it to `trace`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::apifault::answer::{self, Body};
use crate::apifault::call::{Call, Verb, parameter};
use crate::apifault::event::Event;
use crate::apifault::lists::{self, Lists};
use crate::apifault::object::{Identity, short_hash};
use crate::apifault::plan::{Action, EventAction, Plan};
use crate::apifault::process::Process;
use crate::apifault::tally::{Firing, Outcome, Tally};
use crate::apifault::trace::Trace;
use crate::apifault::upstream::{Upstream, forget_the_connection};
use crate::apifault::watch::events;

pub struct Proxy {
    upstream: Upstream,
    state: Mutex<State>,
    gate: watch::Sender<Gate>,
    fired: watch::Sender<u64>,
}

/// All that requests share, changed together so that numbers, trace and faults never disagree.
#[derive(Debug, Default)]
pub struct State {
    pub tally: Tally,
    pub trace: Trace,
    pub client: Option<Arc<Process>>,
    lists: Lists,
    /// How often was released so far. What is held waits for the next time.
    released: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    released: u64,
    ended: bool,
}

/// A request on its way.
pub struct Passage {
    pub call: Call,
    pub sequence: u64,
    /// If it is a LIST that can be remembered.
    list: Option<String>,
}

/// Faults to carry out, and the state of the gate when they fired.
struct Due {
    firings: Vec<Firing<Action>>,
    released: u64,
}

/// How a request ends.
enum End {
    Answer(Response<Body>),
    /// A successful answer that goes on.
    Stream(http::response::Parts, kube::client::Body),
    HangUp,
}

impl Proxy {
    pub fn new(upstream: Upstream, plan: Plan) -> Self {
        let state = State { tally: Tally::new(plan), ..State::default() };
        let (gate, fired) = (watch::Sender::default(), watch::Sender::default());
        Self { upstream, state: Mutex::new(state), gate, fired }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn fired(&self) -> watch::Receiver<u64> {
        self.fired.subscribe()
    }

    pub fn release(&self) {
        let mut state = self.state();
        state.released += 1;
        let released = state.released;
        self.gate.send_modify(|gate| gate.released = released);
    }

    /// What is held is given up.
    pub fn end(&self) {
        self.gate.send_modify(|gate| gate.ended = true);
    }

    /// In a task of its own: what a client has sent takes its way even when the client dies or gives up, so the trace
    /// knows every write.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        tokio::spawn(async move { self.pass(head, body).await }).await?
    }

    async fn pass(self: Arc<Self>, head: Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let (passage, due) = self.arrive(&head, &body);
        let end = match self.exchange(&passage, due, head, body).await {
            Ok(end) => end,
            Err(error) => {
                let mut state = self.state();
                state.tally.lost(passage.sequence);
                state.trace.failed(passage.sequence, format!("{error:#}"));
                return Err(error);
            }
        };
        let mut state = self.state();
        state.tally.lost(passage.sequence);
        let code = match &end {
            End::Answer(answer) => Some(answer.status().as_u16()),
            End::Stream(head, _) => Some(head.status.as_u16()),
            End::HangUp => None,
        };
        state.trace.close(passage.sequence, code);
        drop(state);
        match end {
            End::Answer(answer) => Ok(answer),
            End::Stream(head, body) => Ok(Response::from_parts(head, events(self, passage, body))),
            // An error closes the connection.
            End::HangUp => anyhow::bail!("hung up as planned"),
        }
    }

    async fn exchange(&self, passage: &Passage, due: Due, head: Parts, body: Bytes) -> anyhow::Result<End> {
        if let Some(end) = self.carry_out(passage, due).await? {
            return Ok(end);
        }
        let upgrade = head.headers.contains_key(header::UPGRADE);
        anyhow::ensure!(!upgrade, "apifault passes no upgraded connections");
        let (mut head, body) = self.upstream.send(head, body).await?.into_parts();
        forget_the_connection(&mut head.headers);
        let code = head.status.as_u16();
        if passage.call.is_stream() && head.status.is_success() {
            let end = self.carry_out(passage, self.answered(passage, code, None)).await?;
            return Ok(end.unwrap_or(End::Stream(head, body)));
        }
        let body = body.collect().await.context("reading the API server's answer")?.to_bytes();
        let end = self.carry_out(passage, self.answered(passage, code, Some(&body))).await?;
        Ok(end.unwrap_or_else(|| End::Answer(Response::from_parts(head, answer::whole(body)))))
    }

    fn arrive(&self, head: &Parts, body: &Bytes) -> (Passage, Due) {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut stated = Identity::stated(body);
        let call = Call::read(&head.method, path, query, text(header::USER_AGENT), &stated);
        stated.version = stated.version.or_else(|| parameter(query, "resourceVersion").map(str::to_owned));
        let list = (call.verb == Verb::List).then(|| lists::key(path, query, text(header::ACCEPT))).flatten();
        let mut state = self.state();
        let State { tally, trace, lists, .. } = &mut *state;
        let sequence = trace.open(&call, stated, short_hash(body));
        let firings = tally.arrive(sequence, &call, |nth| remembers(lists, list.as_deref(), nth));
        let due = self.due(&mut state, sequence, firings);
        (Passage { call, sequence, list }, due)
    }

    /// The body is missing where it has no end.
    fn answered(&self, passage: &Passage, code: u16, body: Option<&Bytes>) -> Due {
        let found = body.map(|body| Identity::found(body)).unwrap_or_default();
        let outcome = if code < 300 { Outcome::Done } else { Outcome::Refused };
        let mut state = self.state();
        let State { tally, trace, lists, .. } = &mut *state;
        trace.answered(passage.sequence, &passage.call, code, found);
        let remembers = |nth: usize| remembers(lists, passage.list.as_deref(), nth);
        let firings = tally.answered(passage.sequence, outcome, remembers);
        if let (Some(key), Some(body), Outcome::Done) = (&passage.list, body, outcome) {
            lists.remember(key.clone(), body.clone());
        }
        self.due(&mut state, passage.sequence, firings)
    }

    /// Notes what fires, in the same breath as it was decided.
    fn due(&self, state: &mut State, sequence: u64, firings: Vec<Firing<Action>>) -> Due {
        for firing in &firings {
            state.trace.fired(sequence, &firing.fault);
        }
        self.fired.send_modify(|count| *count += firings.len() as u64);
        Due { firings, released: state.released }
    }

    async fn carry_out(&self, passage: &Passage, due: Due) -> anyhow::Result<Option<End>> {
        for firing in due.firings {
            if let Some(end) = self.act(passage, firing.action, due.released).await? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    async fn act(&self, passage: &Passage, action: Action, released: u64) -> anyhow::Result<Option<End>> {
        let client = || self.state().client.clone();
        let nobody = || answer::failure(500, None, None, "apifault: nobody said which process the client is");
        Ok(match action {
            Action::Kill => match client() {
                Some(client) => client.kill().await.map(|()| Some(End::HangUp))?,
                None => Some(End::Answer(nobody()?)),
            },
            Action::Stop => match client() {
                Some(client) => client.stop().map(|()| None)?,
                None => Some(End::Answer(nobody()?)),
            },
            Action::HangUp => Some(End::HangUp),
            Action::Answer { code, reason, retry_after } => {
                let answer = answer::failure(code, reason.as_deref(), retry_after, "by apifault")?;
                Some(End::Answer(answer))
            }
            Action::Delay { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                None
            }
            Action::Hold => (!self.held_until_released(released).await).then_some(End::HangUp),
            Action::OldList { nth } => {
                let list = passage.list.as_deref().and_then(|key| self.state().lists.get(key, nth));
                list.map(|body| answer::json_answer(200, body).map(End::Answer)).transpose()?
            }
        })
    }

    /// False when the proxy ends first.
    async fn held_until_released(&self, since: u64) -> bool {
        let mut gate = self.gate.subscribe();
        let opened = gate.wait_for(|gate| gate.ended || gate.released > since).await;
        opened.is_ok_and(|gate| !gate.ended)
    }

    /// An event is about to be passed on: what shall become of it. A held one has waited when this returns.
    pub async fn event(&self, passage: &Passage, event: &Event) -> Option<EventAction> {
        let (action, released) = {
            let mut state = self.state();
            let firing = state.tally.event(&passage.call, event);
            let fault = firing.as_ref().map(|firing| firing.fault.clone());
            state.trace.passed(passage.sequence, &passage.call, event, fault);
            self.fired.send_modify(|count| *count += u64::from(firing.is_some()));
            (firing?.action, state.released)
        };
        if action == EventAction::Hold {
            self.held_until_released(released).await;
        }
        Some(action)
    }
}

fn remembers(lists: &Lists, key: Option<&str>, nth: usize) -> bool {
    key.is_some_and(|key| lists.get(key, nth).is_some())
}
