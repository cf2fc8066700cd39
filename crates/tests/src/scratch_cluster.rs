//! A cluster that a test starts, breaks and stops itself.

use std::path::PathBuf;

use rand::Rng as _;

use crate::cleanup::with_cleanup;
use crate::command::{Output, odc_local};
use crate::shared_cluster;

pub struct ScratchCluster {
    /// State directory. It does not exist until the test starts the cluster.
    pub directory: PathBuf,
}

/// Resets the cluster after the test.
pub async fn with_scratch_cluster<T>(
    test: impl AsyncFnOnce(&ScratchCluster) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    crate::init();
    let name = format!("{}own-{:04x}", shared_cluster::directory_prefix(), rand::rng().next_u32() & 0xffff);
    let cluster = ScratchCluster { directory: std::env::temp_dir().join(name) };
    with_cleanup(test(&cluster), async || {
        if cluster.directory.exists() {
            cluster.odc_local(&["reset"]).await?.check()?;
        }
        Ok(())
    })
    .await
}

impl ScratchCluster {
    /// Runs `odc local` on this cluster.
    pub async fn odc_local(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        odc_local(&self.directory, arguments).await
    }
}
