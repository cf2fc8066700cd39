//! The routes of `queue.odc.dev`, with responses in the form that Kubernetes clients expect.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIResource, APIResourceList, GroupVersionForDiscovery, ListMeta, Status, StatusDetails,
};
use kube::core::TypeMeta;
use odc_api::queue::{API_VERSION, DryRun, GROUP, Heartbeat, HeartbeatStatus, MAX_HEARTBEATS, VERSION, WhatIf};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use super::QueueBackend;

/// How long a request body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
pub const MAX_BODY_BYTES: usize = 64 << 10;
/// How long a request may wait for a worker.
const WORKER_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Each query occupies a blocking thread.
const MAX_CONCURRENT_QUERIES: usize = 2;
const RETRY_AFTER_SECONDS: i32 = 1;

/// The state of the router.
#[derive(Clone)]
struct Backend {
    queue: Arc<dyn QueueBackend>,
    permits: Arc<Semaphore>,
}

pub fn router(queue: Arc<dyn QueueBackend>) -> Router {
    let path = |suffix: &str| format!("/apis/{API_VERSION}{suffix}");
    Router::new()
        .route(&format!("/apis/{GROUP}"), get(get_api_group))
        .route(&path(""), get(list_api_resources))
        .route(&path("/queues"), get(list_queues))
        .route(&path("/queues/{name}"), get(get_queue))
        .route(&path("/queueentries"), get(list_all_entries))
        .route(&path("/namespaces/{namespace}/queueentries"), get(list_entries))
        .route(&path("/namespaces/{namespace}/queueentries/{name}"), get(get_entry))
        .route(&path("/namespaces/{namespace}/availabilities"), get(list_availabilities))
        .route(&path("/namespaces/{namespace}/availabilities/{name}"), get(get_availability))
        .route(&path("/namespaces/{namespace}/dryruns"), post(create_dry_run))
        .route(&path("/whatifs"), post(create_what_if))
        .route(&path("/heartbeats"), post(create_heartbeat))
        .route_layer(middleware::from_fn(reject_watch))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(path_not_found)
        .with_state(Backend { queue, permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)) })
}

async fn path_not_found(uri: Uri) -> StatusError {
    StatusError::new(StatusCode::NOT_FOUND, format!("path {} not found", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> StatusError {
    let message = format!("method {method} is not allowed for {}", uri.path());
    StatusError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// A watch would never deliver an event after its list, so it is rejected.
async fn reject_watch(request: Request, next: Next) -> Response {
    if is_watch(request.uri().query()) {
        let message = "watch is not supported; poll instead";
        return StatusError::new(StatusCode::METHOD_NOT_ALLOWED, message).into_response();
    }
    next.run(request).await
}

/// As in Kubernetes, the parameter without a value means true.
fn is_watch(query: Option<&str>) -> bool {
    let mut parameters = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parameters.any(|(name, value)| name == "watch" && !matches!(value, "0" | "false"))
}

async fn get_api_group() -> Response {
    let version = GroupVersionForDiscovery { group_version: API_VERSION.to_owned(), version: VERSION.to_owned() };
    let group = APIGroup {
        name: GROUP.to_owned(),
        preferred_version: Some(version.clone()),
        versions: vec![version],
        ..APIGroup::default()
    };
    json_response(StatusCode::OK, &group)
}

async fn list_api_resources() -> Response {
    let resource = |name: &str, singular: &str, kind: &str, namespaced: bool, verbs: &[&str]| APIResource {
        name: name.to_owned(),
        singular_name: singular.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..APIResource::default()
    };
    let list = APIResourceList {
        group_version: API_VERSION.to_owned(),
        resources: vec![
            resource("queues", "queue", "Queue", false, &["get", "list"]),
            resource("queueentries", "queueentry", "QueueEntry", true, &["get", "list"]),
            resource("availabilities", "availability", "Availability", true, &["get", "list"]),
            resource("dryruns", "dryrun", "DryRun", true, &["create"]),
            resource("whatifs", "whatif", "WhatIf", false, &["create"]),
            resource("heartbeats", "heartbeat", "Heartbeat", false, &["create"]),
        ],
    };
    json_response(StatusCode::OK, &list)
}

async fn list_queues(State(backend): State<Backend>) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, |backend| Ok(List::new("Queue", backend.queues()))).await
}

async fn get_queue(State(backend): State<Backend>, Path(name): Path<String>) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, move |backend| {
        let mut queues = backend.queues().into_iter();
        let queue = queues.find(|queue| queue.metadata.name.as_deref() == Some(&name));
        queue.map(|queue| Object::new("Queue", queue)).ok_or_else(|| StatusError::not_found("queues", &name))
    })
    .await
}

async fn list_all_entries(State(backend): State<Backend>) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, |backend| Ok(List::new("QueueEntry", backend.entries(None)))).await
}

async fn list_entries(State(backend): State<Backend>, Path(namespace): Path<String>) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, move |backend| Ok(List::new("QueueEntry", backend.entries(Some(&namespace)))))
        .await
}

async fn get_entry(
    State(backend): State<Backend>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, move |backend| {
        let mut entries = backend.entries(Some(&namespace)).into_iter();
        let entry = entries.find(|entry| entry.metadata.name.as_deref() == Some(&name));
        entry.map(|entry| Object::new("QueueEntry", entry)).ok_or_else(|| StatusError::not_found("queueentries", &name))
    })
    .await
}

async fn list_availabilities(
    State(backend): State<Backend>,
    Path(namespace): Path<String>,
) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, move |backend| {
        Ok(List::new("Availability", backend.availabilities(&namespace, None)))
    })
    .await
}

async fn get_availability(
    State(backend): State<Backend>,
    Path((namespace, flavor)): Path<(String, String)>,
) -> Result<Response, StatusError> {
    respond(backend, StatusCode::OK, move |backend| {
        let availability = backend.availabilities(&namespace, Some(&flavor)).into_iter().next();
        let object = availability.map(|availability| Object::new("Availability", availability));
        object.ok_or_else(|| StatusError::not_found("availabilities", &flavor))
    })
    .await
}

async fn create_dry_run(
    State(backend): State<Backend>,
    Path(namespace): Path<String>,
    body: Body,
) -> Result<Response, StatusError> {
    let request: DryRun = read_object("DryRun", body).await?;
    respond(backend, StatusCode::CREATED, move |backend| {
        let status = Some(backend.dry_run(&namespace, &request.spec).map_err(StatusError::invalid)?);
        Ok(Object::new("DryRun", DryRun { status, ..request }))
    })
    .await
}

async fn create_what_if(State(backend): State<Backend>, body: Body) -> Result<Response, StatusError> {
    let request: WhatIf = read_object("WhatIf", body).await?;
    respond(backend, StatusCode::CREATED, move |backend| {
        let status = Some(backend.what_if(request.spec.clone()).map_err(StatusError::invalid)?);
        Ok(Object::new("WhatIf", WhatIf { status, ..request }))
    })
    .await
}

/// Heartbeats do not need a plan, and starting to pass them takes no time.
async fn create_heartbeat(State(backend): State<Backend>, body: Body) -> Result<Response, StatusError> {
    let request: Heartbeat = read_object("Heartbeat", body).await?;
    if request.spec.servers.len() > MAX_HEARTBEATS {
        return Err(StatusError::invalid(format!("a heartbeat is limited to {MAX_HEARTBEATS} servers")));
    }
    let servers = backend.queue.heartbeat(&request.spec.servers);
    let status = Some(HeartbeatStatus { servers });
    Ok(json_response(StatusCode::CREATED, &Object::new("Heartbeat", Heartbeat { status, ..request })))
}

/// Computes and serializes a response on a blocking thread, because a long queue takes a while.
async fn respond<T: Serialize>(
    backend: Backend,
    code: StatusCode,
    query: impl FnOnce(&dyn QueueBackend) -> Result<T, StatusError> + Send + 'static,
) -> Result<Response, StatusError> {
    let Ok(Ok(_permit)) = tokio::time::timeout(WORKER_WAIT_TIMEOUT, backend.permits.acquire()).await else {
        return Err(StatusError::retry_later(
            StatusCode::TOO_MANY_REQUESTS,
            "too many concurrent requests; retry later",
        ));
    };
    let queue = backend.queue.clone();
    let response = tokio::task::spawn_blocking(move || {
        if !queue.is_ready() {
            let message = "the operator became leader recently and has not scheduled yet";
            return Err(StatusError::retry_later(StatusCode::SERVICE_UNAVAILABLE, message));
        }
        Ok(json_response(code, &query(&*queue)?))
    });
    response.await.unwrap_or_else(|panic| Err(StatusError::new(StatusCode::INTERNAL_SERVER_ERROR, panic.to_string())))
}

async fn read_object<T: DeserializeOwned>(kind: &str, body: Body) -> Result<T, StatusError> {
    let body = read_body(body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| StatusError::new(StatusCode::BAD_REQUEST, format!("the body is not a valid {kind}: {error}")))
}

async fn read_body(body: Body) -> Result<Bytes, StatusError> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body exceeds {MAX_BODY_BYTES} bytes");
            Err(StatusError::new(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Ok(Err(error)) => Err(StatusError::new(StatusCode::BAD_REQUEST, error.to_string())),
        Err(_) => Err(StatusError::new(StatusCode::REQUEST_TIMEOUT, "timed out reading the body")),
    }
}

/// An object with its type.
#[derive(Serialize)]
struct Object<T> {
    #[serde(flatten)]
    types: TypeMeta,
    #[serde(flatten)]
    object: T,
}

impl<T> Object<T> {
    fn new(kind: &str, object: T) -> Self {
        Self { types: type_meta(kind), object }
    }
}

#[derive(Serialize)]
struct List<T> {
    #[serde(flatten)]
    types: TypeMeta,
    metadata: ListMeta,
    items: Vec<Object<T>>,
}

impl<T> List<T> {
    fn new(kind: &str, items: Vec<T>) -> Self {
        Self {
            types: type_meta(&format!("{kind}List")),
            metadata: ListMeta::default(),
            items: items.into_iter().map(|item| Object::new(kind, item)).collect(),
        }
    }
}

fn type_meta(kind: &str) -> TypeMeta {
    TypeMeta { api_version: API_VERSION.to_owned(), kind: kind.to_owned() }
}

fn json_response(code: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => {
            let content_type = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            (code, [content_type], body).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// An error as a Kubernetes `Status`.
#[derive(Debug)]
pub struct StatusError {
    code: StatusCode,
    status: Box<Status>,
}

impl StatusError {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let status = Status {
            status: Some("Failure".to_owned()),
            message: Some(message.into()),
            reason: Some(reason(code).to_owned()),
            code: Some(code.as_u16().into()),
            ..Status::default()
        };
        Self { code, status: Box::new(status) }
    }

    fn not_found(resource: &str, name: &str) -> Self {
        let details = StatusDetails {
            group: Some(GROUP.to_owned()),
            kind: Some(resource.to_owned()),
            name: Some(name.to_owned()),
            ..StatusDetails::default()
        };
        let error = Self::new(StatusCode::NOT_FOUND, format!("{resource}.{GROUP} \"{name}\" not found"));
        error.with_details(details)
    }

    fn invalid(message: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, message)
    }

    /// The request may succeed if it is repeated.
    fn retry_later(code: StatusCode, message: &str) -> Self {
        let details = StatusDetails { retry_after_seconds: Some(RETRY_AFTER_SECONDS), ..StatusDetails::default() };
        Self::new(code, message).with_details(details)
    }

    fn with_details(mut self, details: StatusDetails) -> Self {
        self.status.details = Some(details);
        self
    }
}

impl IntoResponse for StatusError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.code, &self.status);
        let retry_after = self.status.details.and_then(|details| details.retry_after_seconds);
        response.headers_mut().extend(retry_after.map(|seconds| (header::RETRY_AFTER, HeaderValue::from(seconds))));
        response
    }
}

const fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::REQUEST_TIMEOUT => "Timeout",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
        _ => "",
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use odc_api::queue::{
        Availability, DryRunSpec, DryRunStatus, HeartbeatServer, Queue, QueueEntry, WhatIfSpec, WhatIfStatus,
    };
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;

    const PREFIX: &str = "/apis/queue.odc.dev/v1alpha1";

    /// A backend with one queue, one entry and one flavor, all named after their arguments.
    #[derive(Default)]
    pub struct FakeBackend {
        pub not_ready: AtomicBool,
    }

    fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
        ObjectMeta { name: Some(name.to_owned()), namespace: namespace.map(str::to_owned), ..ObjectMeta::default() }
    }

    impl QueueBackend for FakeBackend {
        fn is_ready(&self) -> bool {
            !self.not_ready.load(Ordering::Relaxed)
        }
        fn queues(&self) -> Vec<Queue> {
            vec![Queue { metadata: metadata("gpu", None), ..Queue::default() }]
        }
        fn entries(&self, namespace: Option<&str>) -> Vec<QueueEntry> {
            let metadata = metadata("box", Some(namespace.unwrap_or("all")));
            vec![QueueEntry { metadata, ..QueueEntry::default() }]
        }
        fn availabilities(&self, namespace: &str, flavor: Option<&str>) -> Vec<Availability> {
            let metadata = metadata(flavor.unwrap_or("all"), Some(namespace));
            vec![Availability { metadata, ..Availability::default() }]
        }
        fn dry_run(&self, _: &str, request: &DryRunSpec) -> Result<DryRunStatus, String> {
            if request.count == Some(0) { Err("invalid count".into()) } else { Ok(DryRunStatus::default()) }
        }
        fn what_if(&self, _: WhatIfSpec) -> Result<WhatIfStatus, String> {
            Ok(WhatIfStatus::default())
        }
        fn heartbeat(&self, servers: &[HeartbeatServer]) -> u64 {
            servers.iter().filter(|server| server.name == "box").count() as u64
        }
    }

    async fn send(method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        let request = http::Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let response = router(Arc::new(FakeBackend::default())).oneshot(request).await.unwrap();
        let code = response.status();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json", "{path}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap())
    }

    async fn get(path: &str) -> (StatusCode, Value) {
        send(Method::GET, path, "").await
    }

    #[tokio::test]
    async fn routes_return_typed_objects() {
        for (path, kind, name) in [
            ("/queues", "QueueList", None),
            ("/queues/gpu", "Queue", Some("gpu")),
            ("/queueentries", "QueueEntryList", None),
            ("/namespaces/dev-ada/queueentries", "QueueEntryList", None),
            ("/namespaces/dev-ada/queueentries/box", "QueueEntry", Some("box")),
            ("/namespaces/dev-ada/availabilities", "AvailabilityList", None),
            ("/namespaces/dev-ada/availabilities/gpu", "Availability", Some("gpu")),
        ] {
            let (code, object) = get(&format!("{PREFIX}{path}")).await;
            assert_eq!((code, &object["kind"]), (StatusCode::OK, &json!(kind)), "{path}");
            assert_eq!(object["apiVersion"], API_VERSION, "{path}");
            if let Some(name) = name {
                assert_eq!(object["metadata"]["name"], name, "{path}");
            } else {
                let item = &object["items"][0];
                assert_eq!(item["kind"], kind.trim_end_matches("List"), "{path}");
                assert_eq!(object["metadata"], json!({}), "{path}");
            }
        }
        let (_, entries) = get(&format!("{PREFIX}/namespaces/dev-ada/queueentries")).await;
        assert_eq!(entries["items"][0]["metadata"]["namespace"], "dev-ada");
    }

    #[tokio::test]
    async fn discovery_lists_all_resources() {
        let (code, group) = get("/apis/queue.odc.dev").await;
        assert_eq!((code, &group["kind"], &group["apiVersion"]), (StatusCode::OK, &json!("APIGroup"), &json!("v1")));
        assert_eq!(group["preferredVersion"], json!({"groupVersion": API_VERSION, "version": VERSION}));
        assert_eq!(group["versions"], json!([group["preferredVersion"]]));
        let (code, list) = get(PREFIX).await;
        assert_eq!((code, &list["kind"]), (StatusCode::OK, &json!("APIResourceList")));
        assert_eq!(list["groupVersion"], API_VERSION);
        let names: Vec<_> = list["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
        assert_eq!(names, ["queues", "queueentries", "availabilities", "dryruns", "whatifs", "heartbeats"]);
        let dry_run = json!({"name": "dryruns", "singularName": "dryrun", "kind": "DryRun", "namespaced": true,
            "verbs": ["create"]});
        assert_eq!(list["resources"][3], dry_run);
    }

    #[tokio::test]
    async fn create_returns_the_object_with_status() {
        let path = format!("{PREFIX}/namespaces/dev-ada/dryruns");
        let (code, dry_run) = send(Method::POST, &path, r#"{"spec": {"flavor": "gpu"}}"#).await;
        assert_eq!((code, &dry_run["kind"]), (StatusCode::CREATED, &json!("DryRun")));
        assert_eq!(dry_run["spec"]["flavor"], "gpu");
        assert!(dry_run["status"].is_object());
        let (code, what_if) = send(Method::POST, &format!("{PREFIX}/whatifs"), r#"{"spec": {}}"#).await;
        assert_eq!((code, &what_if["kind"]), (StatusCode::CREATED, &json!("WhatIf")));
        let (code, status) = send(Method::POST, &path, r#"{"spec": {"count": 0}}"#).await;
        assert_eq!((code, &status["reason"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("Invalid")));
        let (code, status) = send(Method::POST, &path, "{").await;
        assert_eq!((code, &status["reason"]), (StatusCode::BAD_REQUEST, &json!("BadRequest")));
    }

    #[tokio::test]
    async fn heartbeats_are_counted_and_limited() {
        let path = format!("{PREFIX}/heartbeats");
        let server = |name: &str| json!({"namespace": "dev-ada", "name": name});
        let body = |servers: Vec<Value>| json!({"spec": {"servers": servers}}).to_string();
        let (code, heartbeat) = send(Method::POST, &path, &body(vec![server("box"), server("gone")])).await;
        assert_eq!((code, &heartbeat["kind"]), (StatusCode::CREATED, &json!("Heartbeat")));
        assert_eq!(heartbeat["status"], json!({"servers": 1}));
        let (code, status) = send(Method::POST, &path, &body(vec![server("box"); MAX_HEARTBEATS + 1])).await;
        assert_eq!((code, &status["reason"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("Invalid")));
    }

    #[tokio::test]
    async fn wrong_method_is_not_allowed() {
        let dry_runs = format!("{PREFIX}/namespaces/dev-ada/dryruns");
        for (method, path) in [(Method::GET, dry_runs), (Method::DELETE, format!("{PREFIX}/queues"))] {
            let (code, status) = send(method, &path, "").await;
            assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED, "{path}");
            assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("MethodNotAllowed")), "{path}");
        }
    }

    #[tokio::test]
    async fn unknown_path_is_not_found() {
        for path in [
            "/",
            "/apis",
            "/apis/odc.dev",
            "/apis/queue.odc.dev/v2/queues",
            "/openapi/v2",
            "/apis/queue.odc.dev/v1alpha1/x",
        ] {
            let (code, status) = get(path).await;
            assert_eq!((code, &status["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")), "{path}");
        }
    }

    #[tokio::test]
    async fn watch_is_rejected() {
        let queues = format!("{PREFIX}/queues");
        for query in ["watch=true", "watch=1", "watch", "limit=5&watch=true"] {
            assert_eq!(get(&format!("{queues}?{query}")).await.0, StatusCode::METHOD_NOT_ALLOWED, "{query}");
        }
        for query in ["watch=false", "watch=0", "limit=500", "watchers=1", ""] {
            assert_eq!(get(&format!("{queues}?{query}")).await.0, StatusCode::OK, "{query}");
        }
    }

    #[tokio::test]
    async fn error_is_a_status_with_details() {
        let (code, status) = get(&format!("{PREFIX}/queues/x")).await;
        assert_eq!(code, StatusCode::NOT_FOUND);
        assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
        assert_eq!((&status["reason"], &status["code"]), (&json!("NotFound"), &json!(404)));
        assert_eq!((&status["status"], &status["metadata"]), (&json!("Failure"), &json!({})));
        assert_eq!(status["message"], "queues.queue.odc.dev \"x\" not found");
        assert_eq!(status["details"], json!({"group": "queue.odc.dev", "kind": "queues", "name": "x"}));
        let error = StatusError::retry_later(StatusCode::SERVICE_UNAVAILABLE, "not ready");
        let status = serde_json::to_value(&error.status).unwrap();
        assert_eq!(
            (&status["reason"], &status["details"]["retryAfterSeconds"]),
            (&json!("ServiceUnavailable"), &json!(1))
        );
        assert_eq!(error.into_response().headers()[header::RETRY_AFTER], "1");
    }
}
