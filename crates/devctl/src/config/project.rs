//! The project file `.devctl.yaml`, with defaults for servers of a project.
//!
//! It is part of a repository and therefore untrusted. It can select a context by name and set defaults of `create`; it
//! cannot set kubeconfigs, keys or anything else that affects the local machine.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CreateDefaults;
use crate::error::{Error, Result};

pub const FILE_NAME: &str = ".devctl.yaml";

#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    pub path: PathBuf,
    pub file: ProjectFile,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default)]
    pub create: CreateDefaults,
}

/// The result of searching the working directory and its ancestors.
#[derive(Debug, Default)]
pub struct ProjectSearch {
    pub project: Option<Project>,
    /// Files owned by other users, such as in a world-writable directory.
    pub ignored: Vec<PathBuf>,
}

impl Project {
    /// Finds the nearest file that is owned by the user or by root, from this directory upwards.
    pub fn find(from: &Path) -> Result<ProjectSearch> {
        let trusted = |owner: u32| owner == 0 || owner == rustix::process::geteuid().as_raw();
        Self::find_trusted(from, trusted)
    }

    fn find_trusted(from: &Path, trusted: impl Fn(u32) -> bool) -> Result<ProjectSearch> {
        let mut search = ProjectSearch::default();
        for directory in from.ancestors() {
            let path = directory.join(FILE_NAME);
            // Skip directories that are not accessible.
            let Ok(mut file) = std::fs::File::open(&path) else { continue };
            if !file.metadata().is_ok_and(|metadata| trusted(metadata.uid())) {
                search.ignored.push(path);
                continue;
            }
            let mut text = String::new();
            if file.read_to_string(&mut text).is_ok() {
                search.project = Some(Self::parse(&path, &text)?);
                break;
            }
        }
        Ok(search)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let file = serde_saphyr::from_str(text).map_err(|error| {
            Error::usage(format!("could not parse {}: {error}", path.display())).with_hint(
                "a project file may only set `context` and `create`; fix it, or run devctl in another directory",
            )
        })?;
        Ok(Self { path: path.to_owned(), file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_project_file_is_used() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(Project::find(&below).unwrap().project, None);
        std::fs::write(top.path().join(FILE_NAME), "create: {flavor: cpu}").unwrap();
        std::fs::write(top.path().join("a").join(FILE_NAME), "create: {flavor: gpu}").unwrap();
        let found = Project::find(&below).unwrap().project.unwrap();
        assert_eq!(found.file.create.flavor.as_deref(), Some("gpu"));
    }

    #[test]
    fn file_of_another_user_is_ignored() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join(FILE_NAME), "context: other").unwrap();
        let search = Project::find_trusted(top.path(), |_| false).unwrap();
        assert_eq!(search.project, None);
        assert!(search.ignored.contains(&top.path().join(FILE_NAME)), "{search:?}");
    }

    #[test]
    fn project_file_cannot_set_keys_or_kubeconfigs() {
        for text in ["ssh: {identityFile: /x}", "contexts: {a: {kubeconfig: /x}}", "kubeconfig: /x"] {
            assert!(Project::parse(Path::new(FILE_NAME), text).is_err(), "{text}");
        }
    }
}
