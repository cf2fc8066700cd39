//! The default image of dev servers: a small Debian with common command line tools.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use oci_spec::image::Config;
use sha2::{Digest as _, Sha256};

use super::{images_dir, pack};
use crate::process::run;

const SUITE: &str = "bookworm";
const PACKAGES: &str = "git,curl,sudo,python3,less,vim-tiny,procps,ca-certificates,locales,rsync,openssh-client,tmux";
/// Creates an unprivileged user with password-less sudo, and removes files that belong to the build machine.
const CUSTOMIZE_HOOK: &str = "\
chroot \"$1\" useradd --create-home --shell /bin/bash --uid 1000 dev
echo 'dev ALL=(ALL) NOPASSWD: ALL' > \"$1/etc/sudoers.d/dev\"
chmod 440 \"$1/etc/sudoers.d/dev\"
rm -f \"$1/etc/hostname\" \"$1/etc/resolv.conf\" \"$1/etc/machine-id\"
touch \"$1/etc/machine-id\"";

/// Returns the path of the layout, which contains a hash of the recipe.
pub(super) fn layout_path() -> anyhow::Result<PathBuf> {
    let hash = Sha256::digest(format!("{SUITE}\n{PACKAGES}\n{CUSTOMIZE_HOOK}"));
    let short: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok(images_dir()?.join(format!("dev-base.{short}")))
}

pub(super) async fn build(layout: &Path) -> anyhow::Result<()> {
    let _lock = crate::artifact::lock(&images_dir()?, "dev-base").await?;
    if layout.exists() {
        return Ok(());
    }
    let archive = layout.with_extension("tar");
    let target = archive.display().to_string();
    let (include, hook) = (format!("--include={PACKAGES}"), format!("--customize-hook={CUSTOMIZE_HOOK}"));
    run("mmdebstrap", &["--quiet", "--variant=minbase", &include, &hook, SUITE, &target]).await.context(
        "building the base image failed; it downloads Debian packages\nhint: check the network and run the same command again",
    )?;
    let target = layout.to_path_buf();
    // Hashing and compressing hundreds of megabytes would block the runtime.
    tokio::task::spawn_blocking(move || {
        let mut config = Config::default();
        config
            .set_env(Some(vec![
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
                "LANG=C.UTF-8".into(),
            ]))
            .set_cmd(Some(vec!["/bin/bash".into()]))
            .set_working_dir(Some("/home/dev".into()));
        pack::write_layout(&target, config, |layer| {
            std::io::copy(&mut std::fs::File::open(&archive)?, layer)?;
            Ok(())
        })?;
        std::fs::remove_file(&archive).context("removing the archive")
    })
    .await?
}
