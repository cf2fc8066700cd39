//! Container images without a container engine: packed as OCI layouts in the cache, pushed into a cloud's registry.

mod base;
mod pack;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::artifact::Executables;
use crate::parts::{Blueprint, REGISTRY_NAME};
use crate::probe::Probe;
use crate::process::run;
use crate::progress::Progress;

/// What every pod's sandbox runs.
pub const PAUSE: &str = "odc/pause:1";
/// What a dev server runs when nobody chose an image.
pub const DEV_BASE: &str = "odc/dev-base:bookworm";

/// The port is part of an image's name, and the same in every cloud with nodes.
const REGISTRY_PORT: u16 = 5000;

/// How pods name an image of ours.
pub fn reference(name: &str) -> String {
    format!("{REGISTRY_NAME}:{REGISTRY_PORT}/{name}")
}

/// Makes the images every cloud starts from, as far as they are not in the cache.
pub async fn ensure_cached(executables: &Executables, progress: Progress) -> anyhow::Result<()> {
    if !base::layout()?.exists() {
        progress
            .step("building the base image of dev servers (about a minute, once)", base::build(&base::layout()?))
            .await?;
    }
    let pause = pack::cached(&executables.pause)?;
    if !pause.exists() {
        pack::binary(&executables.pause, &pause)?;
    }
    Ok(())
}

/// The job `images`: puts the cached images into the cloud's registry.
pub async fn push_cached(blueprint: &Blueprint) -> anyhow::Result<()> {
    push(blueprint, &pack::cached(&blueprint.executables.pause)?, PAUSE).await?;
    push(blueprint, &base::layout()?, DEV_BASE).await
}

/// Packs one of our static executables and puts it into the cloud; gives the name pods use.
///
/// The tag is the content's own, so a changed binary is a changed reference and no node keeps an old one.
pub async fn load_binary(blueprint: &Blueprint, binary: &Path) -> anyhow::Result<String> {
    let program = binary
        .file_name()
        .and_then(|name| name.to_str())
        .with_context(|| format!("{} has no usable name", binary.display()))?;
    let layout = pack::cached(binary)?;
    if !layout.exists() {
        pack::binary(binary, &layout)?;
    }
    let tag = layout.extension().and_then(|tag| tag.to_str()).context("a packed image is named by its content")?;
    let name = format!("odc/{program}:{tag}");
    push(blueprint, &layout, &name).await?;
    Ok(reference(&name))
}

async fn push(blueprint: &Blueprint, layout: &Path, name: &str) -> anyhow::Result<()> {
    let address = blueprint.registry_address();
    // The digest is asked for by its own name: a tag that points elsewhere is replaced.
    let (repository, tag) = name.split_once(':').context("an image name has a tag")?;
    let wanted = pack::manifest_digest(layout)?;
    let have = Probe::http(format!("http://{address}/v2/{repository}/manifests/{wanted}")).ask().await.is_ok();
    let marker = blueprint.layout.registry().join(format!(".{}-{tag}", repository.replace('/', "-")));
    if have && std::fs::read_to_string(&marker).is_ok_and(|pushed| pushed == wanted) {
        return Ok(());
    }
    run(
        "skopeo",
        &[
            "copy",
            "--quiet",
            "--insecure-policy",
            "--preserve-digests",
            "--dest-tls-verify=false",
            &format!("oci:{}", layout.display()),
            &format!("docker://{address}/{name}"),
        ],
    )
    .await
    .with_context(|| format!("pushing {name}"))?;
    std::fs::write(&marker, wanted)?;
    Ok(())
}

/// Where images are kept between clouds.
fn cache() -> anyhow::Result<PathBuf> {
    let directory = crate::artifact::cache()?.join("images");
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    Ok(directory)
}
