//! What happens to every request: id, log, panic, client version, authentication, rate and time limits.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use odc_api::http::{CLIENT_VERSION_HEADER, IDEMPOTENCY_KEY_HEADER, ProblemType, REQUEST_ID_HEADER};
use odc_store::audit::Origin;
use sha2::{Digest as _, Sha256};
use tower_http::catch_panic::CatchPanicLayer;
use uuid::Uuid;

use super::accept::MAX_WAIT;
use super::context::{Credential, RequestContext, RequestData};
use super::error::{Error, REQUEST_ID, Result};
use super::{App, MINIMUM_CLIENT_VERSION};

/// The time limit of a request, without the time that the client asked to wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest id of a client that is used.
const MAX_REQUEST_ID_LENGTH: usize = 64;
/// The longest user agent that is stored.
const MAX_USER_AGENT_LENGTH: usize = 256;
const MAX_IDEMPOTENCY_KEY_LENGTH: usize = 255;

/// Adds the middleware of all routes.
pub(super) fn wrap(router: Router<App>, app: App) -> Router {
    router
        .fallback(|| async { Error::new(ProblemType::NotFound) })
        .method_not_allowed_fallback(|| async { Error::new(ProblemType::MethodNotAllowed) })
        .layer(axum::middleware::from_fn(check_client_version))
        .layer(CatchPanicLayer::custom(on_panic))
        .layer(axum::middleware::from_fn(identify))
        .with_state(app)
}

/// Gives every request an id, which is in the response and in the log.
async fn identify(request: Request, next: Next) -> Response {
    let name = HeaderName::from_static(REQUEST_ID_HEADER);
    let given = request.headers().get(&name).and_then(|value| value.to_str().ok());
    let id = given.filter(|id| is_request_id(id)).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    let (method, path, start) = (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let mut response = REQUEST_ID.scope(id.clone(), next.run(request)).await;
    let milliseconds = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(id, %method, path, status = response.status().as_u16(), milliseconds, "answered a request");
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(name, value);
    }
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn is_request_id(text: &str) -> bool {
    (1..=MAX_REQUEST_ID_LENGTH).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that CatchPanicLayer requires")]
fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
    Error::internal(&format!("panic: {message}")).into_response()
}

/// Rejects versions of `devctl` that are too old.
async fn check_client_version(request: Request, next: Next) -> Response {
    let version = client_version(request.headers()).and_then(|version| parse_version(&version));
    if version.is_some_and(|version| version < MINIMUM_CLIENT_VERSION) {
        let (major, minor, patch) = MINIMUM_CLIENT_VERSION;
        let detail = format!("this version of devctl is too old; install {major}.{minor}.{patch} or later");
        return Error::with_detail(ProblemType::UpgradeRequired, detail).into_response();
    }
    next.run(request).await
}

/// Returns the version of `devctl` of a client.
fn client_version(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let version = text(CLIENT_VERSION_HEADER).or_else(|| {
        let products = text(header::USER_AGENT.as_str())?.split_whitespace();
        products.into_iter().find_map(|product| product.strip_prefix("devctl/"))
    });
    version.map(|version| version.chars().take(64).collect())
}

fn parse_version(text: &str) -> Option<(u64, u64, u64)> {
    let release = text.trim_start_matches('v').split(['-', '+']).next()?;
    let mut numbers = release.split('.').map(str::parse);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Some((major, minor, patch)),
        _ => None,
    }
}

/// Limits the time of a request. Streams are not limited.
pub(super) async fn limit_time(request: Request, next: Next) -> Response {
    let limit = REQUEST_TIMEOUT + wait(request.headers());
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Error::new(ProblemType::Timeout).into_response(),
    }
}

/// Identifies the caller and counts the request.
pub(super) async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let address =
        request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(address)| address.ip().to_canonical());
    // A reference to the request must not be held while waiting, because its body cannot be shared between threads.
    let (mut parts, body) = request.into_parts();
    match context(&app, &parts, address).await {
        Ok(context) => {
            parts.extensions.insert(context);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => {
            let response = error.into_response();
            if response.status() == http::StatusCode::UNAUTHORIZED {
                app.limits.count_failure(address).await;
            }
            response
        }
    }
}

async fn context(app: &App, parts: &Parts, address: Option<IpAddr>) -> Result<RequestContext> {
    let headers = &parts.headers;
    let credential = bearer(headers)?;
    if !app.authenticator.is_known(credential) {
        app.limits.check_address(address)?;
    }
    if !app.cluster.users.is_synced() {
        return Err(Error::unavailable("the API is starting; repeat the request later"));
    }
    let caller = app.authenticator.authenticate(credential, &app.cluster.users).await?;
    // Not the key: a user can have many.
    app.limits.check_user(&caller.user)?;
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let agent = text(&header::USER_AGENT).map(|agent| agent.chars().take(MAX_USER_AGENT_LENGTH).collect());
    let target = Sha256::new()
        .chain_update(parts.method.as_str())
        .chain_update([0])
        .chain_update(parts.uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str))
        .chain_update([0]);
    Ok(RequestContext::new(RequestData {
        caller,
        credential: Credential::new(credential),
        origin: Origin { client_ip: address, user_agent: agent },
        client_version: client_version(headers),
        idempotency_key: idempotency_key(headers)?,
        wait: wait(headers),
        wants_object: preferences(headers).any(|preference| preference == "return=representation"),
        if_match: text(&header::IF_MATCH),
        if_none_match: text(&header::IF_NONE_MATCH),
        target_hash: target.finalize().into(),
    }))
}

fn bearer(headers: &HeaderMap) -> Result<&str> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let credential = value.and_then(|value| {
        let (scheme, credential) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim())
    });
    credential.filter(|credential| !credential.is_empty()).ok_or_else(|| {
        Error::unauthenticated("a credential is required: send an API key in the header Authorization: Bearer")
    })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY_HEADER) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=MAX_IDEMPOTENCY_KEY_LENGTH).contains(&key.len()));
    let invalid = || Error::invalid("the idempotency key must have 1 to 255 printable ASCII characters");
    key.map(|key| Some(key.to_owned())).ok_or_else(invalid)
}

/// Returns how long the client waits for a result: `Prefer: wait=10` (RFC 7240).
fn wait(headers: &HeaderMap) -> Duration {
    let seconds = preferences(headers).find_map(|preference| preference.strip_prefix("wait=")?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(MAX_WAIT)
}

/// Returns the preferences of a client (RFC 7240).
fn preferences(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split([',', ';'])).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("0.10.2"), Some((0, 10, 2)));
        assert_eq!(parse_version("v1.2.3-rc.1+abc"), Some((1, 2, 3)));
        for invalid in ["", "1", "1.2", "1.2.3.4", "x.y.z"] {
            assert_eq!(parse_version(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn wait_is_bounded() {
        let parse = |value: &'static str| {
            let headers = HeaderMap::from_iter([(HeaderName::from_static("prefer"), HeaderValue::from_static(value))]);
            wait(&headers).as_secs()
        };
        assert_eq!(parse("wait=5"), 5);
        assert_eq!(parse("respond-async, wait=10"), 10);
        assert_eq!(parse("wait=9999"), 30);
        assert_eq!(parse("wait=x"), 0);
        assert_eq!(parse("return=minimal"), 0);
    }

    #[test]
    fn request_id_of_the_client_is_bounded() {
        assert!(is_request_id("0192-abc_D.1"));
        for invalid in ["", "a b", "a\n", "é", &"a".repeat(65)] {
            assert!(!is_request_id(invalid), "{invalid}");
        }
    }
}
