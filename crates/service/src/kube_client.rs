//! The client for the API server.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderValue;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Connects with a kubeconfig, or else with the service account of the pod. The client does not repeat calls by itself: a
/// hidden retry of a create would report its own object as existing, and the queue repeats requests anyway.
pub async fn new(kubeconfig: Option<&Path>, user_agent: &'static str) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let parsed = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?
        }
        None => kube::Config::infer()
            .await
            .context("no cluster configuration found; set --kubeconfig when running outside a cluster")?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.headers.push((http::header::USER_AGENT, HeaderValue::from_static(user_agent)));
    Ok(Client::try_from(config)?)
}
