//! `odc generate`: files that are made from the Rust types and checked in. Tests fail when they differ.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The definitions of the custom resources
    Crds {
        /// Where they are written
        #[arg(default_value = "deploy/crds")]
        directory: PathBuf,
    },
}

impl Generate {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let What::Crds { directory } = self.what;
        std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        for (name, text) in odc_api::crd::crd_files()? {
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }
}
