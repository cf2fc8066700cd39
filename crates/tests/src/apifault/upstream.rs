//! The way to the real API server.

use std::path::Path;

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, Response, header};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// Stands in the kubeconfig of a client that needs no token of its own: `kubectl` asks its user when it finds none.
pub const NO_TOKEN: &str = "none-of-its-own";

pub struct Upstream {
    /// With the credentials of the kubeconfig.
    known: Client,
    /// Without any: a certificate would win over the token of a client that brings its own.
    bare: Client,
}

impl Upstream {
    pub async fn open(kubeconfig: &Path) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("reading {}", kubeconfig.display()))?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        // Retries and time limits are the client's business.
        config.default_retry = false;
        config.read_timeout = None;
        config.write_timeout = None;
        config.headers.clear();
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        Ok(Self { known: Client::try_from(config)?, bare: Client::try_from(bare)? })
    }

    pub async fn send(&self, head: Parts, body: Bytes) -> anyhow::Result<Response<Body>> {
        let Parts { method, uri, mut headers, .. } = head;
        if headers.get(header::AUTHORIZATION).is_some_and(|value| *value == format!("Bearer {NO_TOKEN}")) {
            headers.remove(header::AUTHORIZATION);
        }
        let client = if headers.contains_key(header::AUTHORIZATION) { &self.bare } else { &self.known };
        forget_the_connection(&mut headers);
        headers.remove(header::HOST);
        // What is read here must be readable.
        headers.remove(header::ACCEPT_ENCODING);
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        client.send(request).await.context("asking the API server")
    }
}

/// These speak of one connection, and the two sides have one each.
pub fn forget_the_connection(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        headers.remove(name);
    }
}
