//! Container images without a container engine: packed as OCI layouts in the cache, pushed into a cloud's registry.

mod base;
mod pack;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::artifact::Executables;
use crate::image::pack::Program;
use crate::parts::{Blueprint, REGISTRY_NAME};
use crate::process::run;
use crate::progress::Progress;
use crate::settings::Ports;

/// What every pod's sandbox runs.
pub const PAUSE: &str = "odc/pause:1";
/// What a dev server runs when nobody chose an image.
pub const DEV_BASE: &str = "odc/dev-base:bookworm";

/// How pods name an image of ours. The port is part of it, and the same in every cloud with nodes.
pub fn reference(name: &str) -> String {
    format!("{REGISTRY_NAME}:{}/{name}", Ports::WELL_KNOWN.registry)
}

/// Makes the images every cloud starts from, as far as they are not in the cache.
pub async fn ensure_cached(executables: &Executables, progress: Progress) -> anyhow::Result<()> {
    if !base::layout()?.exists() {
        progress
            .step("building the base image of dev servers (about a minute, once)", base::build(&base::layout()?))
            .await?;
    }
    let program = Program::new(&executables.pause, None)?;
    let pause = pack::cached(&program)?;
    if !pause.exists() {
        pack::binary(&program, &pause)?;
    }
    Ok(())
}

/// The job `images`: puts the cached images into the cloud's registry.
pub async fn push_cached(blueprint: &Blueprint) -> anyhow::Result<()> {
    push(blueprint, &pack::cached(&Program::new(&blueprint.executables.pause, None)?)?, PAUSE).await?;
    push(blueprint, &base::layout()?, DEV_BASE).await
}

/// Every build packs to another image; the cache keeps this many of one name, the newest.
const KEPT: usize = 5;

/// Packs a static executable, at a place in the image if that matters, and puts it into the cloud; gives the name pods use.
///
/// The tag is the content's own, so a changed binary is a changed reference and no node keeps an old one.
pub async fn load_binary(blueprint: &Blueprint, binary: &Path, at: Option<&str>) -> anyhow::Result<String> {
    let program = Program::new(binary, at)?;
    let layout = pack::cached(&program)?;
    if !layout.exists() {
        pack::binary(&program, &layout)?;
        forget_old(program.name())?;
    }
    let tag = layout.extension().and_then(|tag| tag.to_str()).context("a packed image is named by its content")?;
    let name = format!("odc/{}:{tag}", program.name());
    push(blueprint, &layout, &name).await?;
    Ok(reference(&name))
}

async fn push(blueprint: &Blueprint, layout: &Path, name: &str) -> anyhow::Result<()> {
    let address = blueprint.registry_address();
    let target = format!("docker://{address}/{name}");
    let wanted = pack::manifest_digest(layout)?;
    let have = run("skopeo", &["inspect", "--no-tags", "--tls-verify=false", "--format", "{{.Digest}}", &target]).await;
    if have.is_ok_and(|have| have.trim() == wanted) {
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

fn forget_old(program: &str) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(cache()?)?.flatten().filter(|entry| entry.path().is_dir()) {
        if entry.file_name().to_str().and_then(|name| name.rsplit_once('.')).is_some_and(|(name, _)| name == program) {
            all.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    all.sort();
    for (_, old) in all.iter().rev().skip(KEPT) {
        std::fs::remove_dir_all(old).with_context(|| format!("deleting {}", old.display()))?;
    }
    Ok(())
}

/// Where images are kept between clouds.
fn cache() -> anyhow::Result<PathBuf> {
    let directory = crate::artifact::cache()?.join("images");
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    Ok(directory)
}
