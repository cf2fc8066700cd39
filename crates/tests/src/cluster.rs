//! A namespace for one test on real nodes, shared with other tests or used exclusively.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::Namespace;
use crate::cleanup::with_cleanup;
use crate::command::{Output, odc_local};
use crate::namespace::wait_api_server_ready;
use crate::shared_cluster::{Mode, Purpose, SharedCluster};
use crate::wait;

/// Size of the cluster that serves all requests up to this size.
const MIN_NODES: u8 = 2;
/// Covers the restart of every component, and of a node that a failed test has left stopped.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(180);

pub struct Cluster {
    pub namespace: Namespace,
    /// State directory of the cluster.
    pub directory: PathBuf,
}

/// For tests that leave nodes and control plane as they are.
pub async fn with_cluster<T>(nodes: u8, test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with_mode(nodes, Mode::Shared, test).await
}

/// For tests that stop nodes or kill components. The cluster is repaired afterwards, also if the test fails.
pub async fn with_exclusive_cluster<T>(
    nodes: u8,
    test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with_mode(nodes, Mode::Exclusive, test).await
}

async fn with_mode<T>(
    nodes: u8,
    mode: Mode,
    test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    crate::init();
    let shared = SharedCluster::new(Purpose::Nodes(nodes.max(MIN_NODES)));
    let _guard = shared.acquire(mode).await?;
    // A killed test cannot clean up, so the next one repairs what it left.
    repair(&shared).await.context("before the test")?;
    let namespace = Namespace::create(shared.directory.join("kubeconfig")).await?;
    let cluster = Cluster { namespace, directory: shared.directory.clone() };
    with_cleanup(test(&cluster), async || {
        if mode == Mode::Exclusive {
            repair(&shared).await.context("after the test")?;
        }
        cluster.namespace.delete().await
    })
    .await
}

/// Starts whatever a test has left down, and waits until every component and node is ready.
async fn repair(shared: &SharedCluster) -> anyhow::Result<()> {
    let directory = &shared.directory;
    if odc_local(directory, &["status"]).await?.success && unready_nodes(shared).await?.is_empty() {
        return Ok(());
    }
    // `up` restarts the supervisor if necessary and returns when all components are ready.
    odc_local(directory, &["up"]).await?.check()?;
    wait::until("repaired cluster", RECOVERY_TIMEOUT, async || {
        for node in unready_nodes(shared).await? {
            odc_local(directory, &["node", "start", &node]).await?.check()?;
        }
        odc_local(directory, &["status"]).await?.check()?;
        let unready = unready_nodes(shared).await?;
        anyhow::ensure!(unready.is_empty(), "nodes {unready:?} are not ready");
        Ok(())
    })
    .await
}

async fn unready_nodes(shared: &SharedCluster) -> anyhow::Result<Vec<String>> {
    let client = odc_local::cluster::client(&shared.directory.join("kubeconfig")).await?;
    wait_api_server_ready(&client).await?;
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await?;
    let unready = nodes.into_iter().filter(|node| !odc_local::cluster::is_ready(node));
    Ok(unready.map(|node| node.name_any()).collect())
}

impl Cluster {
    /// Runs `odc local` on this cluster.
    pub async fn odc_local(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        odc_local(&self.directory, arguments).await
    }
}
