//! `odc local image load`: packs a static executable as an image and pushes it.

use std::path::Path;

use crate::layout::Layout;

/// Returns the reference by which pods pull the image. `path` is the location of the executable in the image.
pub async fn image_load(layout: Layout, binary: &Path, path: Option<&str>) -> anyhow::Result<String> {
    crate::image::load_binary(&super::load_blueprint(layout)?, binary, path).await
}
