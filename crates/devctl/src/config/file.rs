//! The person's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use odc_api::duration::Duration;
use odc_api::name::{ObjectName, TeamName};
use odc_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use crate::args::Format;
use crate::failure::{Failure, Result};
use crate::replace;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// The context in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub contexts: BTreeMap<String, ContextEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Format>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub create: CreateDefaults,
    #[serde(default, skip_serializing_if = "is_default")]
    pub ssh: Ssh,
}

/// Which back end, and what it needs to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextEntry {
    #[serde(default)]
    pub backend: Backend,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The Kubernetes API itself.
    #[default]
    Kube,
}

/// What `create` takes for what was not said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateDefaults {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_claim: Option<ObjectName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home_size: Option<Quantity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jupyter: Option<bool>,
}

impl CreateDefaults {
    /// These, and the others' where these say nothing.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        let Self { flavor, gpus, lifetime, image, home_claim, home_size, team, jupyter } = self;
        // A home is one choice: naming a size is a word against the other's claim.
        let (home_claim, home_size) = match (home_claim, home_size) {
            (None, None) => (others.home_claim.clone(), others.home_size),
            own => own,
        };
        Self {
            // A number of GPUs belongs to the flavor it was written for.
            gpus: gpus.or(if flavor.is_none() { others.gpus } else { None }),
            flavor: flavor.or_else(|| others.flavor.clone()),
            lifetime: lifetime.or(others.lifetime),
            image: image.or_else(|| others.image.clone()),
            home_claim,
            home_size,
            team: team.or_else(|| others.team.clone()),
            jupyter: jupyter.or(others.jupyter),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ssh {
    /// The private key to log in with; its public part lies beside it with `.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_agent: Option<bool>,
    /// Whether ssh's own configuration was to know servers when devctl asked; it asks once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<bool>,
}

impl File {
    /// A file that is not there says nothing.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| {
                Failure::usage(format!("{} cannot be understood: {error}", path.display()))
                    .advise("Correct it, or move it away to begin with none.")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::failed(format!("{} cannot be read: {error}", path.display()))
                .advise("Give yourself the right to read it, or name another with --config.")),
        }
    }

    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    pub fn text(&self) -> Result<String> {
        if *self == Self::default() {
            return Ok(String::new());
        }
        serde_saphyr::to_string(self)
            .map_err(|error| Failure::failed(format!("the settings cannot be written: {error}")))
    }

    /// Whole or not at all, and for its owner's eyes only.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.text()?;
        let written = (|| {
            if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                replace::make_directory(directory)?;
            }
            replace::write(path, text.as_bytes())
        })();
        written.map_err(|error| {
            Failure::failed(format!("{} cannot be written: {error}", path.display()))
                .advise("Make room or give yourself the right to write there, or name another file with --config.")
        })
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let text = "context: a\ncontexts:\n  a:\n    backend: kube\n    namespace: dev-ada\noutput: wide\ncreate:\n  lifetime: 2h\n  homeSize: 5Gi\nssh:\n  forwardAgent: true\n";
        let file = File::parse(text).unwrap();
        assert_eq!(File::parse(&file.text().unwrap()).unwrap(), file);
        assert_eq!(file.create.lifetime, Some(Duration::hours(2)));
        assert_eq!(File::parse("# nothing\n").unwrap(), File::default());
    }

    #[test]
    fn a_word_that_nobody_knows_is_named() {
        let error = File::parse("create:\n  flavour: gpu\n").unwrap_err();
        assert!(error.contains("flavour"), "{error}");
    }

    #[test]
    fn a_file_is_written_whole_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config.yaml");
        let file = File { context: Some("work".into()), ..File::default() };
        file.write(&path).unwrap();
        assert_eq!(File::read(&path).unwrap(), file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_home_and_a_number_of_gpus_are_taken_as_they_were_meant() {
        let mine =
            CreateDefaults { home_claim: Some("home".parse().unwrap()), gpus: Some(8), ..CreateDefaults::default() };
        let sized = CreateDefaults {
            home_size: Some("5Gi".parse().unwrap()),
            flavor: Some("cpu".into()),
            ..CreateDefaults::default()
        };
        let together = sized.or(&mine);
        assert_eq!((together.home_claim, together.gpus), (None, None));
    }
}
