//! A project's file: what servers for this project are like.
//!
//! It comes with a repository, so it may be written by anybody. It can name a context by its name and defaults for new
//! servers; it cannot name kubeconfigs, keys or anything else that would act on this machine.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CreateDefaults;
use crate::failure::{Failure, Result};

pub const NAME: &str = ".devctl.yaml";

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

/// What there was on the way up.
#[derive(Debug, Default)]
pub struct Found {
    pub project: Option<Project>,
    /// Files that somebody else could change at any time, as in a directory that all may write.
    pub passed_over: Vec<PathBuf>,
}

impl Project {
    /// The nearest one of the caller's or the administrator's, from this directory upwards.
    pub fn find(from: &Path) -> Result<Found> {
        let ours = |owner: u32| owner == 0 || owner == rustix::process::geteuid().as_raw();
        Self::find_by(from, ours)
    }

    fn find_by(from: &Path, trusted: impl Fn(u32) -> bool) -> Result<Found> {
        let mut found = Found::default();
        for directory in from.ancestors() {
            let path = directory.join(NAME);
            // A directory above that is not ours to look into holds nothing for us.
            let Ok(mut file) = std::fs::File::open(&path) else { continue };
            if !file.metadata().is_ok_and(|about| trusted(about.uid())) {
                found.passed_over.push(path);
                continue;
            }
            let mut text = String::new();
            if file.read_to_string(&mut text).is_ok() {
                found.project = Some(Self::parse(&path, &text)?);
                break;
            }
        }
        Ok(found)
    }

    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let file = serde_saphyr::from_str(text).map_err(|error| {
            Failure::usage(format!("{} cannot be understood: {error}", path.display()))
                .advise("A project may set context and create; correct the file, or run devctl elsewhere.")
        })?;
        Ok(Self { path: path.to_owned(), file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_counts() {
        let top = tempfile::tempdir().unwrap();
        let below = top.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        assert_eq!(Project::find(&below).unwrap().project, None);
        std::fs::write(top.path().join(NAME), "create: {flavor: cpu}").unwrap();
        std::fs::write(top.path().join("a").join(NAME), "create: {flavor: gpu}").unwrap();
        let found = Project::find(&below).unwrap().project.unwrap();
        assert_eq!(found.file.create.flavor.as_deref(), Some("gpu"));
    }

    #[test]
    fn what_somebody_else_wrote_is_passed_over() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join(NAME), "context: theirs").unwrap();
        let found = Project::find_by(top.path(), |_| false).unwrap();
        assert_eq!(found.project, None);
        assert!(found.passed_over.contains(&top.path().join(NAME)), "{found:?}");
    }

    #[test]
    fn a_project_cannot_name_keys_or_kubeconfigs() {
        for text in ["ssh: {identityFile: /x}", "contexts: {a: {kubeconfig: /x}}", "kubeconfig: /x"] {
            assert!(Project::parse(Path::new(NAME), text).is_err(), "{text}");
        }
    }
}
