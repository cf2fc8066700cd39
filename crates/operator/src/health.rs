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

/// A standby is ready too: it is there, and takes over when it must.
#[derive(Clone, Debug, Default)]
pub struct Health {
    pub metrics: Arc<Metrics>,
    catching_up: Arc<AtomicBool>,
}

impl Health {
    /// A new leader has to see everything once before it is of use.
    pub fn catching_up(&self, is: bool) {
        self.catching_up.store(is, Ordering::Relaxed);
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
    if health.catching_up.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "reading what there is\n").into_response()
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
