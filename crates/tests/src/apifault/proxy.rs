//! Forwards requests of the client to the API server and applies the faults of the plan. `trigger` decides which faults
//! fire, `trace` records what happened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::apifault::body::{Identity, short_hash};
use crate::apifault::event::Event;
use crate::apifault::list_cache::{self, ListCache};
use crate::apifault::plan::{Action, EventAction, Plan};
use crate::apifault::process::Process;
use crate::apifault::request::{ApiRequest, Verb, parameter};
use crate::apifault::response::{self, Body};
use crate::apifault::trace::Trace;
use crate::apifault::trigger::{Fired, Outcome, Triggers};
use crate::apifault::upstream::{Upstream, strip_connection_headers};
use crate::apifault::watch::forward;

pub struct Proxy {
    upstream: Upstream,
    state: Mutex<State>,
    gate: watch::Sender<Gate>,
    fired: watch::Sender<u64>,
}

/// State shared by all requests, under one lock so that numbers, trace and faults agree.
#[derive(Debug, Default)]
pub struct State {
    pub triggers: Triggers,
    pub trace: Trace,
    pub client: Option<Arc<Process>>,
    lists: ListCache,
    /// Number of releases so far. A held request waits for the next one.
    releases: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    releases: u64,
    shut_down: bool,
}

/// A request in flight.
pub struct Exchange {
    pub request: ApiRequest,
    pub sequence: u64,
    /// Key of a LIST that can be cached.
    list_key: Option<String>,
}

/// Faults to apply, and the number of releases when they fired.
struct DueFaults {
    fired: Vec<Fired<Action>>,
    releases: u64,
}

/// How a request ends.
enum Ending {
    Response(Response<Body>),
    /// A successful response without a bound.
    Stream(http::response::Parts, kube::client::Body),
    HangUp,
}

impl Proxy {
    pub fn new(upstream: Upstream, plan: Plan) -> Self {
        let state = State { triggers: Triggers::new(plan), ..State::default() };
        let (gate, fired) = (watch::Sender::default(), watch::Sender::default());
        Self { upstream, state: Mutex::new(state), gate, fired }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver of the number of fired faults.
    pub fn fired(&self) -> watch::Receiver<u64> {
        self.fired.subscribe()
    }

    pub fn release(&self) {
        let mut state = self.state();
        state.releases += 1;
        let releases = state.releases;
        self.gate.send_modify(|gate| gate.releases = releases);
    }

    /// Drops everything that is held.
    pub fn shut_down(&self) {
        self.gate.send_modify(|gate| gate.shut_down = true);
    }

    /// Handles a request in a separate task: it completes even if the client exits or disconnects, so that the trace has
    /// every write.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        tokio::spawn(async move { self.process(head, body).await }).await?
    }

    async fn process(self: Arc<Self>, head: Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let (exchange, due) = self.arrive(&head, &body);
        let ending = match self.forward(&exchange, due, head, body).await {
            Ok(ending) => ending,
            Err(error) => {
                let mut state = self.state();
                state.triggers.forget(exchange.sequence);
                state.trace.fail(exchange.sequence, format!("{error:#}"));
                return Err(error);
            }
        };
        let mut state = self.state();
        state.triggers.forget(exchange.sequence);
        let code = match &ending {
            Ending::Response(response) => Some(response.status().as_u16()),
            Ending::Stream(head, _) => Some(head.status.as_u16()),
            Ending::HangUp => None,
        };
        state.trace.close(exchange.sequence, code);
        drop(state);
        match ending {
            Ending::Response(response) => Ok(response),
            Ending::Stream(head, body) => Ok(Response::from_parts(head, forward(self, exchange, body))),
            // An error closes the connection.
            Ending::HangUp => anyhow::bail!("connection closed by a fault"),
        }
    }

    async fn forward(&self, exchange: &Exchange, due: DueFaults, head: Parts, body: Bytes) -> anyhow::Result<Ending> {
        if let Some(ending) = self.apply_all(exchange, due).await? {
            return Ok(ending);
        }
        let upgrade = head.headers.contains_key(header::UPGRADE);
        anyhow::ensure!(!upgrade, "apifault does not support upgraded connections");
        let (mut head, body) = self.upstream.send(head, body).await?.into_parts();
        strip_connection_headers(&mut head.headers);
        let code = head.status.as_u16();
        if exchange.request.is_stream() && head.status.is_success() {
            let ending = self.apply_all(exchange, self.respond(exchange, code, None)).await?;
            return Ok(ending.unwrap_or(Ending::Stream(head, body)));
        }
        let body = body.collect().await.context("reading the response of the API server")?.to_bytes();
        let ending = self.apply_all(exchange, self.respond(exchange, code, Some(&body))).await?;
        Ok(ending.unwrap_or_else(|| Ending::Response(Response::from_parts(head, response::full_body(body)))))
    }

    fn arrive(&self, head: &Parts, body: &Bytes) -> (Exchange, DueFaults) {
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut expected = Identity::from_request(body);
        let request = ApiRequest::parse(&head.method, path, query, text(header::USER_AGENT), &expected);
        expected.version = expected.version.or_else(|| parameter(query, "resourceVersion").map(str::to_owned));
        let list_key =
            (request.verb == Verb::List).then(|| list_cache::key(path, query, text(header::ACCEPT))).flatten();
        let mut state = self.state();
        let State { triggers, trace, lists, .. } = &mut *state;
        let sequence = trace.open(&request, expected, short_hash(body));
        let fired = triggers.arrive(sequence, &request, |nth| has_list(lists, list_key.as_deref(), nth));
        let due = self.record_faults(&mut state, sequence, fired);
        (Exchange { request, sequence, list_key }, due)
    }

    /// Handles the response of the API server. An unbounded response has no body here.
    fn respond(&self, exchange: &Exchange, code: u16, body: Option<&Bytes>) -> DueFaults {
        let object = body.map(|body| Identity::from_response(body)).unwrap_or_default();
        let outcome = if code < 300 { Outcome::Succeeded } else { Outcome::Failed };
        let mut state = self.state();
        let State { triggers, trace, lists, .. } = &mut *state;
        trace.respond(exchange.sequence, &exchange.request, code, object);
        let has_list = |nth: usize| has_list(lists, exchange.list_key.as_deref(), nth);
        let fired = triggers.respond(exchange.sequence, outcome, has_list);
        if let (Some(key), Some(body), Outcome::Succeeded) = (&exchange.list_key, body, outcome) {
            lists.insert(key.clone(), body.clone());
        }
        self.record_faults(&mut state, exchange.sequence, fired)
    }

    /// Records fired faults under the same lock under which they were decided.
    fn record_faults(&self, state: &mut State, sequence: u64, fired: Vec<Fired<Action>>) -> DueFaults {
        for fault in &fired {
            state.trace.record_fault(sequence, &fault.fault);
        }
        self.fired.send_modify(|count| *count += fired.len() as u64);
        DueFaults { fired, releases: state.releases }
    }

    async fn apply_all(&self, exchange: &Exchange, due: DueFaults) -> anyhow::Result<Option<Ending>> {
        for fault in due.fired {
            if let Some(ending) = self.apply(exchange, fault.action, due.releases).await? {
                return Ok(Some(ending));
            }
        }
        Ok(None)
    }

    async fn apply(&self, exchange: &Exchange, action: Action, releases: u64) -> anyhow::Result<Option<Ending>> {
        let client = || self.state().client.clone();
        let no_client = || response::failure(500, None, None, "apifault: the client process is not set");
        Ok(match action {
            Action::Kill => match client() {
                Some(client) => client.kill().await.map(|()| Some(Ending::HangUp))?,
                None => Some(Ending::Response(no_client()?)),
            },
            Action::Stop => match client() {
                Some(client) => client.stop().map(|()| None)?,
                None => Some(Ending::Response(no_client()?)),
            },
            Action::HangUp => Some(Ending::HangUp),
            Action::Answer { code, reason, retry_after } => {
                let response = response::failure(code, reason.as_deref(), retry_after, "by apifault")?;
                Some(Ending::Response(response))
            }
            Action::Delay { milliseconds } => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                None
            }
            Action::Hold => (!self.wait_released(releases).await).then_some(Ending::HangUp),
            Action::OldList { nth } => {
                let list = exchange.list_key.as_deref().and_then(|key| self.state().lists.get(key, nth));
                list.map(|body| response::json(200, body).map(Ending::Response)).transpose()?
            }
        })
    }

    /// Waits for the next release. Returns false if the proxy shuts down first.
    async fn wait_released(&self, releases: u64) -> bool {
        let mut gate = self.gate.subscribe();
        let opened = gate.wait_for(|gate| gate.shut_down || gate.releases > releases).await;
        opened.is_ok_and(|gate| !gate.shut_down)
    }

    /// Returns the action for an event that is about to be forwarded. Returns after the release if the event is held.
    pub async fn handle_event(&self, exchange: &Exchange, event: &Event) -> Option<EventAction> {
        let (action, releases) = {
            let mut state = self.state();
            let fired = state.triggers.handle_event(&exchange.request, event);
            let fault = fired.as_ref().map(|fired| fired.fault.clone());
            state.trace.record_event(exchange.sequence, &exchange.request, event, fault);
            self.fired.send_modify(|count| *count += u64::from(fired.is_some()));
            (fired?.action, state.releases)
        };
        if action == EventAction::Hold {
            self.wait_released(releases).await;
        }
        Some(action)
    }
}

fn has_list(lists: &ListCache, key: Option<&str>, nth: usize) -> bool {
    key.is_some_and(|key| lists.get(key, nth).is_some())
}
