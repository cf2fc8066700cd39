//! Kubernetes Events of a server and its pods.

use ::kube::api::{Api, ListParams};
use ::kube::runtime::{WatchStreamExt as _, watcher};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event as KubeEvent;

use super::KubeClient;
use super::error::watch_error;
use crate::client::{Event, Events};
use crate::error::Result;

#[async_trait]
impl Events for KubeClient {
    async fn events(&self, server: &str) -> Result<Vec<Event>> {
        let api: Api<KubeEvent> = self.own_api();
        let list = api.list(&ListParams::default()).await.map_err(|error| self.error(error))?;
        let mut events: Vec<Event> =
            list.items.iter().filter(|event| involves(event, server)).map(Event::from).collect();
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn watch_events(&self, server: &str) -> BoxStream<'static, Result<Event>> {
        let api: Api<KubeEvent> = self.own_api();
        let (target, server) = (self.target.clone(), server.to_owned());
        let changes = watcher(api, watcher::Config::default()).default_backoff();
        let events = changes.filter_map(move |change| {
            let event = match change {
                Ok(watcher::Event::InitApply(event) | watcher::Event::Apply(event)) => {
                    involves(&event, &server).then(|| Ok(Event::from(&event)))
                }
                Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => watch_error(&target, error).err().map(Err),
            };
            std::future::ready(event)
        });
        events.boxed()
    }
}

/// Reports whether an event is about the server or one of its pods (`NAME-0`, `NAME-1`, …).
fn involves(event: &KubeEvent, server: &str) -> bool {
    let object = &event.involved_object;
    let name = object.name.as_deref().unwrap_or_default();
    match object.kind.as_deref() {
        Some("DevServer") => name == server,
        Some("Pod") => name
            .strip_prefix(server)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|ordinal| !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit())),
        _ => false,
    }
}

impl From<&KubeEvent> for Event {
    fn from(event: &KubeEvent) -> Self {
        let object = &event.involved_object;
        let (kind, name) = (object.kind.as_deref().unwrap_or_default(), object.name.as_deref().unwrap_or_default());
        Self {
            at: last_seen(event),
            object: format!("{kind} {name}"),
            warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            count: event.count.unwrap_or(1),
        }
    }
}

/// Returns when an event last occurred, from whichever of its timestamps is set.
fn last_seen(event: &KubeEvent) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let micro = event.event_time.as_ref().map(|time| time.0);
    series.or(last).or(micro).or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_server_with_a_longer_name_are_ignored() {
        let event = |kind: &str, name: &str| -> KubeEvent {
            serde_json::from_value(serde_json::json!({"metadata": {}, "involvedObject": {"kind": kind, "name": name}}))
                .unwrap()
        };
        for (kind, name, expected) in [
            ("DevServer", "box", true),
            ("DevServer", "box-0", false),
            ("Pod", "box-0", true),
            ("Pod", "box-12", true),
            ("Pod", "box", false),
            ("Pod", "box-a-0", false),
            ("Pod", "box2-0", false),
            ("Secret", "box", false),
        ] {
            assert_eq!(involves(&event(kind, name), "box"), expected, "{kind} {name}");
        }
    }
}
