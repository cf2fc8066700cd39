//! What happened to a server and its pods.

use ::kube::api::{Api, ListParams};
use ::kube::runtime::{WatchStreamExt as _, watcher};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;

use super::Kube;
use super::error::lost_watch;
use crate::backend::Happening;
use crate::failure::Result;

impl Kube {
    pub(super) async fn list_happenings(&self, server: &str) -> Result<Vec<Happening>> {
        let events: Api<Event> = self.own();
        let listed = events.list(&ListParams::default()).await.map_err(|error| self.failure(error))?;
        let mut all: Vec<Happening> =
            listed.items.iter().filter(|event| concerns(event, server)).map(happening).collect();
        all.sort_by_key(|happening| happening.at);
        Ok(all)
    }

    pub(super) fn follow_happenings(&self, server: &str) -> BoxStream<'static, Result<Happening>> {
        let events: Api<Event> = self.own();
        let (place, server) = (self.place.clone(), server.to_owned());
        let changes = watcher(events, watcher::Config::default()).default_backoff();
        let happenings = changes.filter_map(move |change| {
            let answer = match change {
                Ok(watcher::Event::InitApply(event) | watcher::Event::Apply(event)) => {
                    concerns(&event, &server).then(|| Ok(happening(&event)))
                }
                Ok(watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone) => None,
                Err(error) => lost_watch(&place, error).err().map(Err),
            };
            std::future::ready(answer)
        });
        happenings.boxed()
    }
}

/// The server itself, or one of its pods (`NAME-0`, `NAME-1`, …).
fn concerns(event: &Event, server: &str) -> bool {
    let about = &event.involved_object;
    let name = about.name.as_deref().unwrap_or_default();
    match about.kind.as_deref() {
        Some("DevServer") => name == server,
        Some("Pod") => name
            .strip_prefix(server)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|ordinal| !ordinal.is_empty() && ordinal.bytes().all(|byte| byte.is_ascii_digit())),
        _ => false,
    }
}

fn happening(event: &Event) -> Happening {
    let about = &event.involved_object;
    Happening {
        at: time(event),
        about: format!("{} {}", about.kind.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default()),
        warning: event.type_.as_deref() == Some("Warning"),
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        times: event.count.unwrap_or(1),
    }
}

/// Of the several times an event may carry, when it was last seen.
fn time(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0);
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let micro = event.event_time.as_ref().map(|time| time.0);
    series.or(last).or(micro).or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_a_server_with_a_longer_name_are_not_ours() {
        let event = |kind: &str, name: &str| -> Event {
            serde_json::from_value(serde_json::json!({"metadata": {}, "involvedObject": {"kind": kind, "name": name}}))
                .unwrap()
        };
        for (kind, name, ours) in [
            ("DevServer", "box", true),
            ("DevServer", "box-0", false),
            ("Pod", "box-0", true),
            ("Pod", "box-12", true),
            ("Pod", "box", false),
            ("Pod", "box-a-0", false),
            ("Pod", "box2-0", false),
            ("Secret", "box", false),
        ] {
            assert_eq!(concerns(&event(kind, name), "box"), ours, "{kind} {name}");
        }
    }
}
