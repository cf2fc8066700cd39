//! The HTTP API: answers reads from memory, accepts changes into the database, and executes none itself.
//!
//! [`app`] is the whole API as a service that needs no socket. Routes and their documentation are declared together, one
//! file per resource in [`route`].

mod accept;
mod auth;
mod body;
mod cluster;
mod context;
mod document;
mod error;
mod events;
mod heartbeat;
pub mod kubernetes_calls;
mod limits;
mod middleware;
mod page;
mod queue;
mod resource;
mod results;
mod route;
mod serve;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use odc_store::Store;

pub use auth::{Authenticator, generate_key, hash_key};
pub use cluster::Cluster;
pub use document::{openapi, reference_page};
pub use events::Events;
pub use heartbeat::{HeartbeatSink, Heartbeats, QueueApiSink};
pub use limits::Limits;
pub use results::Results;
pub use route::MAX_KEYS;
pub use serve::{Options, run};

/// The oldest version of `devctl` that the API accepts.
pub const MINIMUM_CLIENT_VERSION: (u64, u64, u64) = (0, 1, 0);

/// What handlers share.
pub struct AppState {
    pub store: Store,
    pub kube: kube::Client,
    pub cluster: Cluster,
    pub authenticator: Authenticator,
    pub limits: Limits,
    pub events: Events,
    pub heartbeats: Heartbeats,
    pub results: Results,
}

pub type App = Arc<AppState>;

impl AppState {
    /// Returns the state of an API whose background tasks are not started.
    pub fn new(store: Store, kube: kube::Client) -> Self {
        let events = Events::new();
        Self {
            authenticator: Authenticator::new(store.clone(), kube.clone()),
            cluster: Cluster::new(events.clone()),
            limits: Limits::new(),
            results: Results::default(),
            heartbeats: Heartbeats::new(Arc::new(QueueApiSink(kube.clone()))),
            events,
            store,
            kube,
        }
    }
}

/// Returns the API.
pub fn app(state: App) -> Router {
    let routes = route::all().into_router(&state).merge(route::health());
    middleware::wrap(routes, state)
}
