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

use crate::metrics::Metrics;

/// A standby reports ready, so that a rolling update does not wait for leadership.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub metrics: Arc<Metrics>,
    syncing: Arc<AtomicBool>,
}

impl Health {
    /// Sets whether caches are being synced. A new leader is not ready before that.
    pub fn set_syncing(&self, syncing: bool) {
        self.syncing.store(syncing, Ordering::Relaxed);
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
    if health.syncing.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "caches not synced\n").into_response()
    } else {
        "ok\n".into_response()
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
