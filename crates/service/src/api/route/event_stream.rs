//! Events by server-sent events and WebSocket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use kube::ResourceExt as _;
use odc_api::http::{Event, EventType};
use odc_core::access::{self, Action, Decision, Target};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{ALL, LISTED_USER, authorize_all, authorize_list, listed_user, wait_until_rejected};
use crate::api::App;
use crate::api::body::Params;
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::events::body;

/// How often a quiet stream sends something, so that proxies keep it open and clients that are gone are noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a WebSocket client may take to receive an event.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn routes() -> Routes {
    let initial = parameter::<bool>("initial", "Sends the existing servers first, then the event synced.");
    let server = parameter::<String>("server", "Server whose events to send.");
    Routes::default()
        .add(
            Operation::get("/events", "streamEvents", "Streams events of servers as server-sent events.")
                .requires(Action::ReadServers)
                .query(&[LISTED_USER, ALL, server, initial])
                .streams::<Event>("text/event-stream"),
            sse,
        )
        .add(
            Operation::get("/events/ws", "streamEventsWebSocket", "Streams events of servers over WebSocket.")
                .requires(Action::ReadServers)
                .query(&[LISTED_USER, ALL, server, initial])
                .upgrades(),
            websocket,
        )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventQuery {
    user: Option<String>,
    #[serde(default)]
    all: bool,
    server: Option<String>,
    #[serde(default)]
    initial: bool,
}

fn authorize_events(app: &App, ctx: &RequestContext, query: &EventQuery) -> Result<()> {
    if query.all {
        authorize_all(app, ctx, Action::ReadServers)?;
    }
    authorize_list(app, ctx, Action::ReadServers, query.user.as_deref())
}

async fn sse(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<EventQuery>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>> {
    authorize_events(&app, &ctx, &query)?;
    let events = events(app, ctx, query).map(|event| {
        let message = sse::Event::default().id(event.id.to_string()).event(event.kind.as_str());
        Ok(message.json_data(&*event).unwrap_or_default())
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

async fn websocket(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<EventQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    authorize_events(&app, &ctx, &query)?;
    let upgrade = upgrade.map_err(|rejection| Error::invalid(rejection.body_text()))?;
    Ok(upgrade.on_upgrade(move |socket| send(socket, events(app, ctx, query))).into_response())
}

/// Sends events until the client closes the connection or does not read.
async fn send(mut socket: WebSocket, events: impl Stream<Item = Arc<Event>>) {
    let mut events = std::pin::pin!(events);
    let mut keep_alive = tokio::time::interval(KEEP_ALIVE);
    loop {
        let message = tokio::select! {
            event = events.next() => match event {
                Some(event) => Message::Text(serde_json::to_string(&*event).unwrap_or_default().into()),
                None => return,
            },
            _ = keep_alive.tick() => Message::Ping(vec![].into()),
            received = socket.recv() => match received {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        match tokio::time::timeout(SEND_TIMEOUT, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Returns the events that a caller sees. The subscription starts before the existing servers are read, so that no change in
/// between is missed.
fn events(app: App, ctx: RequestContext, query: EventQuery) -> impl Stream<Item = Arc<Event>> + Send + 'static {
    let receiver = app.events.subscribe();
    // Events before this one are part of the state that is read next, and must not follow it.
    let start = app.events.next_id();
    let mut first = vec![];
    if query.initial {
        let user = listed_user(&ctx, query.user.as_deref());
        let is_wanted = |name: &str| query.server.as_deref().is_none_or(|wanted| wanted == name);
        for ((user, name), server) in
            app.cluster.devservers.list(user, None, usize::MAX, |server| is_wanted(&server.name_any()))
        {
            let data = body(&user, &server);
            first.push(Arc::new(app.events.event(EventType::Initial, Some(&user), Some(&name), data)));
        }
        first.push(Arc::new(app.events.event(EventType::Synced, None, None, json!({}))));
    }
    let rejected = Box::pin(wait_until_rejected(app.clone(), ctx.clone()));
    let subscription = Subscription { receiver, app, ctx, query, start };
    let live = stream::unfold(subscription, |mut subscription| async {
        let event = subscription.next().await?;
        Some((event, subscription))
    });
    stream::iter(first).chain(live).take_until(rejected)
}

struct Subscription {
    receiver: Receiver<Arc<Event>>,
    app: App,
    ctx: RequestContext,
    query: EventQuery,
    /// The id of the first event to send.
    start: u64,
}

impl Subscription {
    /// Returns the next event that the caller sees, or the number of those that were dropped.
    async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if event.id >= self.start && self.is_visible(&event) => return Some(event),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    return Some(Arc::new(self.app.events.event(
                        EventType::Missed,
                        None,
                        None,
                        json!({"events": missed}),
                    )));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn is_visible(&self, event: &Event) -> bool {
        let Some(user) = event.user.as_deref() else { return true };
        let is_wanted = self.query.user.as_deref().is_none_or(|wanted| wanted == user)
            && self.query.server.as_deref().is_none_or(|wanted| event.server.as_deref() == Some(wanted));
        is_wanted && access::decide(&self.ctx.caller, Action::ReadServers, Target::User(user)) == Decision::Allow
    }
}
