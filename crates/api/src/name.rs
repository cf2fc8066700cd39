//! Validated names.
//!
//! The schema pattern and the parser accept the same texts, so every stored name parses.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A DNS label (RFC 1123).
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS label that starts with a letter (RFC 1035), as Service names require.
pub(crate) const LETTER_LABEL: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// A DNS subdomain (RFC 1123).
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS label that starts with a letter and has no `--`, so that `<port>--<server>` can be split.
const PORT_LABEL: &str = "^[a-z](-?[a-z0-9])*$";

macro_rules! name {
    ($(#[$doc:meta])* $name:ident: $max_length:literal, $pattern:ident, $is_valid:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const MAX_LENGTH: usize = $max_length;
            pub const PATTERN: &str = $pattern;

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                text.to_owned().try_into()
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                if text.len() > Self::MAX_LENGTH {
                    return Err(InvalidName::TooLong { length: text.len(), max_length: Self::MAX_LENGTH });
                }
                if $is_valid(&text) { Ok(Self(text)) } else { Err(InvalidName::Pattern { text, pattern: Self::PATTERN }) }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string", "minLength": 1, "maxLength": Self::MAX_LENGTH, "pattern": Self::PATTERN
                })
            }
        }
    };
}

name! {
    /// The name of a `DevServer`. Its Service has the same name, so it starts with a letter. `<port>--<name>` must be
    /// one DNS label, which leaves 46 characters.
    ServerName: 46, LETTER_LABEL, is_letter_label
}
name! {
    /// The name of a `DevServerFlavor`; also used as label value.
    FlavorName: 63, LABEL, is_label
}
name! {
    /// The name of a `Team`; also used as label value.
    TeamName: 63, LABEL, is_label
}
name! {
    /// The name of a `DevServerUser`. The user's namespace is `dev-<name>`.
    UserName: 59, LABEL, is_label
}
name! {
    /// The name of a `Disk`. The names of its claims and restore points are `<name>-<suffix>`; also used as label value.
    DiskName: 46, LABEL, is_label
}
name! {
    /// The name of a port of a server.
    PortName: 15, PORT_LABEL, is_port_label
}
name! {
    /// The name of an object in the server's namespace (claim, disk, build, Secret) or of a cluster-scoped class.
    ObjectName: 253, SUBDOMAIN, is_subdomain
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    #[error("invalid name: {length} characters, at most {max_length} are allowed")]
    TooLong { length: usize, max_length: usize },
    #[error("invalid name {text:?}: must match {pattern}")]
    Pattern { text: String, pattern: &'static str },
}

fn is_label(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inside) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_letter_label(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

fn is_port_label(text: &str) -> bool {
    is_letter_label(text) && !text.contains("--")
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    /// Checks that parser and pattern agree on this text.
    fn agree<N: FromStr>(pattern: &str, max_length: usize, text: &str) {
        let by_schema = text.len() <= max_length && Regex::new(pattern).unwrap().is_match(text);
        assert_eq!(text.parse::<N>().is_ok(), by_schema, "{text:?} and {pattern}");
    }

    proptest! {
        #[test]
        fn parser_and_schema_agree(
            text in "[a-zA-Z0-9.-]{0,8}|[ -~]{0,4}|[a-z0-9]{40,70}|\\PC{0,3}"
        ) {
            agree::<ServerName>(ServerName::PATTERN, ServerName::MAX_LENGTH, &text);
            agree::<FlavorName>(FlavorName::PATTERN, FlavorName::MAX_LENGTH, &text);
            agree::<UserName>(UserName::PATTERN, UserName::MAX_LENGTH, &text);
            agree::<PortName>(PortName::PATTERN, PortName::MAX_LENGTH, &text);
            agree::<ObjectName>(ObjectName::PATTERN, ObjectName::MAX_LENGTH, &text);
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        for invalid in ["", ".", "..", "-x", "x-", "X", "a/b", "a b", "a\n", "a\0", "аda", "a\u{202e}b", "ada..b"] {
            assert!(invalid.parse::<ObjectName>().is_err(), "{invalid:?}");
            assert!(invalid.parse::<UserName>().is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn derived_names_are_dns_labels() {
        let server: ServerName = "s".repeat(ServerName::MAX_LENGTH).parse().unwrap();
        let port: PortName = "p".repeat(PortName::MAX_LENGTH).parse().unwrap();
        assert_eq!(format!("{port}--{server}").len(), 63);
        let user: UserName = "u".repeat(UserName::MAX_LENGTH).parse().unwrap();
        assert_eq!(crate::namespace::for_user(&user).len(), 63);
    }

    #[test]
    fn port_name_contains_no_double_dash() {
        assert!("a--b".parse::<PortName>().is_err());
        assert!("a-b".parse::<PortName>().is_ok());
    }
}
