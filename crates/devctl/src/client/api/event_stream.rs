//! Watches: server-sent events of servers, and requests that wait for a change of other objects.

mod bounded;

use std::collections::VecDeque;
use std::time::Duration;

use ::http::{StatusCode, header};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use odc_api::http::{Event, EventType};
use sse_stream::SseByteStream;

use super::http::{Http, Request, Retries};
use super::resource::{Object, ResourceOf};
use crate::client::WatchEvent;
use crate::error::{Error, Kind, Result, format_chain};
use crate::model::server::ServerSummary;

/// The time before a connection is established again: at first and at most.
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(15);

/// How long a request for a change waits.
const CHANGE_WAIT: Duration = Duration::from_secs(25);

/// Delays that double until something is received.
struct Backoff(Duration);

impl Backoff {
    const fn new() -> Self {
        Self(FIRST_DELAY)
    }

    fn next(&mut self) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(MAX_DELAY);
        delay
    }
}

/// Reports whether a watch cannot succeed later.
const fn is_permanent(error: &Error) -> bool {
    matches!(error.kind, Kind::Denied | Kind::NotFound | Kind::Usage)
}

/// Watches servers. The stream ends only after an error that is permanent.
pub fn watch(http: Http, request: Request) -> BoxStream<'static, Result<WatchEvent>> {
    let request = request.header("accept", "text/event-stream").header("accept-encoding", "identity");
    let watch = ServerWatch { http, request, events: None, delay: None, backoff: Backoff::new(), is_ended: false };
    stream::unfold(watch, |mut watch| async {
        if watch.is_ended {
            return None;
        }
        let event = watch.next().await;
        watch.is_ended = event.is_err();
        Some((event, watch))
    })
    .boxed()
}

struct ServerWatch {
    http: Http,
    request: Request,
    /// The current connection.
    events: Option<BoxStream<'static, Result<Event>>>,
    /// The time until the next connection.
    delay: Option<Duration>,
    backoff: Backoff,
    is_ended: bool,
}

impl ServerWatch {
    async fn next(&mut self) -> Result<WatchEvent> {
        loop {
            let Some(events) = &mut self.events else {
                if let Some(delay) = self.delay.take() {
                    tokio::time::sleep(delay).await;
                }
                match self.http.stream(&self.request).await {
                    Ok(body) => self.events = Some(parse(body)),
                    Err(error) if is_permanent(&error) => return Err(error),
                    Err(error) => return Ok(self.interrupt(error.message)),
                }
                return Ok(WatchEvent::Init);
            };
            match events.next().await {
                Some(Ok(event)) => {
                    self.backoff = Backoff::new();
                    match to_watch_event(event)? {
                        Received::Event(event) => return Ok(event),
                        Received::Missed => self.events = None,
                        Received::Other => {}
                    }
                }
                Some(Err(error)) => return Ok(self.interrupt(error.message)),
                None => return Ok(self.interrupt("the API closed the stream".to_owned())),
            }
        }
    }

    fn interrupt(&mut self, cause: String) -> WatchEvent {
        self.events = None;
        self.delay = Some(self.backoff.next());
        WatchEvent::Interrupted(cause)
    }
}

/// Parses the body of a stream.
fn parse(body: kube::client::Body) -> BoxStream<'static, Result<Event>> {
    use http_body_util::BodyExt as _;
    let events = SseByteStream::new(bounded::bounded(body.into_data_stream()));
    let failed =
        |error: &dyn std::error::Error| Error::failed(format!("lost the event stream: {}", format_chain(error)));
    let events = events.filter_map(move |event| {
        let event = match event {
            Ok(event) => event
                .data
                .filter(|data| !data.is_empty())
                .map(|data| serde_json::from_str(&data).map_err(|error| failed(&error))),
            Err(error) => Some(Err(failed(&error))),
        };
        std::future::ready(event)
    });
    events.boxed()
}

#[derive(Debug)]
enum Received {
    Event(WatchEvent),
    /// Events were dropped, so the state must be read again.
    Missed,
    /// It does not change a server, or repeats what another event says.
    Other,
}

fn to_watch_event(event: Event) -> Result<Received> {
    let apply = |event: Event| ServerSummary::from_value(event.data).map(Box::new);
    Ok(match event.kind {
        EventType::Initial | EventType::Created | EventType::Updated | EventType::State => {
            Received::Event(WatchEvent::Apply(apply(event)?))
        }
        EventType::Synced => Received::Event(WatchEvent::InitDone),
        EventType::Deleted => Received::Event(WatchEvent::Delete(apply(event)?)),
        EventType::Missed => Received::Missed,
        EventType::Idle
        | EventType::Active
        | EventType::Shared
        | EventType::Unshared
        | EventType::Error
        | EventType::Heartbeat
        | EventType::Connected
        | EventType::Disconnected
        | EventType::Resources
        | EventType::Tags => Received::Other,
    })
}

/// Watches one object by requests that wait until its version changes.
pub fn watch_object<K>(http: Http, request: Request) -> BoxStream<'static, Result<WatchEvent<K>>>
where
    K: Object + Clone + Send + 'static,
    ResourceOf<K>: Send,
{
    // A failed request is reported, so that a view can say that the connection is lost.
    let request = request.retries(Retries::Never);
    let watch =
        ObjectWatch { http, request, last: None, pending: VecDeque::from([WatchEvent::Init]), backoff: Backoff::new() };
    stream::unfold(Some(watch), |watch| async {
        let mut watch = watch?;
        let event = watch.next().await;
        let is_ended = event.is_err();
        Some((event, (!is_ended).then_some(watch)))
    })
    .boxed()
}

struct ObjectWatch<K> {
    http: Http,
    request: Request,
    /// The object and its version, if it existed at the last request.
    last: Option<(K, String)>,
    pending: VecDeque<WatchEvent<K>>,
    backoff: Backoff,
}

impl<K: Object + Clone> ObjectWatch<K> {
    async fn next(&mut self) -> Result<WatchEvent<K>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                let is_first = matches!(event, WatchEvent::Init);
                if is_first {
                    self.read_first().await?;
                }
                return Ok(event);
            }
            self.read_next().await?;
        }
    }

    /// Reads the object as a list would.
    async fn read_first(&mut self) -> Result<()> {
        match self.read(self.request.clone()).await? {
            Read::Object(object, version) => {
                self.pending.push_back(WatchEvent::Apply(Box::new(object.clone())));
                self.last = Some((object, version));
            }
            Read::Missing | Read::Same => {}
            Read::Failed(cause) => {
                self.pending.push_back(WatchEvent::Interrupted(cause));
                self.pending.push_back(WatchEvent::Init);
                return Ok(());
            }
        }
        self.pending.push_back(WatchEvent::InitDone);
        Ok(())
    }

    /// Waits until the object has another version.
    async fn read_next(&mut self) -> Result<()> {
        let request = if let Some((_, version)) = &self.last {
            self.request.clone().header("if-none-match", version.clone()).wait(CHANGE_WAIT)
        } else {
            tokio::time::sleep(FIRST_DELAY).await;
            self.request.clone()
        };
        match self.read(request).await? {
            Read::Object(object, version) => {
                self.backoff = Backoff::new();
                self.pending.push_back(WatchEvent::Apply(Box::new(object.clone())));
                self.last = Some((object, version));
            }
            Read::Same => {}
            Read::Missing => {
                self.pending.extend(self.last.take().map(|(object, _)| WatchEvent::Delete(Box::new(object))));
            }
            Read::Failed(cause) => self.pending.push_back(WatchEvent::Interrupted(cause)),
        }
        Ok(())
    }

    async fn read(&mut self, request: Request) -> Result<Read<K>> {
        let response = match self.http.send(&request).await {
            Ok(response) => response,
            Err(error) if error.kind == Kind::NotFound => return Ok(Read::Missing),
            Err(error) if is_permanent(&error) => return Err(error),
            Err(error) => {
                tokio::time::sleep(self.backoff.next()).await;
                return Ok(Read::Failed(error.message));
            }
        };
        if response.status == StatusCode::NOT_MODIFIED {
            return Ok(Read::Same);
        }
        let version = response.header(header::ETAG).unwrap_or_default().to_owned();
        Ok(Read::Object(K::from_resource(response.parse(&self.http)?), version))
    }
}

enum Read<K> {
    Object(K, String),
    /// The version is still the same.
    Same,
    Missing,
    Failed(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, data: &serde_json::Value) -> Event {
        let event = json!({"id": 1, "type": kind, "at": "2026-01-01T00:00:00Z", "source": "test", "data": data});
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn events_of_servers_become_watch_events() {
        let server = json!({"name": "box", "user": "ada", "uid": "u", "createdAt": null, "resourceVersion": "7",
            "observedAt": "2026-01-01T00:00:00Z", "spec": {"home": {}}, "status": {"phase": "Running"}});
        let received = |kind: &str| format!("{:?}", to_watch_event(event(kind, &server)).unwrap());
        for kind in ["initial", "created", "updated", "state"] {
            assert!(received(kind).starts_with("Event(Apply("), "{kind}");
        }
        assert!(received("deleted").starts_with("Event(Delete("));
        assert_eq!(received("synced"), "Event(InitDone)");
        assert_eq!(received("missed"), "Missed");
        assert_eq!(received("heartbeat"), "Other");
    }

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let mut backoff = Backoff::new();
        let delays: Vec<u128> = (0..7).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 15000, 15000]);
    }
}
