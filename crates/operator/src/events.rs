//! Kubernetes Events about servers and users.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use odc_core::plan;
use tokio::sync::Semaphore;

use crate::dynamic_api::with_timeout;

/// Each concurrent request opens a connection that stays in the pool for a while.
const MAX_CONCURRENT_EVENTS: usize = 4;
/// The API server accepts at most 1024 bytes.
const MAX_NOTE_CHARS: usize = 256;

#[derive(Clone)]
pub struct EventRecorder {
    client: Client,
    reporter: Reporter,
    permits: Arc<Semaphore>,
}

impl EventRecorder {
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter { controller: odc_api::label::OPERATOR.into(), instance: Some(instance.to_owned()) };
        Self { client, reporter, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_EVENTS)) }
    }

    /// Publishes events in the background. Events are informational, so failures are only logged.
    pub fn publish(&self, regarding: &ObjectReference, events: &[plan::Event]) {
        for event in events {
            // A new recorder for each event: a recorder caches its events for minutes to count repetitions, and the
            // operator does not repeat events.
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            let regarding = regarding.clone();
            let event = Event {
                type_: if event.warning { EventType::Warning } else { EventType::Normal },
                reason: event.reason.to_string(),
                note: Some(event.note.chars().take(MAX_NOTE_CHARS).collect()),
                action: event.action.to_owned(),
                secondary: None,
            };
            let permits = self.permits.clone();
            tokio::spawn(async move {
                let Ok(_permit) = permits.acquire().await else { return };
                // Boxed so that the tasks that wait for a permit are small.
                let result = Box::pin(with_timeout(recorder.publish(&event, &regarding))).await;
                if result.is_err() {
                    tracing::debug!(name = regarding.name, ?result, "failed to publish an event");
                }
            });
        }
    }
}
