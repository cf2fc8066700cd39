//! Serves the routes to the API server over TLS, and to no other client.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::{Request, StatusCode, Uri};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::handshake_limit::{HandshakeLimiter, HandshakePermit};
use super::request_header_auth::{Caller, RequestHeaderAuth};
use super::routes::{self, StatusError};
use super::serving_cert::ServingCert;
use super::{Credentials, QueueBackend};
use crate::error_policy::backoff;

/// Authenticated connections. An API server keeps some dozens open; connections during the handshake have their own
/// limit.
const MAX_CONNECTIONS: usize = 256;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(120);
/// How long requests in progress may take when a connection is closed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait after a failed accept, for example because of too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

pub(super) async fn run(
    address: SocketAddr,
    credentials: watch::Receiver<Credentials>,
    backend: Arc<dyn QueueBackend>,
) {
    let mut failures = 0;
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => {
                failures += 1;
                tracing::error!(error = &error as &dyn std::error::Error, %address, "failed to listen, retrying");
                tokio::time::sleep(backoff(failures)).await;
            }
        }
    };
    serve(listener, credentials, routes::router(backend)).await;
}

async fn serve(listener: TcpListener, credentials: watch::Receiver<Credentials>, router: Router) {
    let (limiter, connections) = (HandshakeLimiter::default(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let Some(permit) = limiter.try_acquire(peer.ip()) else {
            tracing::debug!(%peer, "too many handshakes, closing a connection to queue.odc.dev");
            continue;
        };
        let (credentials, connections, router) = (credentials.clone(), connections.clone(), router.clone());
        tokio::spawn(async move {
            if let Err(error) = serve_connection(stream, permit, credentials, &connections, router).await {
                tracing::debug!(error = format!("{error:#}"), %peer, "connection to queue.odc.dev failed");
            }
        });
    }
}

fn tls_acceptor(client_auth: &RequestHeaderAuth, serving_cert: &ServingCert) -> TlsAcceptor {
    let config = ServerConfig::builder()
        .with_client_cert_verifier(client_auth.verifier())
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(serving_cert.key_pair.clone())));
    TlsAcceptor::from(Arc::new(config))
}

/// Serves one connection until the client closes it or the credentials change: the connection was authenticated with
/// the previous ones.
async fn serve_connection(
    stream: TcpStream,
    handshake: HandshakePermit,
    mut credentials: watch::Receiver<Credentials>,
    connections: &Semaphore,
    router: Router,
) -> anyhow::Result<()> {
    let current = {
        let credentials = credentials.borrow_and_update();
        credentials.client_auth.clone().zip(credentials.serving_cert.clone())
    };
    let Some((client_auth, serving_cert)) = current else { return Ok(()) };
    let acceptor = tls_acceptor(&client_auth, &serving_cert);
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await??;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let is_front_proxy = certificate.is_some_and(|certificate| client_auth.is_front_proxy(certificate));
    anyhow::ensure!(is_front_proxy, "the client is not the front proxy");
    let _connection = tokio::time::timeout(HANDSHAKE_TIMEOUT, connections.acquire()).await??;
    drop(handshake);
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let (client_auth, router) = (client_auth.clone(), router.clone());
        async move { Ok::<_, std::convert::Infallible>(handle(request.map(Body::new), &client_auth, router).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_CONNECTION_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => return Ok(result?),
        _ = credentials.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    Ok(tokio::time::timeout(DRAIN_TIMEOUT, connection).await??)
}

async fn handle(mut request: Request<Body>, client_auth: &RequestHeaderAuth, router: Router) -> Response {
    let Some(Caller(user)) = client_auth.caller(request.headers()) else {
        return StatusError::new(StatusCode::FORBIDDEN, "the front proxy did not name a user").into_response();
    };
    tracing::debug!(user, method = %request.method(), uri = %request.uri(), "queue API request");
    if let Some(uri) = without_trailing_slash(request.uri()) {
        *request.uri_mut() = uri;
    }
    router.oneshot(request).await.unwrap_or_else(|never| match never {})
}

/// Kubernetes ignores a trailing slash. Returns `None` if there is none.
fn without_trailing_slash(uri: &Uri) -> Option<Uri> {
    let path = uri.path().strip_suffix('/').filter(|path| !path.is_empty())?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("{path}{query}").parse().ok()
}
