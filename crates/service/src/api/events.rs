//! Events of servers: derived from watches, sent to clients by SSE and WebSocket.
//!
//! The buffer is bounded. A client that reads too slowly receives the number of events it missed, and reads the current state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::http::{Event, EventType};
use odc_api::v1alpha1::{DevServer, condition};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::resource::ApiResource as _;

/// Events that a slow client can be behind.
const BUFFER: usize = 1024;

#[derive(Clone)]
pub struct Events(Arc<Inner>);

struct Inner {
    sender: broadcast::Sender<Arc<Event>>,
    next_id: AtomicU64,
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Events {
    pub fn new() -> Self {
        Self(Arc::new(Inner { sender: broadcast::Sender::new(BUFFER), next_id: AtomicU64::new(1) }))
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.sender.subscribe()
    }

    /// Returns the id of the next event.
    pub fn next_id(&self) -> u64 {
        self.0.next_id.load(Ordering::Acquire)
    }

    /// Returns an event with the next id.
    pub fn event(&self, kind: EventType, user: Option<&str>, server: Option<&str>, data: Value) -> Event {
        Event {
            id: self.0.next_id.fetch_add(1, Ordering::AcqRel),
            kind,
            at: Time(Timestamp::now()),
            source: kind.source().to_owned(),
            user: user.map(str::to_owned),
            server: server.map(str::to_owned),
            data,
        }
    }

    pub fn publish(&self, kind: EventType, user: &str, server: &str, data: Value) {
        // Without subscribers, there is nothing to do.
        if self.0.sender.receiver_count() > 0 {
            let _ = self.0.sender.send(Arc::new(self.event(kind, Some(user), Some(server), data)));
        }
    }

    /// Publishes what changed between two states of a server.
    pub fn publish_changes(&self, user: &str, old: Option<&DevServer>, new: Option<&DevServer>) {
        if self.0.sender.receiver_count() == 0 {
            return;
        }
        let name = new.or(old).map(DevServer::name_any).unwrap_or_default();
        for (kind, data) in changes(user, old, new) {
            self.publish(kind, user, &name, data);
        }
    }
}

/// Returns the events of a change.
fn changes(user: &str, old: Option<&DevServer>, new: Option<&DevServer>) -> Vec<(EventType, Value)> {
    let (old, new) = match (old, new) {
        (None, None) => return vec![],
        (None, Some(new)) => return vec![(EventType::Created, body(user, new))],
        (Some(old), None) => return vec![(EventType::Deleted, body(user, old))],
        // Deleted and created again within one interruption of the watch.
        (Some(old), Some(new)) if old.metadata.uid != new.metadata.uid => {
            return vec![(EventType::Deleted, body(user, old)), (EventType::Created, body(user, new))];
        }
        (Some(old), Some(new)) => (old, new),
    };
    let mut events = vec![];
    if old.spec != new.spec || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp {
        events.push((EventType::Updated, body(user, new)));
    }
    if old.status != new.status {
        events.push((EventType::State, body(user, new)));
    }
    let users =
        |server: &DevServer| -> BTreeSet<String> { server.spec.access.users.iter().map(ToString::to_string).collect() };
    let (before, after) = (users(old), users(new));
    events.extend(after.difference(&before).map(|other| (EventType::Shared, json!({"with": other}))));
    events.extend(before.difference(&after).map(|other| (EventType::Unshared, json!({"with": other}))));
    match (is_idle(old), is_idle(new)) {
        (false, true) => events.push((EventType::Idle, json!({}))),
        (true, false) => events.push((EventType::Active, json!({}))),
        (true, true) | (false, false) => {}
    }
    let failure = |server: &DevServer| server.status.as_ref().and_then(|status| status.last_failure.clone());
    if let Some(failed) = failure(new).filter(|failed| failure(old).as_ref() != Some(failed)) {
        events.push((EventType::Error, serde_json::to_value(failed).unwrap_or_default()));
    }
    events
}

pub(super) fn body(user: &str, server: &DevServer) -> Value {
    serde_json::to_value(server.to_body(user, Timestamp::now())).unwrap_or_default()
}

fn is_idle(server: &DevServer) -> bool {
    let conditions = server.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, condition::Type::Idle)
        .is_some_and(|condition| condition.status == condition::Status::True)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(spec: &Value, status: &Value) -> DevServer {
        let mut spec = spec.clone();
        spec["home"] = json!({"disk": "home"});
        let metadata = json!({"name": "box", "namespace": "dev-ada", "uid": "u"});
        let object = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer", "metadata": metadata, "spec": spec,
            "status": status});
        serde_json::from_value(object).unwrap()
    }

    fn types(old: Option<&DevServer>, new: Option<&DevServer>) -> Vec<&'static str> {
        changes("ada", old, new).iter().map(|(kind, _)| kind.as_str()).collect()
    }

    #[test]
    fn changes_become_events() {
        let plain = server(&json!({}), &json!({"phase": "Running"}));
        let hibernated = server(&json!({}), &json!({"phase": "Hibernated"}));
        let shared = server(&json!({"access": {"users": ["bob"]}}), &json!({"phase": "Running"}));
        assert_eq!(types(None, Some(&plain)), ["created"]);
        assert_eq!(types(Some(&plain), None), ["deleted"]);
        assert!(types(Some(&plain), Some(&plain)).is_empty());
        assert_eq!(types(Some(&plain), Some(&hibernated)), ["state"]);
        assert_eq!(types(Some(&plain), Some(&shared)), ["updated", "shared"]);
        assert_eq!(types(Some(&shared), Some(&plain)), ["updated", "unshared"]);
        let mut replaced = plain.clone();
        replaced.metadata.uid = Some("v".to_owned());
        assert_eq!(types(Some(&plain), Some(&replaced)), ["deleted", "created"]);
    }
}
