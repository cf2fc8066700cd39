//! A fake `queue.odc.dev` with canned responses, registered like the real one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, DeleteParams};
use odc_tests::{manifests, wait};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::watch::TIMEOUT;
use crate::endpoint_address::EndpointAddress;

const API: &str = "/apis/queue.odc.dev/v1alpha1";
const NAME: &str = "v1alpha1.queue.odc.dev";
/// The API server registers no API while it downloads the API description of one whose server is gone, for 60 seconds.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(120);

/// Stops when it is dropped.
pub struct FakeQueueApi {
    responses: Arc<Mutex<BTreeMap<String, Value>>>,
    /// The bodies of all requests.
    pub requests: Arc<Mutex<Vec<Value>>>,
    client: Client,
    task: tokio::task::JoinHandle<()>,
    address: EndpointAddress,
}

impl Drop for FakeQueueApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeQueueApi {
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
        let address = EndpointAddress::allocate()?;
        let listener = TcpListener::bind(format!("{}:{}", address.ip, address.port)).await?;
        let responses: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let task = tokio::spawn(serve(listener, acceptor()?, responses.clone(), requests.clone()));
        let queue_api = Self { responses, requests, client: client.clone(), task, address };
        let resources = json!({"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "queue.odc.dev/v1alpha1", "resources": []});
        queue_api.respond("", resources);
        // The API server downloads these after the registration, and until it has them.
        let info = json!({"title": "queue.odc.dev", "version": "v1alpha1"});
        let v2 = json!({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}});
        for (path, document) in [("/openapi/v2", v2), ("/openapi/v3", json!({"paths": {}}))] {
            queue_api.responses.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), document);
        }
        queue_api.register().await?;
        Ok(queue_api)
    }

    /// Sets the response for a path below the root of the API.
    pub fn respond(&self, path: &str, value: Value) {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{API}{path}"), value);
    }

    pub fn list(&self, path: &str, items: impl Into<Value>) {
        let mut list = json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "List", "metadata": {}});
        list["items"] = items.into();
        self.respond(path, list);
    }

    /// Makes a path respond with 503.
    pub fn remove_response(&self, path: &str) {
        self.responses.lock().unwrap_or_else(PoisonError::into_inner).remove(&format!("{API}{path}"));
    }

    /// Deletes the `APIService`, as an administrator would.
    pub async fn unregister(&self) -> anyhow::Result<()> {
        let services: Api<APIService> = Api::all(self.client.clone());
        services.delete(NAME, &DeleteParams::default()).await?;
        wait::until("the API is unregistered", TIMEOUT, async || {
            let response = self.client.request_text(Request::get(API).body(vec![])?).await;
            anyhow::ensure!(matches!(&response, Err(kube::Error::Api(status)) if status.code == 404), "{response:?}");
            Ok(())
        })
        .await
    }

    async fn register(&self) -> anyhow::Result<()> {
        let EndpointAddress { ip, port, .. } = &self.address;
        let port: u16 = port.parse()?;
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "odc-queue", "namespace": "odc-system", "labels": {"kubernetes.io/service-name": "odc-queue"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        });
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
            "spec": {"group": "queue.odc.dev", "version": "v1alpha1", "groupPriorityMinimum": 1000, "versionPriority": 15,
                "insecureSkipTLSVerify": true, "service": {"name": "odc-queue", "namespace": "odc-system", "port": 443}},
        });
        for object in [slice, service] {
            manifests::apply(&self.client, &object).await?;
        }
        wait::until("the API is served", REGISTRATION_TIMEOUT, async || {
            self.client.request_text(Request::get(API).body(vec![])?).await?;
            Ok(())
        })
        .await
    }
}

fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let certificate = rcgen::generate_simple_self_signed(["odc-queue.odc-system.svc".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    responses: Arc<Mutex<BTreeMap<String, Value>>>,
    requests: Arc<Mutex<Vec<Value>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, responses, requests) = (acceptor.clone(), responses.clone(), requests.clone());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (responses, requests) = (responses.clone(), requests.clone());
                async move { Ok::<_, Infallible>(respond(request, &responses, &requests).await) }
            });
            let stream = acceptor.accept(stream).await.context("TLS handshake with the API server")?;
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
            anyhow::Ok(())
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    responses: &Mutex<BTreeMap<String, Value>>,
    requests: &Mutex<Vec<Value>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    if let Ok(body) = request.into_body().collect().await
        && let Ok(body) = serde_json::from_slice(&body.to_bytes())
    {
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    }
    let response = responses.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    let code = if response.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = response.unwrap_or_else(
        || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "unavailable"}),
    );
    let mut reply = Response::new(Full::from(body.to_string()));
    *reply.status_mut() = code;
    reply.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    reply
}
