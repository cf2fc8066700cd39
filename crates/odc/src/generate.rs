//! `odc generate`: writes files that are derived from the source and checked in. Tests fail on drift.

mod reference;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct Generate {
    #[command(subcommand)]
    target: Target,
}

#[derive(Subcommand)]
enum Target {
    /// Write the custom resource definitions
    Crds {
        /// Directory to write to
        #[arg(default_value = "deploy/crds")]
        directory: PathBuf,
    },
    /// Write the reference pages: resources, conditions, operator settings, metrics, scheduling examples
    Docs {
        /// Root of the source tree; pages are written to docs/reference below it
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
}

impl Generate {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.target {
            Target::Crds { directory } => write_all(&directory, odc_api::crd::crd_files()?),
            Target::Docs { root } => write_all(&root.join(reference::DIRECTORY), reference::pages(&root)?),
        }
    }
}

/// Writes each file below the directory and creates missing parents.
fn write_all(directory: &Path, files: Vec<(String, String)>) -> anyhow::Result<()> {
    for (name, text) in files {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
