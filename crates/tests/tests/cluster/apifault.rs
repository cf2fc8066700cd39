//! The fault-injecting proxy between small clients and a real API server.

mod forwarding;
mod request_faults;
mod watch_faults;

use anyhow::Context as _;
use futures_util::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams, WatchEvent};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use odc_tests::apifault::{Apifault, Fault, Plan};
use odc_tests::{ControlPlane, Namespace, namespace};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use tokio::process::{Child, Command};

use crate::TIMEOUT;

/// Requests through the proxy, and the same objects without it.
struct ProxyFixture {
    apifault: Apifault,
    client: Client,
    maps: Api<ConfigMap>,
    direct: Api<ConfigMap>,
}

const AGENT: &str = "behind-apifault";

impl ProxyFixture {
    async fn start(namespace: &Namespace, faults: impl IntoIterator<Item = Fault>) -> anyhow::Result<Self> {
        Self::start_in(&namespace.kubeconfig, &namespace.client, &namespace.name, faults).await
    }

    /// Uses a dedicated control plane, for tests that read its audit log.
    async fn start_on_plane(plane: &ControlPlane, faults: impl IntoIterator<Item = Fault>) -> anyhow::Result<Self> {
        namespace::wait_ready(&plane.client, "default").await?;
        Self::start_in(&plane.kubeconfig, &plane.client, "default", faults).await
    }

    async fn start_in(
        kubeconfig: &Path,
        direct: &Client,
        namespace: &str,
        faults: impl IntoIterator<Item = Fault>,
    ) -> anyhow::Result<Self> {
        let apifault = Apifault::start(kubeconfig, Plan::new(faults)).await?;
        let client = client(&apifault, None).await?;
        let maps = Api::namespaced(client.clone(), namespace);
        Ok(Self { apifault, client, maps, direct: Api::namespaced(direct.clone(), namespace) })
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        self.maps.create(&PostParams::default(), &map(name)).await
    }

    async fn exists(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.direct.get_opt(name).await?.is_some())
    }

    /// Starts a process that stands for the client, which is this test.
    fn spawn_victim(&self) -> anyhow::Result<Child> {
        let child = Command::new("sleep").arg("300").kill_on_drop(true).spawn()?;
        self.apifault.set_client(child.id().unwrap_or_default())?;
        Ok(child)
    }
}

/// Returns a client of the proxy without retries.
async fn client(apifault: &Apifault, token: Option<&str>) -> anyhow::Result<Client> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("kubeconfig");
    apifault.kubeconfig(&path, token)?;
    let kubeconfig = Kubeconfig::read_from(&path)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, AGENT.parse()?));
    Ok(Client::try_from(config)?)
}

fn map(name: &str) -> ConfigMap {
    let metadata = kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Returns the status code of a failed request, or `None` if there was no response.
fn error_code<T>(result: kube::Result<T>) -> anyhow::Result<Option<u16>> {
    match result {
        Ok(_) => anyhow::bail!("the request succeeded"),
        Err(kube::Error::Api(status)) => Ok(Some(status.code)),
        Err(_) => Ok(None),
    }
}

async fn was_killed(mut child: Child) -> anyhow::Result<bool> {
    let status = tokio::time::timeout(TIMEOUT, child.wait()).await??;
    Ok(status.signal() == Some(9))
}

/// Returns the next event of a watch, as in `added one`.
async fn next(watch: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin)) -> anyhow::Result<String> {
    let event = tokio::time::timeout(TIMEOUT, watch.try_next()).await??;
    Ok(match event.context("the watch has ended")? {
        WatchEvent::Added(map) => format!("added {}", map.name_any()),
        WatchEvent::Modified(map) => format!("modified {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    })
}
