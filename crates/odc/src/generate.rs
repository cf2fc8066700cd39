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
    /// Write the machine-readable description of the HTTP API
    Openapi {
        /// File to write
        #[arg(default_value = OPENAPI)]
        file: PathBuf,
    },
    /// Write the reference pages: resources, conditions, operator settings, metrics, HTTP API, scheduling examples
    Docs {
        /// Root of the source tree; pages are written to docs/reference below it
        #[arg(long, default_value = ".")]
        root: PathBuf,
    },
}

/// Where the document of the HTTP API is, relative to the root of the source tree.
const OPENAPI: &str = "deploy/openapi.json";

impl Generate {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.target {
            Target::Crds { directory } => write_all(&directory, odc_api::crd::crd_files()?),
            Target::Openapi { file } => write_all(Path::new(""), vec![(file.display().to_string(), openapi()?)]),
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

/// Returns the text of the `OpenAPI` document.
fn openapi() -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&odc_service::api::openapi())? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checked_in_openapi_document_matches_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(OPENAPI);
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == openapi().unwrap(), "{OPENAPI} is out of date; run: odc generate openapi");
    }
}
