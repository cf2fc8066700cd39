//! `odc api`: serves the API over HTTPS, and health and metrics over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum_server::tls_rustls::RustlsConfig;
use odc_store::Store;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::{App, AppState, app, route};
use crate::database::DatabaseOptions;
use crate::{kube_client, process_metrics};

/// How often the certificate files are checked for changes.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);
/// How long connections may finish their requests at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of the head of a request.
const MAX_HEADER_BYTES: usize = 16 << 10;
/// How long a client may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the version of the schema is read until the database is migrated.
const MIGRATION_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How often rate limits of idle callers are forgotten.
const FORGET_INTERVAL: Duration = Duration::from_secs(60);

/// Settings of the API.
#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub database: DatabaseOptions,
    /// Address of the API
    #[arg(long, env = "ODC_API_ADDRESS", default_value = "[::]:8080")]
    pub address: SocketAddr,
    /// Address of health and metrics
    #[arg(long, env = "ODC_METRICS_ADDRESS", default_value = "[::]:9090")]
    pub metrics_address: SocketAddr,
    /// Certificate chain of the API, reloaded when it changes
    #[arg(long, env = "ODC_API_CERTIFICATE", default_value = "/etc/odc/tls/tls.crt")]
    pub certificate: PathBuf,
    /// Private key of the certificate
    #[arg(long, env = "ODC_API_PRIVATE_KEY", default_value = "/etc/odc/tls/tls.key")]
    pub private_key: PathBuf,
    /// Kubeconfig, outside a cluster
    #[arg(long, env = "ODC_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
}

/// Runs the API until the process is asked to stop.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let registry = process_metrics::registry();
    let store = Store::new(&options.database.settings("odc-api")?);
    let client = kube_client::new(options.kubeconfig.as_deref(), "odc-api").await?;
    let app_state = Arc::new(AppState::new(store, client));
    let tls = RustlsConfig::from_pem_file(&options.certificate, &options.private_key).await;
    let tls = tls.with_context(|| format!("reading {}", options.certificate.display()))?;
    let handle = axum_server::Handle::new();
    let mut server = axum_server::bind_rustls(options.address, tls.clone()).handle(handle.clone());
    server.http_builder().http1().max_buf_size(MAX_HEADER_BYTES.max(8 << 10)).header_read_timeout(HEADER_TIMEOUT);
    server.http_builder().http1().timer(hyper_util::rt::TokioTimer::new());
    server.http_builder().http2().max_header_list_size(u32::try_from(MAX_HEADER_BYTES).unwrap_or(u32::MAX));
    tracing::info!(address = %options.address, "serving the API");
    let api = server.serve(app(app_state.clone()).into_make_service_with_connect_info::<SocketAddr>());
    tokio::select! {
        result = api => result.context("serving the API"),
        () = background(&app_state) => anyhow::bail!("background tasks ended"),
        result = serve_metrics(options.metrics_address, app_state.clone(), registry) => result,
        () = reload(&tls, &options) => anyhow::bail!("certificate reload ended"),
        () = shutdown(handle) => Ok(()),
    }
}

/// Runs all tasks beside the server. Does not return.
async fn background(state: &App) {
    let forget = async {
        let mut interval = tokio::time::interval(FORGET_INTERVAL);
        loop {
            interval.tick().await;
            state.limits.forget_idle();
        }
    };
    let cluster = async {
        wait_until_migrated(&state.store).await;
        state.cluster.run(&state.kube).await;
    };
    let results = state.results.run(&state.store);
    tokio::join!(cluster, state.authenticator.run(), state.heartbeats.run(), results, forget);
}

/// Waits until the schema is as new as this program, so that it is not ready before. Without the database, reads are
/// answered.
async fn wait_until_migrated(store: &Store) {
    loop {
        match store.is_migrated().await {
            Ok(true) => return,
            Ok(false) => tracing::warn!("waiting for `odc migrate`: the schema is older than this program"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the version of the schema is unknown");
                return;
            }
        }
        tokio::time::sleep(MIGRATION_CHECK_INTERVAL).await;
    }
}

/// Reloads the certificate after its file changed. A certificate that cannot be read is retried, and the current one is
/// used meanwhile.
async fn reload(tls: &RustlsConfig, options: &Options) {
    let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let mut current = modified(&options.certificate);
    loop {
        tokio::time::sleep(CERTIFICATE_INTERVAL).await;
        let newest = modified(&options.certificate);
        if newest == current {
            continue;
        }
        match tls.reload_from_pem_file(&options.certificate, &options.private_key).await {
            Ok(()) => {
                tracing::info!("reloaded the certificate");
                current = newest;
            }
            Err(error) => tracing::error!(%error, "failed to reload the certificate"),
        }
    }
}

async fn serve_metrics(listen: SocketAddr, state: App, registry: Registry) -> anyhow::Result<()> {
    let registry = Arc::new(registry);
    let metrics = move || std::future::ready(metrics(&registry));
    let router = Router::new().route("/metrics", get(metrics)).merge(route::health().with_state(state));
    let listener = tokio::net::TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    axum::serve(listener, router).await.context("serving health and metrics")
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => {
            ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Waits for SIGTERM or SIGINT, then until open requests are answered. Streams end at the limit.
async fn shutdown(handle: axum_server::Handle<SocketAddr>) {
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(error) => {
            tracing::error!(%error, "failed to listen for SIGTERM");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tracing::info!("shutting down");
    handle.graceful_shutdown(Some(SHUTDOWN_TIMEOUT));
    let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
    while handle.connection_count() > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
