//! `odc local down` and `odc local reset`: stop the cluster; `reset` also deletes its state.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::control::{Request, SupervisorClient};
use crate::daemon::stop_all;
use crate::error::Error;
use crate::layout::Layout;
use crate::progress::Progress;
use crate::settings::Settings;

const SUPERVISOR_EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

pub async fn down(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !layout.settings().exists() {
        progress.print(&format!("No local cluster in {}, nothing to stop", layout.root().display()));
        return Ok(());
    }
    let _lock = super::lock_cluster(layout)?;
    progress.step("stopping the cluster", stop(layout)).await?;
    progress.print(&format!(
        "Stopped the local cluster. Its state is kept in {}. Run `./dev up` to start it again.",
        layout.root().display()
    ));
    Ok(())
}

pub async fn reset(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !layout.root().exists() {
        progress.print(&format!("No local cluster in {}, nothing to delete", layout.root().display()));
        return Ok(());
    }
    anyhow::ensure!(
        is_state_directory(layout)?,
        "{} is not the state directory of a local cluster (it has no cluster.json); nothing was deleted",
        layout.root().display()
    );
    let _lock = super::lock_cluster(layout)?;
    progress.step("stopping the cluster", stop(layout)).await?;
    std::fs::remove_dir_all(layout.root()).with_context(|| format!("deleting {}", layout.root().display()))?;
    progress.print(&format!(
        "Deleted the local cluster and its state in {}. Run `./dev up` to create a new one.",
        layout.root().display()
    ));
    Ok(())
}

/// Stops a cluster of any version: resources of one with unreadable settings are found by the cluster ID in their names.
async fn stop(layout: &Layout) -> anyhow::Result<()> {
    match Settings::load(layout) {
        Ok(Some(mut settings)) => {
            stop_by_settings(layout).await?;
            // The next `up` starts all nodes.
            settings.stopped.clear();
            settings.store(layout)
        }
        Ok(None) => stop_by_id(layout).await,
        Err(error) if error.is::<Error>() => stop_by_id(layout).await,
        Err(error) => Err(error),
    }
}

/// Also accepts a directory with nothing but lock files, which an early failure of `up` leaves behind.
fn is_state_directory(layout: &Layout) -> anyhow::Result<bool> {
    let only_locks = std::fs::read_dir(layout.root())?
        .flatten()
        .all(|entry| entry.path().extension().is_some_and(|extension| extension == "lock"));
    Ok(only_locks || layout.settings().exists())
}

/// Lets the supervisor stop the cluster, or does it in this process if none is running.
async fn stop_by_settings(layout: &Layout) -> anyhow::Result<()> {
    if let Some(client) = SupervisorClient::send(&layout.socket(), &Request::Stop).await? {
        client.wait_done().await?;
        return wait_for_supervisor_exit(layout).await;
    }
    let _lock = lock_supervisor(layout)?;
    stop_all(layout).await
}

async fn stop_by_id(layout: &Layout) -> anyhow::Result<()> {
    if let Some(client) = SupervisorClient::send(&layout.socket(), &Request::HandOver).await? {
        client.wait_done().await?;
        wait_for_supervisor_exit(layout).await?;
    }
    let _lock = lock_supervisor(layout)?;
    let records = crate::process::Record::load_all(&layout.run());
    crate::supervisor::stop_in_dependency_order(&layout.run(), records).await?;
    if rustix::process::geteuid().is_root() {
        crate::host::Host::new(layout, crate::network::Network::Loopback)?.remove().await?;
    }
    Ok(())
}

fn lock_supervisor(layout: &Layout) -> anyhow::Result<std::fs::File> {
    let lock = std::fs::File::create(layout.lock())?;
    lock.try_lock().map_err(|_| Error::Busy { directory: layout.root().into() })?;
    Ok(lock)
}

/// Waits until the supervisor has released its lock, shortly after its last reply.
pub(super) async fn wait_for_supervisor_exit(layout: &Layout) -> anyhow::Result<()> {
    let lock = std::fs::File::create(layout.lock())?;
    let deadline = Instant::now() + SUPERVISOR_EXIT_TIMEOUT;
    while lock.try_lock().is_err() {
        anyhow::ensure!(Instant::now() < deadline, "the supervisor does not exit\nhint: run `./dev logs supervisor`");
        tokio::time::sleep(LOCK_POLL_INTERVAL).await;
    }
    Ok(())
}
