//! The subcommands of `odc local`, one file per verb or noun.

mod build;
mod down;
mod env;
mod gpu;
mod image_load;
mod job;
mod logs;
mod node;
mod status;
mod up;

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

pub use build::{build, build_csi_sanity};
pub use down::{down, reset};
pub use env::env;
pub use gpu::{gpu_fail, gpu_recover};
pub use image_load::image_load;
pub use job::{Job, job};
pub use logs::logs;
pub use node::{node_start, node_stop};
pub use status::status;
pub use up::up;

use crate::artifact::{Executables, home_dir};
use crate::components::Blueprint;
use crate::control::{Request, SupervisorClient};
use crate::error::Error;
use crate::layout::Layout;
use crate::settings::Settings;

pub use crate::daemon::supervise;

/// Returns the layout of the given state directory, or of the user's default one.
pub fn layout(directory: Option<PathBuf>) -> anyhow::Result<Layout> {
    let root = match directory {
        Some(directory) => directory,
        None => match std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute()) {
            Some(state) => state.join("odc/local"),
            None => home_dir()?.join(".local/state/odc/local"),
        },
    };
    canonicalize_existing(&root).map(Layout::new).with_context(|| format!("resolving {}", root.display()))
}

/// Resolves symbolic links as the kernel does in its mount table; components that do not exist yet are kept as given.
fn canonicalize_existing(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (std::fs::canonicalize(&path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(canonicalize_existing(parent)?.join(name))
        }
        (result, ..) => result,
    }
}

/// Prevents two commands from changing the same cluster at the same time.
fn lock_cluster(layout: &Layout) -> anyhow::Result<File> {
    let path = layout.command_lock();
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    file.try_lock().map_err(|_| Error::Busy { directory: layout.root().into() })?;
    Ok(file)
}

/// Like [`lock_cluster`], and fails if the cluster is not running.
async fn lock_running_cluster(layout: &Layout) -> anyhow::Result<File> {
    if SupervisorClient::send(&layout.socket(), &Request::Hello).await?.is_none() {
        return Err(Error::NotRunning { directory: layout.root().into() }.into());
    }
    lock_cluster(layout)
}

/// Sends a request to the supervisor and waits until it is done.
async fn request(blueprint: &Blueprint, request: &Request) -> anyhow::Result<()> {
    match SupervisorClient::send(&blueprint.layout.socket(), request).await? {
        Some(client) => client.wait_done().await,
        None => Err(Error::NotRunning { directory: blueprint.layout.root().into() }.into()),
    }
}

/// Builds the blueprint from the stored settings.
fn load_blueprint(layout: Layout) -> anyhow::Result<Blueprint> {
    let settings = Settings::load(&layout)?.ok_or_else(|| Error::NotRunning { directory: layout.root().into() })?;
    Blueprint::new(settings, layout, Executables::find()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_directory_give_the_same_layout() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for spelling in [link.join("cluster"), real.join("../real/cluster"), real.join("cluster")] {
            assert_eq!(layout(Some(spelling)).unwrap().root(), real.join("cluster"));
        }
    }
}
