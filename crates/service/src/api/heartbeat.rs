//! Heartbeats: clients report that a server is in use.
//!
//! A heartbeat is answered from memory. Those of one server are coalesced to one per [`INTERVAL`] and passed on in batches.
//! They are stored nowhere; one that is lost is repeated by the client.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::Request;
use odc_api::queue::{API_VERSION, GROUP, Heartbeat, HeartbeatServer, MAX_HEARTBEATS, VERSION};
use parking_lot::Mutex;
use serde_json::json;

/// The least time between two heartbeats of a server that are passed on.
pub const INTERVAL: Duration = Duration::from_secs(30);
/// How often batches are sent.
const SEND_INTERVAL: Duration = Duration::from_secs(1);

/// Passes heartbeats to the agents of servers.
pub trait HeartbeatSink: Send + Sync {
    /// Sends at most [`MAX_HEARTBEATS`] heartbeats.
    fn send(&self, servers: Vec<HeartbeatServer>) -> BoxFuture<'_, anyhow::Result<()>>;
}

/// The leading operator, reached through `queue.odc.dev`.
pub struct QueueApiSink(pub kube::Client);

impl HeartbeatSink for QueueApiSink {
    fn send(&self, servers: Vec<HeartbeatServer>) -> BoxFuture<'_, anyhow::Result<()>> {
        Box::pin(async move {
            let body = json!({"apiVersion": API_VERSION, "kind": "Heartbeat", "spec": {"servers": servers}});
            let request = Request::post(format!("/apis/{GROUP}/{VERSION}/heartbeats"))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body.to_string().into_bytes())?;
            self.0.request::<Heartbeat>(request).await?;
            Ok(())
        })
    }
}

pub struct Heartbeats {
    sink: Arc<dyn HeartbeatSink>,
    received: Mutex<Received>,
}

#[derive(Default)]
struct Received {
    pending: BTreeSet<HeartbeatServer>,
    passed_on: HashMap<HeartbeatServer, Instant>,
}

impl Received {
    /// Notes a heartbeat. Returns whether it is passed on.
    fn note(&mut self, server: HeartbeatServer, now: Instant) -> bool {
        if self.passed_on.get(&server).is_some_and(|at| now.duration_since(*at) < INTERVAL) {
            return false;
        }
        self.passed_on.insert(server.clone(), now);
        self.pending.insert(server);
        true
    }

    fn take(&mut self, now: Instant) -> Vec<HeartbeatServer> {
        self.passed_on.retain(|_, at| now.duration_since(*at) < INTERVAL);
        std::mem::take(&mut self.pending).into_iter().collect()
    }
}

impl Heartbeats {
    pub fn new(sink: Arc<dyn HeartbeatSink>) -> Self {
        Self { sink, received: Mutex::default() }
    }

    /// Notes a heartbeat of an existing server. Returns whether it is passed on.
    pub fn note(&self, server: HeartbeatServer) -> bool {
        self.received.lock().note(server, Instant::now())
    }

    /// Passes heartbeats on. Does not return.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(SEND_INTERVAL);
        loop {
            interval.tick().await;
            let servers = self.received.lock().take(Instant::now());
            for batch in servers.chunks(MAX_HEARTBEATS) {
                if let Err(error) = self.sink.send(batch.to_vec()).await {
                    tracing::warn!(%error, servers = batch.len(), "failed to pass heartbeats on");
                    // The next heartbeats of these servers are not coalesced.
                    let mut received = self.received.lock();
                    for server in batch {
                        received.passed_on.remove(server);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_coalesced() {
        let mut received = Received::default();
        let server = |name: &str| HeartbeatServer { namespace: "dev-ada".to_owned(), name: name.to_owned() };
        let start = Instant::now();
        assert!(received.note(server("a"), start));
        assert!(!received.note(server("a"), start + Duration::from_secs(29)));
        assert!(received.note(server("b"), start));
        assert_eq!(received.take(start), [server("a"), server("b")]);
        assert!(received.take(start).is_empty());
        assert!(received.note(server("a"), start + INTERVAL));
    }
}
