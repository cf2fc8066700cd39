//! Container images without a container engine: packed as OCI layouts in the cache and pushed into the cluster's registry.

mod base;
mod pack;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::artifact::Executables;
use crate::components::{Blueprint, REGISTRY_NAME};
use crate::image::pack::Program;
use crate::process::run;
use crate::progress::Progress;
use crate::settings::Ports;

/// Image of pod sandboxes.
pub const PAUSE: &str = "odc/pause:1";
/// Default image of dev servers.
pub const DEV_BASE: &str = "odc/dev-base:bookworm";

/// Returns the reference by which pods pull an image. The port is the same in every cluster with nodes.
pub fn reference(name: &str) -> String {
    format!("{REGISTRY_NAME}:{}/{name}", Ports::WELL_KNOWN.registry)
}

/// Builds the images that every cluster needs, unless they are cached.
pub async fn ensure_base_images(executables: &Executables, progress: Progress) -> anyhow::Result<()> {
    if !base::layout_path()?.exists() {
        progress
            .step("building the base image of dev servers (about 1 minute, once)", base::build(&base::layout_path()?))
            .await?;
    }
    let program = Program::new(&executables.pause, None)?;
    let pause = pack::layout_path(&program, None)?;
    if !pause.exists() {
        pack::pack_binary(&program, &pause)?;
    }
    Ok(())
}

/// Builds what the image of the CSI driver consists of besides its executable, unless it is cached.
pub async fn ensure_csi_base(progress: Progress) -> anyhow::Result<()> {
    let archive = base::csi_archive_path()?;
    if archive.exists() {
        return Ok(());
    }
    progress.step("building the base of the CSI driver's image (once)", base::build_csi_archive(&archive)).await
}

/// Runs the job `images`: pushes the base images into the cluster's registry.
pub async fn push_base_images(blueprint: &Blueprint) -> anyhow::Result<()> {
    push(blueprint, &pack::layout_path(&Program::new(&blueprint.executables.pause, None)?, None)?, PAUSE).await?;
    push(blueprint, &base::layout_path()?, DEV_BASE).await
}

/// Every build of an executable is another image. The cache keeps this many of each name.
const MAX_CACHED_IMAGES: usize = 5;

/// Packs a static executable as an image, pushes it and returns the reference by which pods pull it.
///
/// The tag is a hash of the content, so no node runs an outdated image from its cache.
pub async fn load_binary(blueprint: &Blueprint, binary: &Path, path: Option<&str>) -> anyhow::Result<String> {
    let program = Program::new(binary, path)?;
    let layout = pack::layout_path(&program, None)?;
    if !layout.exists() {
        pack::pack_binary(&program, &layout)?;
        prune_cache(program.name())?;
    }
    push_program(blueprint, &program, &layout).await
}

/// Packs the CSI driver with the commands it runs, pushes the image and returns the reference by which pods pull it.
pub async fn load_csi(blueprint: &Blueprint) -> anyhow::Result<String> {
    let program = Program::new(&blueprint.executables.csi, None)?;
    let layout = pack::layout_path(&program, Some(&base::csi_archive_id()))?;
    if !layout.exists() {
        pack::pack_on_base(&program, &base::csi_archive_path()?, &layout)?;
        prune_cache(program.name())?;
    }
    push_program(blueprint, &program, &layout).await
}

async fn push_program(blueprint: &Blueprint, program: &Program<'_>, layout: &Path) -> anyhow::Result<String> {
    let tag = layout.extension().and_then(|tag| tag.to_str()).context("the layout path ends with the tag")?;
    let name = format!("odc/{}:{tag}", program.name());
    push(blueprint, layout, &name).await?;
    Ok(reference(&name))
}

async fn push(blueprint: &Blueprint, layout: &Path, name: &str) -> anyhow::Result<()> {
    let address = blueprint.registry_address();
    let target = format!("docker://{address}/{name}");
    let digest = pack::manifest_digest(layout)?;
    let pushed =
        run("skopeo", &["inspect", "--no-tags", "--tls-verify=false", "--format", "{{.Digest}}", &target]).await;
    if pushed.is_ok_and(|pushed| pushed.trim() == digest) {
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
            &target,
        ],
    )
    .await
    .with_context(|| format!("pushing {name}"))?;
    Ok(())
}

fn prune_cache(program: &str) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(images_dir()?)?.flatten().filter(|entry| entry.path().is_dir()) {
        if entry.file_name().to_str().and_then(|name| name.rsplit_once('.')).is_some_and(|(name, _)| name == program) {
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    all.sort();
    for (_, old) in all.iter().rev().skip(MAX_CACHED_IMAGES) {
        std::fs::remove_dir_all(old).with_context(|| format!("deleting {}", old.display()))?;
    }
    Ok(())
}

/// Returns the directory of image layouts, shared by all clusters.
fn images_dir() -> anyhow::Result<PathBuf> {
    let directory = crate::artifact::cache_dir()?.join("images");
    std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    Ok(directory)
}
