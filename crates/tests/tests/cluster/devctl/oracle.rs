//! `queue.odc.dev` that says what a test has it say, registered as the real one is.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

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
use odc_tests::{odc, wait};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::watch::LIMIT;
use crate::address::Address;

const API: &str = "/apis/queue.odc.dev/v1alpha1";
const NAME: &str = "v1alpha1.queue.odc.dev";

/// Dead when it is dropped.
pub struct Oracle {
    answers: Arc<Mutex<BTreeMap<String, Value>>>,
    /// What was asked with a body.
    pub questions: Arc<Mutex<Vec<Value>>>,
    client: Client,
    task: tokio::task::JoinHandle<()>,
    address: Address,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Oracle {
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
        let address = Address::take()?;
        let listener = TcpListener::bind(format!("{}:{}", address.ip, address.port)).await?;
        let answers: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let questions: Arc<Mutex<Vec<Value>>> = Arc::default();
        let task = tokio::spawn(serve(listener, acceptor()?, answers.clone(), questions.clone()));
        let oracle = Self { answers, questions, client: client.clone(), task, address };
        let resources = json!({"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": "queue.odc.dev/v1alpha1", "resources": []});
        oracle.answer("", resources);
        oracle.register().await?;
        Ok(oracle)
    }

    /// What is said from now on to whoever asks for a path below the API's own.
    pub fn answer(&self, path: &str, value: Value) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(format!("{API}{path}"), value);
    }

    pub fn list(&self, path: &str, items: impl Into<Value>) {
        let mut list = json!({"apiVersion": "queue.odc.dev/v1alpha1", "kind": "List", "metadata": {}});
        list["items"] = items.into();
        self.answer(path, list);
    }

    /// Nobody answers that from now on.
    pub fn silence(&self, path: &str) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).remove(&format!("{API}{path}"));
    }

    /// The registration goes, as an administrator takes it away.
    pub async fn unregister(&self) -> anyhow::Result<()> {
        let services: Api<APIService> = Api::all(self.client.clone());
        services.delete(NAME, &DeleteParams::default()).await?;
        wait::until("the API is not known any more", LIMIT, async || {
            let asked = self.client.request_text(Request::get(API).body(vec![])?).await;
            anyhow::ensure!(matches!(&asked, Err(kube::Error::Api(status)) if status.code == 404), "{asked:?}");
            Ok(())
        })
        .await
    }

    async fn register(&self) -> anyhow::Result<()> {
        let Address { ip, port, .. } = &self.address;
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
            odc::apply(&self.client, &object).await?;
        }
        wait::until("the API is served", LIMIT, async || {
            self.client.request_text(Request::get(API).body(vec![])?).await?;
            Ok(())
        })
        .await
    }
}

fn acceptor() -> anyhow::Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(["odc-queue.odc-system.svc".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answers: Arc<Mutex<BTreeMap<String, Value>>>,
    questions: Arc<Mutex<Vec<Value>>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answers, questions) = (acceptor.clone(), answers.clone(), questions.clone());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let (answers, questions) = (answers.clone(), questions.clone());
                async move { Ok::<_, Infallible>(respond(request, &answers, &questions).await) }
            });
            let stream = acceptor.accept(stream).await.context("greeting the API server")?;
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
            anyhow::Ok(())
        });
    }
}

async fn respond(
    request: Request<Incoming>,
    answers: &Mutex<BTreeMap<String, Value>>,
    questions: &Mutex<Vec<Value>>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    if let Ok(body) = request.into_body().collect().await
        && let Ok(question) = serde_json::from_slice(&body.to_bytes())
    {
        questions.lock().unwrap_or_else(PoisonError::into_inner).push(question);
    }
    let found = answers.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
    let code = if found.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = found.unwrap_or_else(
        || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503, "message": "not now"}),
    );
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
