//! A client of the HTTP API with one credential.

mod web_socket;

use std::time::Duration;

use anyhow::Context as _;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;

use crate::wait;

pub use web_socket::WebSocket;

const TIMEOUT: Duration = Duration::from_secs(60);
const BASE_PATH: &str = "/api/v1";

/// Clones share their connections. Without a credential, requests are anonymous.
#[derive(Clone, Debug)]
pub struct ApiClient {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    credential: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    /// `Null` if the body is empty, a string if it is not JSON.
    pub body: Value,
}

impl Response {
    async fn read(response: http::Response<Incoming>) -> anyhow::Result<Self> {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut response = Self { status: head.status.as_u16(), headers: head.headers, body: Value::Null };
        if response.header("content-type").ends_with("json") {
            response.body = serde_json::from_slice(&bytes).context(text)?;
        } else if !text.is_empty() {
            response.body = Value::String(text);
        }
        Ok(response)
    }

    /// Returns a header, empty if it is absent or not text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl ApiClient {
    /// Returns a client for the API at a URL such as `https://127.0.0.1:8080`, which trusts the certificates of a PEM text.
    pub fn new(url: &str, authority: &str, credential: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
            roots.add(certificate.context("parsing the CA certificate")?)?;
        }
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { http, url: url.to_owned(), credential: credential.to_owned() })
    }

    /// Returns a client for the same API with another credential.
    #[must_use]
    pub fn with_credential(&self, credential: &str) -> Self {
        Self { credential: credential.to_owned(), ..self.clone() }
    }

    /// Sends a request once. Paths are relative to `/api/v1`. Fails if the API does not answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<Response> {
        let answer = async {
            let response = self.start(method.clone(), path, body, headers).await?;
            Response::read(response).await
        };
        let answer = tokio::time::timeout(TIMEOUT, answer).await.context("timed out").flatten();
        answer.with_context(|| format!("{method} {path}"))
    }

    /// Sends a request and returns the response without its body.
    async fn start(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> anyhow::Result<http::Response<Incoming>> {
        let mut request = Request::builder().method(method).uri(format!("{}{BASE_PATH}{path}", self.url));
        if !self.credential.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.credential));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        Ok(self.http.request(request.body(Full::from(body))?).await?)
    }

    pub async fn get(&self, path: &str) -> anyhow::Result<Response> {
        self.send(Method::GET, path, None, &[]).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        self.send(Method::POST, path, Some(body), &[]).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        self.send(Method::PATCH, path, Some(body), &[]).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<Response> {
        self.send(Method::DELETE, path, None, &[]).await
    }

    /// Sends a change and waits until it is executed. Returns the request.
    pub async fn change(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let accepted = self.send(method, path, body, &[("prefer", "wait=30")]).await?;
        // 200 if the request was executed within the wait.
        anyhow::ensure!(matches!(accepted.status, 200 | 202), "{path}: {} {}", accepted.status, accepted.body);
        self.wait_executed(accepted.body["requestId"].as_str().context("the response has no request id")?).await
    }

    /// Waits until an accepted request is executed. Returns the request.
    pub async fn wait_executed(&self, id: &str) -> anyhow::Result<Value> {
        wait::until("executed request", TIMEOUT, async || {
            let request = self.get(&format!("/requests/{id}")).await?.body;
            anyhow::ensure!(request["state"] != "Pending" && request["state"].is_string(), "{request}");
            Ok(request)
        })
        .await
    }

    /// Opens a stream of server-sent events.
    pub async fn events(&self, path: &str) -> anyhow::Result<EventStream> {
        let opened = self.try_events(path).await?;
        opened.map_err(|response| anyhow::anyhow!("GET {path}: {} {}", response.status, response.body))
    }

    /// Opens a stream of server-sent events, or returns the response that refuses it.
    pub async fn try_events(&self, path: &str) -> anyhow::Result<Result<EventStream, Response>> {
        let response = self.start(Method::GET, path, None, &[("accept", "text/event-stream")]).await?;
        if response.status() != 200 {
            return Ok(Err(Response::read(response).await?));
        }
        Ok(Ok(EventStream { body: response.into_body(), received: BytesMut::new() }))
    }

    /// Opens a WebSocket, or returns the response that refuses it.
    pub async fn try_web_socket(&self, path: &str) -> anyhow::Result<Result<WebSocket, Response>> {
        let response = self.start(Method::GET, path, None, web_socket::HANDSHAKE).await?;
        if response.status() != 101 {
            return Ok(Err(Response::read(response).await?));
        }
        Ok(Ok(WebSocket::new(hyper::upgrade::on(response).await?)))
    }
}

/// A stream of server-sent events. Closed when dropped.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    received: BytesMut,
}

impl EventStream {
    /// Waits for the data of the next event. Returns `None` at the end of the stream.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            while let Some(line) = self.take_line() {
                if let Some(data) = line.strip_prefix("data:") {
                    return Ok(Some(serde_json::from_str(data.trim()).with_context(|| line.clone())?));
                }
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.received.extend_from_slice(&data);
            }
        }
    }

    /// Waits for an event that matches.
    pub async fn wait_for(&mut self, matches: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let found = async {
            while let Some(event) = self.next().await? {
                if matches(&event) {
                    return Ok(event);
                }
            }
            anyhow::bail!("the stream of events ended")
        };
        tokio::time::timeout(TIMEOUT, found).await.context("the event has not arrived")?
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let line = self.received.split_to(end + 1);
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}
