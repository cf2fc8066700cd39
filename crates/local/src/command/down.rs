//! Ends a cloud. Its state is kept; `reset` deletes that too.

use std::time::{Duration, Instant};

use anyhow::Context as _;

use crate::control::{Conversation, Request};
use crate::daemon::end_cloud;
use crate::layout::Layout;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::settings::Settings;

pub async fn down(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !layout.settings().exists() {
        progress.say(&format!("No local cloud in {}: nothing to stop.", layout.root().display()));
        return Ok(());
    }
    let _turn = super::take_turn(layout)?;
    progress.step("stopping", stop(layout)).await?;
    progress.say(&format!("Stopped. Its state is kept in {}; ./dev up brings it back.", layout.root().display()));
    Ok(())
}

pub async fn reset(layout: &Layout) -> anyhow::Result<()> {
    let progress = Progress::new();
    if !layout.root().exists() {
        progress.say(&format!("No local cloud in {}: nothing to delete.", layout.root().display()));
        return Ok(());
    }
    anyhow::ensure!(
        is_state_directory(layout)?,
        "{} is not the state directory of a local cloud: it has no cloud.json. Nothing was deleted",
        layout.root().display()
    );
    let _turn = super::take_turn(layout)?;
    progress.step("stopping", stop(layout)).await?;
    std::fs::remove_dir_all(layout.root()).with_context(|| format!("deleting {}", layout.root().display()))?;
    progress.say(&format!("Deleted {}. ./dev up starts afresh.", layout.root().display()));
    Ok(())
}

/// Of whatever version: settings that cannot be read are not needed to find what carries the cloud's name.
async fn stop(layout: &Layout) -> anyhow::Result<()> {
    match Settings::load(layout) {
        Ok(Some(mut settings)) => {
            stop_known(layout).await?;
            // Nodes taken away belong to the time that just ended.
            settings.stopped.clear();
            settings.store(layout)
        }
        Ok(None) => stop_by_name(layout).await,
        Err(error) if error.is::<Problem>() => stop_by_name(layout).await,
        Err(error) => Err(error),
    }
}

/// An `up` that failed early leaves locks and no settings.
fn is_state_directory(layout: &Layout) -> anyhow::Result<bool> {
    let only_locks = std::fs::read_dir(layout.root())?
        .flatten()
        .all(|entry| entry.path().extension().is_some_and(|ending| ending == "lock"));
    Ok(only_locks || layout.settings().exists())
}

/// By the supervisor if one runs; else we do its work.
async fn stop_known(layout: &Layout) -> anyhow::Result<()> {
    if let Some(conversation) = Conversation::start(&layout.socket(), &Request::Stop).await? {
        conversation.done().await?;
        return wait_for_lock(layout).await;
    }
    let _lock = hold_lock(layout)?;
    end_cloud(layout).await
}

async fn stop_by_name(layout: &Layout) -> anyhow::Result<()> {
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
    let deadline = Instant::now() + Duration::from_secs(20);
    while lock.try_lock().is_err() {
        anyhow::ensure!(Instant::now() < deadline, "the supervisor does not end; see ./dev logs supervisor");
        // A lock tells nobody when it becomes free.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
