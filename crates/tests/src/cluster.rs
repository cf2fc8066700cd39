//! A namespace of the test's own on real nodes, shared with other tests or had alone.

use std::path::PathBuf;

use crate::Namespace;
use crate::bed::{ALONE, Bed, Output, SHARED, odc_local};
use crate::finally::finally;

/// One bed serves all sizes up to this.
const NODES: u8 = 2;

pub struct Cluster {
    pub namespace: Namespace,
    /// The cloud's state directory.
    pub directory: PathBuf,
}

/// For tests that leave the nodes and the control plane as they are.
pub async fn with_cluster<T>(nodes: u8, test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>) -> anyhow::Result<T> {
    with(nodes, SHARED, test).await
}

/// For tests that take things away; they give them back.
pub async fn with_cluster_alone<T>(
    nodes: u8,
    test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    with(nodes, ALONE, test).await
}

async fn with<T>(nodes: u8, mode: u8, test: impl AsyncFnOnce(&Cluster) -> anyhow::Result<T>) -> anyhow::Result<T> {
    crate::begin();
    let bed = Bed::of(nodes.max(NODES));
    let _lease = bed.take(mode).await?;
    let client = odc_local::cluster::client(&bed.directory.join("kubeconfig")).await?;
    let cluster = Cluster { namespace: Namespace::create(client).await?, directory: bed.directory };
    finally(test(&cluster), async || cluster.namespace.delete().await).await
}

impl Cluster {
    /// Runs `odc local` on this cloud.
    pub async fn odc_local(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        odc_local(&self.directory, arguments).await
    }
}
