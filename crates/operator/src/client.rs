//! The client for the API server. kube's default client keeps every idle connection, with its buffers, until the API
//! server closes it; this one limits the pool, so that a burst of requests does not hold memory.

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

use crate::api_server_clock::{self, Clock};
use crate::config::Config;

const MAX_IDLE_CONNECTIONS: usize = 32;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Read and write buffer of a connection. Response headers must fit; bodies may be larger.
const MAX_BUFFER_BYTES: usize = 32 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub async fn new(config: &Config, clock: &Clock) -> anyhow::Result<Client> {
    let mut settings = match &config.kubeconfig {
        Some(path) => {
            let parsed = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer()
            .await
            .context("no cluster configuration found; set --kubeconfig when running outside a cluster")?,
    };
    anyhow::ensure!(
        settings.proxy_url.is_none(),
        "proxies are not supported: unset HTTPS_PROXY, or remove proxy-url from the kubeconfig"
    );
    settings.headers.push((http::header::USER_AGENT, HeaderValue::from_static(odc_api::label::OPERATOR)));

    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let mut connector = TimeoutConnector::new(settings.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_write_timeout(settings.write_timeout);
    let http_client = hyper_util::client::legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .http1_max_buf_size(MAX_BUFFER_BYTES)
        .build::<_, Body>(connector);
    let clock = clock.clone();
    let observe_date = MapResponseLayer::new(move |response: http::Response<_>| {
        if let Some(date) = api_server_clock::date_header(response.headers()) {
            clock.observe(date);
        }
        response
    });
    // No retry layer: a hidden retry could write after another process became leader.
    let service = ServiceBuilder::new()
        .layer(observe_date)
        .layer(settings.base_uri_layer())
        .option_layer(settings.auth_layer()?)
        .layer(settings.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http_client);
    Ok(ClientBuilder::new(service, settings.default_namespace).build())
}
