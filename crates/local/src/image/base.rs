//! Debian file systems: the default image of dev servers, and the commands that the CSI driver runs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use oci_spec::image::Config;
use sha2::{Digest as _, Sha256};

use super::{images_dir, pack};
use crate::process::run;

const SUITE: &str = "bookworm";

/// What a file system consists of.
struct Recipe {
    name: &'static str,
    /// Variant of mmdebstrap.
    variant: &'static str,
    packages: &'static str,
    /// Option of mmdebstrap for the hook: variants differ in when the files exist.
    hook_option: &'static str,
    hook: &'static str,
}

/// A small Debian with common command line tools.
const DEV_BASE: Recipe = Recipe {
    name: "dev-base",
    variant: "minbase",
    packages: "git,curl,sudo,python3,less,vim-tiny,procps,ca-certificates,locales,rsync,openssh-client,tmux",
    // Creates an unprivileged user with password-less sudo, and removes files that belong to the build machine.
    hook_option: "--customize-hook",
    hook: "\
chroot \"$1\" useradd --create-home --shell /bin/bash --uid 1000 dev
echo 'dev ALL=(ALL) NOPASSWD: ALL' > \"$1/etc/sudoers.d/dev\"
chmod 440 \"$1/etc/sudoers.d/dev\"
rm -f \"$1/etc/hostname\" \"$1/etc/resolv.conf\" \"$1/etc/machine-id\"
touch \"$1/etc/machine-id\"",
};

/// The commands of the CSI driver and the libraries they need, without a package manager or a shell.
const CSI_BASE: Recipe = Recipe {
    name: "csi-base",
    variant: "extract",
    packages: "btrfs-progs,mount,util-linux",
    // Removes documentation and character sets.
    hook_option: "--extract-hook",
    hook: "\
rm -rf \"$1/usr/share\" \"$1\"/usr/lib/*/gconv",
};

impl Recipe {
    fn hash(&self) -> String {
        let hash = Sha256::digest(format!("{SUITE}\n{}\n{}", self.packages, self.hook));
        hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the path of a cached result, which contains a hash of the recipe.
    fn cache_path(&self) -> anyhow::Result<PathBuf> {
        Ok(images_dir()?.join(format!("{}.{}", self.name, self.hash())))
    }

    /// Writes the file system as a tar archive.
    async fn bootstrap(&self, archive: &Path) -> anyhow::Result<()> {
        let target = archive.display().to_string();
        let variant = format!("--variant={}", self.variant);
        let (include, hook) = (format!("--include={}", self.packages), format!("{}={}", self.hook_option, self.hook));
        run("mmdebstrap", &["--quiet", &variant, &include, &hook, SUITE, &target]).await.with_context(|| {
            format!(
                "building {} failed; it downloads Debian packages\nhint: check the network and run the same command again",
                self.name
            )
        })?;
        Ok(())
    }
}

/// Returns the path of the layout of the default image of dev servers.
pub(super) fn layout_path() -> anyhow::Result<PathBuf> {
    DEV_BASE.cache_path()
}

pub(super) async fn build(layout: &Path) -> anyhow::Result<()> {
    let _lock = crate::artifact::lock(&images_dir()?, DEV_BASE.name).await?;
    if layout.exists() {
        return Ok(());
    }
    let archive = layout.with_extension("tar");
    DEV_BASE.bootstrap(&archive).await?;
    let target = layout.to_path_buf();
    // Hashing and compressing hundreds of megabytes would block the runtime.
    tokio::task::spawn_blocking(move || {
        let mut config = Config::default();
        config
            .set_env(Some(vec![format!("PATH={}", pack::DEBIAN_PATH), "LANG=C.UTF-8".into()]))
            .set_cmd(Some(vec!["/bin/bash".into()]))
            .set_working_dir(Some("/home/dev".into()));
        pack::write_layout(&target, config, vec![pack::copy_archive(&archive)])?;
        std::fs::remove_file(&archive).context("removing the archive")
    })
    .await?
}

/// Returns the path of the archive with the commands of the CSI driver.
pub(super) fn csi_archive_path() -> anyhow::Result<PathBuf> {
    Ok(CSI_BASE.cache_path()?.with_added_extension("tar"))
}

/// Identifies the content of that archive.
pub(super) fn csi_archive_id() -> String {
    CSI_BASE.hash()
}

pub(super) async fn build_csi_archive(archive: &Path) -> anyhow::Result<()> {
    let _lock = crate::artifact::lock(&images_dir()?, CSI_BASE.name).await?;
    if archive.exists() {
        return Ok(());
    }
    let work = CSI_BASE.cache_path()?.with_added_extension("new.tar");
    CSI_BASE.bootstrap(&work).await?;
    std::fs::rename(&work, archive).with_context(|| format!("renaming to {}", archive.display()))
}
