//! A cluster that a test starts, breaks and stops itself.

use std::path::PathBuf;

use odc_local::cgroup::Cgroups;
use odc_local::layout::Layout;
use rand::Rng as _;
use rustix::process::{Signal, kill_process};

use crate::cleanup::with_cleanup;
use crate::command::{Output, odc_local};
use crate::{Cluster, Namespace, shared_cluster};

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

    /// Returns the started cluster with a new namespace.
    pub async fn cluster(&self) -> anyhow::Result<Cluster> {
        let namespace = Namespace::create(self.directory.join("kubeconfig")).await?;
        Ok(Cluster { namespace, directory: self.directory.clone() })
    }

    /// Sends SIGKILL to all processes of the cluster with this command, such as `["/odc", "operator"]`. Returns their number.
    pub fn kill(&self, command: &[&str]) -> anyhow::Result<usize> {
        let prefix: String = command.iter().map(|word| format!("{word}\0")).collect();
        let mut killed = 0;
        for pid in Cgroups::detect()?.processes(&Layout::new(self.directory.clone()).id().cgroup()) {
            // A process may have ended meanwhile.
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
            if line.starts_with(prefix.as_bytes()) && kill_process(pid, Signal::KILL).is_ok() {
                killed += 1;
            }
        }
        Ok(killed)
    }
}
