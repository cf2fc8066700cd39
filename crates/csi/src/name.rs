//! Names of volumes, snapshots, pools and nodes. A parsed name is safe as a file name.

use std::fmt;
use std::str::FromStr;

/// Limit of the CSI for names and ids.
const MAX_NAME_LEN: usize = 128;
/// Limit of Kubernetes for label values.
const MAX_LABEL_LEN: usize = 63;
/// Limit of Kubernetes for node names.
const MAX_NODE_LEN: usize = 253;

/// Name of a volume or snapshot, which is also its id and the name of its directory.
///
/// It starts with a letter or digit, so it is neither `.` nor `..` nor a hidden file, and contains no slash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Reason for which a name is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid name; expected 1 to {max} letters, digits, '-', '_' and '.', starting with a letter or digit")]
pub struct ParseNameError {
    max: usize,
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        check_name(text, MAX_NAME_LEN)?;
        Ok(Self(text.to_owned()))
    }
}

/// Id of a pool: the value of the topology key, so a label value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolId(String);

impl PoolId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PoolId {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        check_name(text, MAX_LABEL_LEN)?;
        if !text.ends_with(|last: char| last.is_ascii_alphanumeric()) {
            return Err(ParseNameError { max: MAX_LABEL_LEN });
        }
        Ok(Self(text.to_owned()))
    }
}

/// Id of this node, as in its Node object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeId(String);

impl NodeId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        check_name(text, MAX_NODE_LEN)?;
        Ok(Self(text.to_owned()))
    }
}

fn check_name(text: &str, max: usize) -> Result<(), ParseNameError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    if text.len() > max || !starts_well || !text.bytes().all(allowed) {
        return Err(ParseNameError { max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_sidecars_are_accepted() {
        for name in ["pvc-0b1c", "snapshot-4f", "a", "A_b.c-1", &"x".repeat(128)] {
            assert_eq!(name.parse::<Name>().map(|name| name.to_string()).as_deref(), Ok(name));
        }
    }

    #[test]
    fn names_that_leave_the_directory_are_rejected() {
        let long = "x".repeat(129);
        for name in ["", ".", "..", "../x", "a/b", "/etc", "a\0b", "a\nb", "-rf", ".hidden", "a b", "ä", &long] {
            assert!(name.parse::<Name>().is_err(), "{name:?}");
        }
    }

    #[test]
    fn pool_id_is_a_label_value() {
        assert!("rack-1.pool".parse::<PoolId>().is_ok());
        for id in ["", "a-", "-a", "a/b", &"x".repeat(64)] {
            assert!(id.parse::<PoolId>().is_err(), "{id:?}");
        }
    }
}
