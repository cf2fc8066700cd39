//! Client of the real API server.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, header};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Placeholder token of clients without their own. `kubectl` prompts for credentials if a kubeconfig has none.
pub const NO_TOKEN: &str = "none-of-its-own";

pub struct Upstream {
    /// Uses the credentials of the kubeconfig.
    authenticated: Client,
    /// Has no credentials: a client certificate would take precedence over the token in a request.
    anonymous: Client,
}

impl Upstream {
    pub async fn open(kubeconfig: &Path) -> anyhow::Result<Self> {
        let parsed = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        // The client of the proxy retries and times out itself.
        config.default_retry = false;
        config.read_timeout = None;
        config.write_timeout = None;
        config.headers.clear();
        let mut anonymous = config.clone();
        anonymous.auth_info = AuthInfo::default();
        Ok(Self { authenticated: Client::try_from(config)?, anonymous: Client::try_from(anonymous)? })
    }

    pub async fn send(&self, head: Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let Parts { method, uri, mut headers, .. } = head;
        if headers.get(header::AUTHORIZATION).is_some_and(|value| *value == format!("Bearer {NO_TOKEN}")) {
            headers.remove(header::AUTHORIZATION);
        }
        let client = if headers.contains_key(header::AUTHORIZATION) { &self.anonymous } else { &self.authenticated };
        strip_connection_headers(&mut headers);
        headers.remove(header::HOST);
        // The proxy parses bodies, so they must not be compressed.
        headers.remove(header::ACCEPT_ENCODING);
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        client.send(request).await.context("sending the request to the API server")
    }
}

/// Removes headers that apply to one connection only.
pub fn strip_connection_headers(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
}
