//! How the API server is reached. kube's own client keeps every connection that was needed at once until the API server
//! closes it, each with its buffers; a burst of requests is to leave nothing behind.

use std::time::Duration;

use anyhow::Context as _;
use http::HeaderValue;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::util::MapResponseLayer;
use tower::{BoxError, ServiceBuilder};

use crate::clock::{self, Clock};
use crate::config::Config;

/// Connections kept beside those in use, and for how long.
const IDLE: usize = 32;
const IDLE_FOR: Duration = Duration::from_secs(5);
/// For what is read and written at once on a connection. Larger answers come in several pieces; their heads must fit.
const BUFFER: usize = 32 << 10;
const CONNECT: Duration = Duration::from_secs(3);

pub async fn new(config: &Config, clock: &Clock) -> anyhow::Result<Client> {
    let mut settings = match &config.kubeconfig {
        Some(path) => {
            let parsed = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer().await.context("finding the cluster; give --kubeconfig outside of one")?,
    };
    anyhow::ensure!(
        settings.proxy_url.is_none(),
        "the operator asks the API server without a proxy: unset HTTPS_PROXY, or take proxy-url out of the kubeconfig"
    );
    settings.headers.push((http::header::USER_AGENT, HeaderValue::from_static("odc-operator")));

    let mut plain = HttpConnector::new();
    plain.enforce_http(false);
    let mut connector = TimeoutConnector::new(settings.rustls_https_connector_with_connector(plain)?);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_write_timeout(settings.write_timeout);
    let requests = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_FOR)
        .pool_max_idle_per_host(IDLE)
        .http1_max_buf_size(BUFFER)
        .build::<_, Body>(connector);
    let clock = clock.clone();
    let learning = MapResponseLayer::new(move |answer: http::Response<_>| {
        if let Some(date) = clock::date(answer.headers()) {
            clock.learn(date);
        }
        answer
    });
    // Nothing that was sent is tried again here: a retry we do not know of could write after somebody else leads.
    let service = ServiceBuilder::new()
        .layer(learning)
        .layer(settings.base_uri_layer())
        .option_layer(settings.auth_layer()?)
        .layer(settings.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(requests);
    Ok(ClientBuilder::new(service, settings.default_namespace).build())
}
