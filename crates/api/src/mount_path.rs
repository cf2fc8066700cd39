//! Paths a volume may be mounted at: absolute, plain, and not over what makes the server work.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{HOME, rule};

const PATTERN: &str = "^(/[A-Za-z0-9._-]+)+$";
const LONGEST: usize = 256;

/// First directories that belong to the system or to ODC, with everything below them.
const TAKEN: [&str; 15] =
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
pub enum NotAMountPath {
    #[error("{0:?} is not a plain absolute path; write it like /data or /mnt/sets, without . or ..")]
    Shape(String),
    #[error("{0:?} would cover a directory of the system or the home; mount it elsewhere, such as /data")]
    Taken(String),
}

impl TryFrom<String> for MountPath {
    type Error = NotAMountPath;

    fn try_from(text: String) -> Result<Self, NotAMountPath> {
        let plain = |part: &str| {
            let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !matches!(part, "" | "." | "..") && part.bytes().all(inside)
        };
        let mut parts = match text.strip_prefix('/') {
            Some(rest) if text.len() <= LONGEST => rest.split('/'),
            _ => return Err(NotAMountPath::Shape(text)),
        };
        if !parts.clone().all(plain) {
            return Err(NotAMountPath::Shape(text));
        }
        if text == HOME || text == "/home" || parts.next().is_some_and(|first| TAKEN.contains(&first)) {
            return Err(NotAMountPath::Taken(text));
        }
        Ok(Self(text))
    }
}

impl FromStr for MountPath {
    type Err = NotAMountPath;

    fn from_str(text: &str) -> Result<Self, NotAMountPath> {
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
            "maxLength": LONGEST,
            "x-kubernetes-validations": rule::validations([
                (
                    format!("self.matches('{PATTERN}') && !self.matches('/[.][.]?(/|$)')"),
                    "give a plain absolute path such as /data, of letters, digits, '.', '_' and '-', \
                     with no . or .. part",
                ),
                (
                    format!("!self.matches('^/({})(/|$)') && !(self in ['/home', '{HOME}'])", TAKEN.join("|")),
                    "this path would cover a directory of the system or the home; mount it elsewhere, such as /data",
                ),
            ]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_mount_where_they_like() {
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
    fn but_not_over_the_system() {
        for path in
            ["/etc", "/usr/local", "/proc/1", "/dev/shm", "/var/run/secrets", "/home", "/home/dev", "/odc/agent"]
        {
            assert_eq!(path.parse::<MountPath>(), Err(NotAMountPath::Taken(path.to_owned())));
        }
    }

    #[test]
    fn and_not_by_tricks() {
        let long = format!("/{}", "x".repeat(LONGEST));
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
            assert_eq!(path.parse::<MountPath>(), Err(NotAMountPath::Shape(path.to_owned())));
        }
    }
}
