//! What `odc local …` does, one file per verb or family of verbs.

mod devices;
mod down;
mod inspect;
mod job;
mod up;

use std::path::PathBuf;

use anyhow::Context as _;

pub use devices::{gpu_fail, gpu_heal, node_start, node_stop};
pub use down::{down, reset};
pub use inspect::{env, logs, status};
pub use job::{Job, job};
pub use up::up;

use crate::artifact::{Executables, home};
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
    std::path::absolute(&root).map(Layout::new).with_context(|| format!("finding {}", root.display()))
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

/// Packs one of our static executables and puts it into the cloud; gives the name pods use.
pub async fn image_load(layout: Layout, binary: &std::path::Path) -> anyhow::Result<String> {
    crate::image::load_binary(&blueprint(layout)?, binary).await
}

/// The cloud as it was last asked for.
fn blueprint(layout: Layout) -> anyhow::Result<Blueprint> {
    let settings = Settings::load(&layout)?.ok_or_else(|| Problem::NotRunning { directory: layout.root().into() })?;
    Blueprint::new(settings, layout, Executables::find()?)
}
