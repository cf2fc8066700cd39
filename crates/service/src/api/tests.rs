//! The API without a database and a cluster.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use odc_store::{Settings, Store};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

/// Returns the state of an API whose database and cluster are unavailable.
fn state() -> App {
    let mut settings = Settings::from_parts("127.0.0.1", 1, "odc", "", "odc", "test");
    settings.acquire_timeout = Duration::from_millis(50);
    let unreachable = tower::service_fn(|_: Request<kube::client::Body>| async {
        Err::<Response<Body>, _>(std::io::Error::other("unreachable"))
    });
    Arc::new(AppState::new(Store::new(&settings), kube::Client::new(unreachable, "default")))
}

async fn send(state: &App, request: Request<Body>) -> (StatusCode, http::HeaderMap, Value) {
    let response = app(state.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn get(path: &str) -> http::request::Builder {
    Request::get(path)
}

fn empty(builder: http::request::Builder) -> Request<Body> {
    builder.body(Body::empty()).unwrap()
}

fn synced(state: &App) {
    let user =
        json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": "ada"}, "spec": {}});
    state.cluster.users.insert("", serde_json::from_value(user).unwrap());
}

#[tokio::test]
async fn missing_credential_is_a_problem_with_request_id() {
    let state = state();
    let (status, headers, body) = send(&state, empty(get("/api/v1/devservers").header("x-request-id", "r-1"))).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(headers["www-authenticate"], "Bearer");
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["x-request-id"], "r-1");
    assert_eq!(body["type"], "https://odc.dev/problems/unauthenticated");
    assert_eq!((&body["status"], &body["requestId"]), (&json!(401), &json!("r-1")));
}

#[tokio::test]
async fn mistyped_key_is_recognized_without_the_database() {
    let state = state();
    synced(&state);
    let key = generate_key();
    let mistyped = format!("{}x", &key.as_str()[..key.as_str().len() - 1]);
    let request = get("/api/v1/me").header("authorization", format!("Bearer {mistyped}"));
    let (status, _, body) = send(&state, empty(request)).await;
    assert!(status == StatusCode::UNAUTHORIZED || mistyped == key.as_str());
    assert!(body["detail"].as_str().unwrap().contains("checksum"), "{body}");
}

#[tokio::test]
async fn unavailable_database_is_503_with_retry_after() {
    let state = state();
    synced(&state);
    let request = get("/api/v1/me").header("authorization", format!("Bearer {}", generate_key().as_str()));
    let (status, headers, body) = send(&state, empty(request)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(headers["retry-after"], "5");
    assert_eq!(body["type"], "https://odc.dev/problems/unavailable");
}

#[tokio::test]
async fn api_without_watches_is_not_ready() {
    let state = state();
    assert_eq!(send(&state, empty(get("/readyz"))).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(send(&state, empty(get("/livez"))).await.0, StatusCode::OK);
}

#[tokio::test]
async fn old_client_must_upgrade() {
    let state = state();
    for (name, value) in [("x-devctl-version", "0.0.9"), ("user-agent", "devctl/0.0.9 (linux)")] {
        let (status, _, body) = send(&state, empty(get("/api/v1/version").header(name, value))).await;
        assert_eq!(status, StatusCode::UPGRADE_REQUIRED);
        assert!(body["detail"].as_str().unwrap().contains("0.1.0"), "{body}");
    }
    let (status, _, _) = send(&state, empty(get("/api/v1/version").header("user-agent", "devctl/0.1.0"))).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn unknown_path_and_method_are_problems() {
    let state = state();
    let (status, _, body) = send(&state, empty(get("/api/v2/x"))).await;
    assert_eq!((status, &body["status"]), (StatusCode::NOT_FOUND, &json!(404)));
    let (status, _, body) = send(&state, empty(Request::put("/api/v1/version"))).await;
    assert_eq!((status, &body["status"]), (StatusCode::METHOD_NOT_ALLOWED, &json!(405)));
}

#[tokio::test]
async fn many_failures_of_one_address_are_limited() {
    let state = state();
    synced(&state);
    let request = || {
        let mut request = empty(get("/api/v1/me").header("authorization", "Bearer odc_x"));
        let address = axum::extract::ConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 1], 1)));
        request.extensions_mut().insert(address);
        request
    };
    let mut statuses = vec![];
    for _ in 0..40 {
        statuses.push(send(&state, request()).await.0);
    }
    assert_eq!(statuses.first(), Some(&StatusCode::UNAUTHORIZED));
    assert_eq!(statuses.last(), Some(&StatusCode::TOO_MANY_REQUESTS));
}

#[tokio::test]
async fn document_is_public() {
    let (status, _, body) = send(&state(), empty(get("/api/v1/openapi.json"))).await;
    assert_eq!((status, &body["openapi"]), (StatusCode::OK, &json!("3.1.0")));
}
