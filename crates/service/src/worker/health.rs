//! `/livez`, `/readyz` and `/metrics`, for the kubelet and for Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::metrics::Metrics;

/// The state that is reported to the outside.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub metrics: Arc<Metrics>,
    ready: Arc<AtomicBool>,
}

impl Health {
    /// Sets whether the last read of the queues succeeded.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }
}

pub fn router(health: Health) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(health)
}

async fn ready(State(health): State<Health>) -> Response {
    if health.ready.load(Ordering::Relaxed) {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the database is unavailable or not migrated\n").into_response()
    }
}

async fn metrics(State(health): State<Health>) -> Response {
    match health.metrics.text() {
        Ok(text) => {
            ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub async fn serve(listen: SocketAddr, health: Health) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    axum::serve(listener, router(health)).await.context("serving health and metrics")
}

#[cfg(test)]
mod tests {
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;

    async fn status(health: &Health, path: &str) -> StatusCode {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        router(health.clone()).oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn worker_is_ready_while_it_reads_the_queues() {
        let health = Health::default();
        assert_eq!(status(&health, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(&health, "/livez").await, StatusCode::OK);
        health.set_ready(true);
        assert_eq!(status(&health, "/readyz").await, StatusCode::OK);
        assert_eq!(status(&health, "/metrics").await, StatusCode::OK);
    }
}
