//! Requests to the HTTP API: headers, time limits, repetition, errors.
//!
//! The HTTP client is that of kube, so that proxies, TLS and CA files work as in the backend `kube`.

mod request;
mod retry;

use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::config::{Cluster, Context, KubeConfigOptions, Kubeconfig, NamedCluster, NamedContext};
use kube::{Client, Config};
use odc_api::http::CLIENT_VERSION_HEADER;
use serde::de::DeserializeOwned;

use super::problem;
use crate::client::status::root_cause;
use crate::config::{ApiEndpoint, expand_home};
use crate::error::{Error, Kind, Result, format_chain};
use crate::version;

pub use request::{Request, Retries, encode};
use retry::{Failure, Retry};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The API answers within 10 seconds, not counting the time that it is asked to wait.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// A page of 500 servers has about 5 MiB.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The prefix of all paths.
const PREFIX: &str = "/api/v1";

#[derive(Clone)]
pub struct Http {
    client: Client,
    url: String,
}

/// A response whose body was read.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Bytes,
}

impl Http {
    pub async fn new(endpoint: &ApiEndpoint, key: &str) -> Result<Self> {
        let url = parse_url(&endpoint.url)?;
        let authority = endpoint.ca.as_deref().map(expand_home);
        if let Some(path) = &authority {
            std::fs::metadata(path).map_err(|error| {
                Error::usage(format!("could not read the CA certificate {}: {error}", path.display()))
                    .with_hint("correct DEVCTL_API_CA, or run `devctl config set-context NAME --api-ca FILE`")
            })?;
        }
        let invalid = |error: &dyn std::error::Error| {
            Error::usage(format!("could not use the API at {url}: {}", format_chain(error)))
                .with_hint("check the URL and the CA certificate (DEVCTL_API_CA, or `--api-ca` of the context)")
        };
        let authority = authority.map(|path| path.display().to_string());
        // Through a kubeconfig, because it considers the proxy variables.
        let cluster = Cluster { server: Some(url.clone()), certificate_authority: authority, ..Cluster::default() };
        let context = Context { cluster: "api".to_owned(), ..Context::default() };
        let kubeconfig = Kubeconfig {
            clusters: vec![NamedCluster { name: "api".to_owned(), cluster: Some(cluster), ..NamedCluster::default() }],
            contexts: vec![NamedContext { name: "api".to_owned(), context: Some(context), ..NamedContext::default() }],
            current_context: Some("api".to_owned()),
            ..Kubeconfig::default()
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| invalid(&error))?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // This module repeats requests.
        config.default_retry = false;
        config.headers = headers(key)?;
        let client = Client::try_from(config).map_err(|error| invalid(&error))?;
        Ok(Self { client, url })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request and parses the response.
    pub async fn get<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.send(request).await?.parse(self)
    }

    /// As [`Self::get`]; returns nothing if the object does not exist.
    pub async fn get_opt<T: DeserializeOwned>(&self, request: &Request) -> Result<Option<T>> {
        match self.get(request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request until the API answers it, or the attempts are used up. Every request can be repeated: a change has an
    /// idempotency key.
    pub async fn send(&self, request: &Request) -> Result<Response> {
        let mut retry = Retry::new(request.retries);
        let limit = RESPONSE_TIMEOUT + request.wait;
        loop {
            let answer = async { self.read(self.start(request).await?).await };
            let failure = match tokio::time::timeout(limit, answer).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::temporary(self.timed_out(limit), None),
            };
            match retry.next_delay(&failure, Instant::now()) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(failure.error),
            }
        }
    }

    /// Sends a request once and returns the body of the response, which may not end.
    pub async fn stream(&self, request: &Request) -> Result<Body> {
        match tokio::time::timeout(RESPONSE_TIMEOUT, self.start(request)).await {
            Ok(Ok(response)) => Ok(response.into_body()),
            Ok(Err(failure)) => Err(failure.error),
            Err(_) => Err(self.timed_out(RESPONSE_TIMEOUT)),
        }
    }

    /// Sends a request and waits for the head of the response. A status of an error is a failure.
    async fn start(&self, request: &Request) -> std::result::Result<::http::Response<Body>, Failure> {
        let built = request.build(PREFIX);
        let built = built.map_err(|error| Failure::permanent(Error::failed(format!("invalid request: {error}"))))?;
        let response = self.client.send(built).await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let retry_after = retry::retry_after(response.headers());
        let response = self.read(response).await?;
        let error = problem::to_error(&self.url, response.status, &response.body);
        Err(match response.status.as_u16() {
            429 | 502..=504 => Failure::temporary(error, retry_after),
            _ => Failure::permanent(error),
        })
    }

    async fn read(&self, response: ::http::Response<Body>) -> std::result::Result<Response, Failure> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|error| {
            let message = format!("could not read the response of {}: {}", self.url, root_cause(&*error));
            Failure::temporary(Error::failed(message).with_hint("try again"), None)
        })?;
        Ok(Response { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    fn unreachable(&self, error: &kube::Error) -> Failure {
        let cause = root_cause(error);
        let message = format!("could not reach {}: {cause}", self.url);
        if cause.contains("certificate") {
            let hint = "check the URL; if a private CA signed the certificate, set DEVCTL_API_CA, or run \
                        `devctl config set-context NAME --api-ca FILE`";
            return Failure::permanent(Error::failed(message).with_hint(hint));
        }
        Failure::temporary(Error::failed(message).with_hint("check the network and the URL of the API"), None)
    }

    fn timed_out(&self, limit: Duration) -> Error {
        Error::timeout(format!("{} did not answer within {}s", self.url, limit.as_secs())).with_hint("try again")
    }
}

impl Response {
    /// Parses the body.
    pub fn parse<T: DeserializeOwned>(&self, http: &Http) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::failed(format!("unexpected response from {}: {error}", http.url))
                .with_hint("check the URL; devctl may be older than the API, compare with `devctl version`")
        })
    }

    pub fn into_bytes(self) -> Bytes {
        self.body
    }

    /// Returns a header, if it is text.
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Returns the headers of all requests.
fn headers(key: &str) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let bearer = HeaderValue::try_from(format!("Bearer {key}"));
    let mut bearer = bearer.map_err(|_| Error::usage("the API key has invalid characters"))?;
    bearer.set_sensitive(true);
    let agent = concat!("devctl/", env!("CARGO_PKG_VERSION"));
    Ok(vec![
        (header::AUTHORIZATION, bearer),
        (header::USER_AGENT, HeaderValue::from_static(agent)),
        (HeaderName::from_static(CLIENT_VERSION_HEADER), HeaderValue::from_static(version::NUMBER)),
    ])
}

/// Checks that a URL can be that of the API.
pub fn check_url(text: &str) -> Result<()> {
    parse_url(text).map(drop)
}

/// Parses the URL of the API. A key is sent without encryption only to this machine.
fn parse_url(text: &str) -> Result<String> {
    let invalid = |cause: &str| {
        Error::usage(format!("invalid API URL {text:?}: {cause}"))
            .with_hint("give the URL of the API, such as https://odc.example.org")
    };
    let url = text.trim_end_matches('/');
    let uri: ::http::Uri = url.parse().map_err(|error: ::http::uri::InvalidUri| invalid(&error.to_string()))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it has no host"))?;
    if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(invalid("it must not have a query or a user"));
    }
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(url.to_owned()),
        Some("http") if is_local => Ok(url.to_owned()),
        Some("http") => Err(invalid("the API key would be sent without encryption")),
        _ => Err(invalid("it must start with https://")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_sent_unencrypted_only_to_this_machine() {
        assert_eq!(parse_url("https://odc.example.org/").unwrap(), "https://odc.example.org");
        for valid in ["https://odc:8443/prefix", "http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost"] {
            assert_eq!(parse_url(valid).unwrap(), valid);
        }
        for invalid in [
            "",
            "odc.example.org",
            "http://odc.example.org",
            "ftp://odc",
            "https://u:p@odc",
            "https://odc?x=1",
            "https://",
        ] {
            assert!(parse_url(invalid).is_err(), "{invalid}");
        }
    }
}
