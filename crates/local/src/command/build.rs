//! `odc local build`: builds executables and images in advance.

use std::io::Write as _;

use anyhow::Context as _;

use crate::artifact::Executables;
use crate::progress::Progress;

pub async fn build(control_plane: bool) -> anyhow::Result<()> {
    let (executables, progress) = (Executables::find()?, Progress::new());
    if control_plane {
        return executables.ensure_control_plane(progress).await;
    }
    executables.ensure_all(progress).await?;
    crate::image::ensure_base_images(&executables, progress).await?;
    crate::image::ensure_csi_base(progress).await
}

/// Builds the CSI sanity suite and prints the path of its executable.
pub async fn build_csi_sanity() -> anyhow::Result<()> {
    let executables = Executables::find()?;
    executables.ensure_csi_sanity(Progress::new()).await?;
    writeln!(std::io::stdout().lock(), "{}", executables.csi_sanity.display()).context("printing the path")
}
