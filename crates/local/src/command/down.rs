//! Ends a cloud. Its state is kept; `reset` deletes that too.

use std::time::Duration;

use anyhow::Context as _;

use crate::control::{Conversation, Request};
use crate::daemon::end_cloud;
use crate::layout::Layout;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::settings::Settings;

pub async fn down(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    let Some(mut settings) = Settings::load(layout)? else {
        progress.say(&format!("No local cloud in {}: nothing to stop.", layout.root().display()));
        return Ok(());
    };
    progress.step("stopping", stop(layout)).await?;
    // Nodes taken away belong to the time that just ended.
    settings.stopped.clear();
    settings.store(layout)?;
    progress.say(&format!("Stopped. Its state is kept in {}; ./dev up brings it back.", layout.root().display()));
    Ok(())
}

pub async fn reset(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !layout.root().exists() {
        progress.say(&format!("No local cloud in {}: nothing to delete.", layout.root().display()));
        return Ok(());
    }
    // Only what is ours is deleted, and another version's cloud is ended by its names alone.
    anyhow::ensure!(
        is_state_directory(layout)?,
        "{} is not the state directory of a local cloud: it has no cloud.json. Nothing was deleted",
        layout.root().display()
    );
    match Settings::load(layout) {
        Ok(_) => progress.step("stopping", stop(layout)).await?,
        Err(error) if error.is::<Problem>() => {
            progress.step("stopping what another version left", end_by_name(layout)).await?;
        }
        Err(error) => return Err(error),
    }
    std::fs::remove_dir_all(layout.root()).with_context(|| format!("deleting {}", layout.root().display()))?;
    progress.say(&format!("Deleted {}. ./dev up starts afresh.", layout.root().display()));
    Ok(())
}

/// An `up` that failed early leaves locks and no settings.
fn is_state_directory(layout: &Layout) -> anyhow::Result<bool> {
    let only_locks = std::fs::read_dir(layout.root())?
        .flatten()
        .all(|entry| entry.path().extension().is_some_and(|ending| ending == "lock"));
    Ok(only_locks || layout.settings().exists())
}

/// By the supervisor if one runs; else we do its work.
async fn stop(layout: &Layout) -> anyhow::Result<()> {
    if let Some(conversation) = Conversation::start(&layout.socket(), &Request::Stop).await? {
        conversation.done().await?;
        return wait_for_lock(layout).await;
    }
    let _lock = hold_lock(layout)?;
    end_cloud(layout).await
}

/// Settings of another version cannot be read, but names and records are found without them.
async fn end_by_name(layout: &Layout) -> anyhow::Result<()> {
    if let Some(conversation) = Conversation::start(&layout.socket(), &Request::HandOver).await? {
        conversation.done().await?;
        wait_for_lock(layout).await?;
    }
    let _lock = hold_lock(layout)?;
    crate::supervisor::end_in_order(&layout.run(), crate::process::Record::load_all(&layout.run())).await?;
    if rustix::process::geteuid().is_root() {
        crate::host::Host::new(layout, crate::network::Network::Loopback)?.remove().await?;
    }
    Ok(())
}

fn hold_lock(layout: &Layout) -> anyhow::Result<std::fs::File> {
    let lock = std::fs::File::create(layout.lock())?;
    lock.try_lock().map_err(|_| Problem::Busy { directory: layout.root().into() })?;
    Ok(lock)
}

/// The supervisor says "done" a moment before it is gone.
pub(super) async fn wait_for_lock(layout: &Layout) -> anyhow::Result<()> {
    let lock = std::fs::File::create(layout.lock())?;
    let waiting = tokio::task::spawn_blocking(move || lock.lock());
    tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .context("the supervisor does not end; see ./dev logs supervisor")???;
    Ok(())
}
