//! Mount paths of volumes: absolute, normalized, and outside of system directories.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{HOME, rule};

const PATTERN: &str = "^(/[A-Za-z0-9._-]+)+$";
const MAX_LENGTH: usize = 256;

/// Top-level directories that are reserved for the system or ODC.
const RESERVED: [&str; 15] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "odc", "proc", "run", "sbin", "sys", "usr", "var"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MountPath(String);

impl MountPath {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMountPath {
    #[error("invalid mount path {0:?}: must be an absolute path without . or .. components, such as /data")]
    Format(String),
    #[error("invalid mount path {0:?}: covers a system directory or the home; use another path, such as /data")]
    Reserved(String),
}

impl TryFrom<String> for MountPath {
    type Error = InvalidMountPath;

    fn try_from(text: String) -> Result<Self, InvalidMountPath> {
        let is_plain = |part: &str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !matches!(part, "" | "." | "..") && part.bytes().all(inside)
        };
        let mut parts = match text.strip_prefix('/') {
            Some(rest) if text.len() <= MAX_LENGTH => rest.split('/'),
            _ => return Err(InvalidMountPath::Format(text)),
        };
        if !parts.clone().all(is_plain) {
            return Err(InvalidMountPath::Format(text));
        }
        if text == HOME || text == "/home" || parts.next().is_some_and(|first| RESERVED.contains(&first)) {
            return Err(InvalidMountPath::Reserved(text));
        }
        Ok(Self(text))
    }
}

impl FromStr for MountPath {
    type Err = InvalidMountPath;

    fn from_str(text: &str) -> Result<Self, InvalidMountPath> {
        text.to_owned().try_into()
    }
}

impl From<MountPath> for String {
    fn from(path: MountPath) -> Self {
        path.0
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for MountPath {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "MountPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 2,
            "maxLength": MAX_LENGTH,
            "x-kubernetes-validations": rule::validations([
                (
                    format!("self.matches('{PATTERN}') && !self.matches('/[.][.]?(/|$)')"),
                    "must be an absolute path of letters, digits, '.', '_' and '-', without . or .. components, \
                     such as /data",
                ),
                (
                    format!("!self.matches('^/({})(/|$)') && !(self in ['/home', '{HOME}'])", RESERVED.join("|")),
                    "must not cover a system directory or the home; use another path, such as /data",
                ),
            ]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_accepted() {
        for path in [
            "/data",
            "/mnt/sets",
            "/home/dev/data",
            "/workspace",
            "/opt/conda",
            "/srv/a.b_c-d",
            "/tmp/x",
            "/variant",
            "/.cache",
        ] {
            assert_eq!(path.parse::<MountPath>().map(String::from), Ok(path.to_owned()));
        }
    }

    #[test]
    fn system_directories_are_rejected() {
        for path in
            ["/etc", "/usr/local", "/proc/1", "/dev/shm", "/var/run/secrets", "/home", "/home/dev", "/odc/agent"]
        {
            assert_eq!(path.parse::<MountPath>(), Err(InvalidMountPath::Reserved(path.to_owned())));
        }
    }

    #[test]
    fn paths_that_are_not_normalized_are_rejected() {
        let long = format!("/{}", "x".repeat(MAX_LENGTH));
        for path in [
            "",
            "/",
            "data",
            "./data",
            "/data/",
            "//data",
            "/data/../etc",
            "/..",
            "/data/.",
            "/a b",
            "/a:b",
            "/ä",
            "/a\0",
            &long,
        ] {
            assert_eq!(path.parse::<MountPath>(), Err(InvalidMountPath::Format(path.to_owned())));
        }
    }
}
