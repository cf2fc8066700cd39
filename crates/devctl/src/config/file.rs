//! The user's config file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use odc_api::duration::Duration;
use odc_api::name::{DiskName, ObjectName, TeamName};
use odc_api::quantity::Quantity;
use serde::{Deserialize, Serialize};

use crate::cli::Format;
use crate::error::{Error, Result};
use crate::fs;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// The current context.
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

/// A named context: a backend and its parameters.
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
    /// The HTTP API, for the backend `api`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub api: ApiEntry,
}

/// How a context reaches its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The Kubernetes API.
    #[default]
    Kube,
    /// The HTTP API of ODC.
    Api,
}

impl Backend {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kube => "kube",
            Self::Api => "api",
        }
    }
}

/// The HTTP API of a context. It has the place of the key, not the key itself, so that the file can be shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApiEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The CA certificate, if no public CA has signed the certificate of the API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The file with the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The shell command that prints the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_command: Option<String>,
}

/// The defaults of `create`.
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
    /// The disk of the home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskName>,
    /// The size of the disk if it is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<Quantity>,
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
    /// Fills unset fields from other defaults.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        let Self { flavor, gpus, lifetime, image, disk, disk_size, home_claim, home_size, team, jupyter } = self;
        // Disk, claim and ephemeral size exclude each other: one of them overrides the home of the others.
        let (disk, home_claim, home_size) = match (disk, home_claim, home_size) {
            (None, None, None) => (others.disk.clone(), others.home_claim.clone(), others.home_size),
            home => home,
        };
        Self {
            // A number of GPUs only applies to the flavor it was set for.
            gpus: gpus.or(if flavor.is_none() { others.gpus } else { None }),
            flavor: flavor.or_else(|| others.flavor.clone()),
            lifetime: lifetime.or(others.lifetime),
            image: image.or_else(|| others.image.clone()),
            disk,
            disk_size: disk_size.or(others.disk_size),
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
    /// The private key; the public key is beside it with the suffix `.pub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_agent: Option<bool>,
    /// The answer to the question whether to run `config-ssh`, which is asked once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<bool>,
}

impl File {
    /// Reads the file; a missing file is empty.
    pub fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|error| {
                Error::usage(format!("could not parse {}: {error}", path.display()))
                    .with_hint("fix the file, or move it away")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::failed(format!("could not read {}: {error}", path.display()))
                .with_hint("check its permissions, or pass another file with `--config`")),
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
            .map_err(|error| Error::failed(format!("could not serialize the settings: {error}")))
    }

    /// Writes the file atomically with mode 0600.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = self.text()?;
        let written = (|| {
            if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                fs::create_private_dir(directory)?;
            }
            fs::write_atomic(path, text.as_bytes())
        })();
        written.map_err(|error| {
            Error::failed(format!("could not write {}: {error}", path.display()))
                .with_hint("check the disk space and permissions, or pass another file with `--config`")
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
    fn file_round_trips() {
        let text = "context: a\ncontexts:\n  a:\n    backend: kube\n    namespace: dev-ada\noutput: wide\ncreate:\n  lifetime: 2h\n  homeSize: 5Gi\nssh:\n  forwardAgent: true\n";
        let file = File::parse(text).unwrap();
        assert_eq!(File::parse(&file.text().unwrap()).unwrap(), file);
        assert_eq!(file.create.lifetime, Some(Duration::hours(2)));
        assert_eq!(File::parse("# nothing\n").unwrap(), File::default());
    }

    #[test]
    fn context_of_the_api_round_trips() {
        let text = "contexts:\n  work:\n    backend: api\n    api:\n      url: https://odc.example.org\n      keyFile: ~/.odc.key\n";
        let file = File::parse(text).unwrap();
        assert_eq!(File::parse(&file.text().unwrap()).unwrap(), file);
        let entry = &file.contexts["work"];
        assert_eq!((entry.backend, entry.api.url.as_deref()), (Backend::Api, Some("https://odc.example.org")));
    }

    #[test]
    fn unknown_field_is_rejected_by_name() {
        let error = File::parse("create:\n  flavour: gpu\n").unwrap_err();
        assert!(error.contains("flavour"), "{error}");
    }

    #[test]
    fn written_file_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config.yaml");
        let file = File { context: Some("work".into()), ..File::default() };
        file.write(&path).unwrap();
        assert_eq!(File::read(&path).unwrap(), file);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn home_and_gpus_are_not_mixed_from_two_sources() {
        let user =
            CreateDefaults { home_claim: Some("home".parse().unwrap()), gpus: Some(8), ..CreateDefaults::default() };
        let sized = CreateDefaults {
            home_size: Some("5Gi".parse().unwrap()),
            flavor: Some("cpu".into()),
            ..CreateDefaults::default()
        };
        let merged = sized.clone().or(&user);
        assert_eq!((merged.home_claim, merged.gpus), (None, None));
        let disk = CreateDefaults {
            disk: Some("work".parse().unwrap()),
            disk_size: Some("50Gi".parse().unwrap()),
            ..CreateDefaults::default()
        };
        let merged = disk.or(&sized);
        assert_eq!((merged.home_size, merged.disk.is_some()), (None, true));
        let merged = sized.or(&merged);
        assert_eq!((merged.disk, merged.disk_size.is_some()), (None, true));
    }
}
