//! What `odc local …` does, one file per verb or family of verbs.

mod devices;
mod down;
mod inspect;
mod job;
mod up;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use devices::{gpu_fail, gpu_heal, node_start, node_stop};
pub use down::{down, reset};
pub use inspect::{env, logs, status};
pub use job::{Job, job};
pub use up::up;

use crate::artifact::{Executables, home};
use crate::control::{Conversation, Request};
use crate::layout::Layout;
use crate::parts::Blueprint;
use crate::problem::Problem;
use crate::progress::Progress;
use crate::settings::Settings;

pub use crate::daemon::supervise;

/// The state directory: the one named, or the user's own.
pub fn layout(named: Option<PathBuf>) -> anyhow::Result<Layout> {
    let root = match named {
        Some(named) => named,
        None => match std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(state) => state.join("odc/local"),
            None => home()?.join(".local/state/odc/local"),
        },
    };
    resolved(&root).map(Layout::new).with_context(|| format!("finding {}", root.display()))
}

/// Without links and detours, as the kernel lists its mounts; what does not exist yet is taken as written.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (std::fs::canonicalize(&path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(resolved(parent)?.join(name))
        }
        (result, ..) => result,
    }
}

/// Builds everything a cloud may need, so that no later step has to wait for it.
pub async fn build(control_plane: bool) -> anyhow::Result<()> {
    let (executables, progress) = (Executables::find()?, Progress::new());
    if control_plane {
        return executables.ensure_control_plane(progress).await;
    }
    executables.ensure_all(progress).await?;
    crate::image::ensure_cached(&executables, progress).await
}

/// Packs a static executable, at a place in the image if that matters, and puts it into the cloud; gives the name pods use.
pub async fn image_load(layout: Layout, binary: &Path, at: Option<&str>) -> anyhow::Result<String> {
    crate::image::load_binary(&blueprint(layout)?, binary, at).await
}

/// Two commands that change the same cloud would get in each other's way.
fn take_turn(layout: &Layout) -> anyhow::Result<std::fs::File> {
    let file = std::fs::File::create(layout.turn()).with_context(|| format!("opening {}", layout.turn().display()))?;
    file.try_lock().map_err(|_| Problem::Busy { directory: layout.root().into() })?;
    Ok(file)
}

/// A turn on a cloud that is up.
async fn take_running(layout: &Layout) -> anyhow::Result<std::fs::File> {
    if Conversation::start(&layout.socket(), &Request::Hello).await?.is_none() {
        return Err(Problem::NotRunning { directory: layout.root().into() }.into());
    }
    take_turn(layout)
}

/// Asks the supervisor for something and waits until it is done.
async fn ask(blueprint: &Blueprint, request: &Request) -> anyhow::Result<()> {
    match Conversation::start(&blueprint.layout.socket(), request).await? {
        Some(conversation) => conversation.done().await,
        None => Err(Problem::NotRunning { directory: blueprint.layout.root().into() }.into()),
    }
}

/// The cloud as it was last asked for.
fn blueprint(layout: Layout) -> anyhow::Result<Blueprint> {
    let settings = Settings::load(&layout)?.ok_or_else(|| Problem::NotRunning { directory: layout.root().into() })?;
    Blueprint::new(settings, layout, Executables::find()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_is_one_cloud_however_it_is_written() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for written in [link.join("cloud"), real.join("../real/cloud"), real.join("cloud")] {
            assert_eq!(layout(Some(written)).unwrap().root(), real.join("cloud"));
        }
    }
}
