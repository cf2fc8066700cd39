//! Names, parsed once and valid ever after.
//!
//! The pattern in the schema and the parser here accept the same texts, so what the API server stored always parses.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Small letters, digits and '-' inside.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// As [`LABEL`], but begins with a letter (DNS-1035): what a Service may be called on every Kubernetes.
pub(crate) const LETTER_LABEL: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";
/// Labels joined by dots.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A label that begins with a letter and never has two '-' in a row, so that `<port>--<server>` can be taken apart.
const PORT_LABEL: &str = "^[a-z](-?[a-z0-9])*$";

macro_rules! name {
    ($(#[$doc:meta])* $name:ident: $longest:literal, $pattern:ident, $fits:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const LONGEST: usize = $longest;
            pub const PATTERN: &str = $pattern;

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotAName;

            fn from_str(text: &str) -> Result<Self, NotAName> {
                text.to_owned().try_into()
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAName;

            fn try_from(text: String) -> Result<Self, NotAName> {
                if text.len() > Self::LONGEST {
                    return Err(NotAName::TooLong { length: text.len(), longest: Self::LONGEST });
                }
                if $fits(&text) { Ok(Self(text)) } else { Err(NotAName::Shape { text, pattern: Self::PATTERN }) }
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
                    "type": "string", "minLength": 1, "maxLength": Self::LONGEST, "pattern": Self::PATTERN
                })
            }
        }
    };
}

name! {
    /// The name of a `DevServer`. A Service of the same name belongs to it, so it begins with a letter, and
    /// `<port>--<name>` must be one DNS label, so 15 characters for the port and two dashes are left over.
    ServerName: 46, LETTER_LABEL, is_letter_label
}
name! {
    /// The name of a `DevServerFlavor`; also a label's value.
    FlavorName: 63, LABEL, is_label
}
name! {
    /// The name of a `Team`; also a label's value.
    TeamName: 63, LABEL, is_label
}
name! {
    /// The name of a `DevServerUser`. With `dev-` before it, it is the name of the user's namespace.
    UserName: 59, LABEL, is_label
}
name! {
    /// The name of a port of a server.
    PortName: 15, PORT_LABEL, is_port_label
}
name! {
    /// The name of an object in the server's own namespace (a claim, disk, build or Secret) or of a cluster's class.
    ObjectName: 253, SUBDOMAIN, is_subdomain
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAName {
    #[error("{length} characters are too many for this name; use at most {longest}")]
    TooLong { length: usize, longest: usize },
    #[error("{text:?} is not a name; use small letters, digits and '-' in between (it must match {pattern})")]
    Shape { text: String, pattern: &'static str },
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

    /// Parser and pattern agree on this text.
    fn agree<N: FromStr>(pattern: &str, longest: usize, text: &str) {
        let by_schema = text.len() <= longest && Regex::new(pattern).unwrap().is_match(text);
        assert_eq!(text.parse::<N>().is_ok(), by_schema, "{text:?} and {pattern}");
    }

    proptest! {
        #[test]
        fn the_parser_accepts_what_the_schema_accepts(
            text in "[a-zA-Z0-9.-]{0,8}|[ -~]{0,4}|[a-z0-9]{40,70}|\\PC{0,3}"
        ) {
            agree::<ServerName>(ServerName::PATTERN, ServerName::LONGEST, &text);
            agree::<FlavorName>(FlavorName::PATTERN, FlavorName::LONGEST, &text);
            agree::<UserName>(UserName::PATTERN, UserName::LONGEST, &text);
            agree::<PortName>(PortName::PATTERN, PortName::LONGEST, &text);
            agree::<ObjectName>(ObjectName::PATTERN, ObjectName::LONGEST, &text);
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for bad in ["", ".", "..", "-x", "x-", "X", "a/b", "a b", "a\n", "a\0", "аda", "a\u{202e}b", "ada..b"] {
            assert!(bad.parse::<ObjectName>().is_err(), "{bad:?}");
            assert!(bad.parse::<UserName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_names_fit_into_one_dns_label() {
        let server: ServerName = "s".repeat(ServerName::LONGEST).parse().unwrap();
        let port: PortName = "p".repeat(PortName::LONGEST).parse().unwrap();
        assert_eq!(format!("{port}--{server}").len(), 63);
        let user: UserName = "u".repeat(UserName::LONGEST).parse().unwrap();
        assert_eq!(crate::namespace::of(&user).len(), 63);
    }

    #[test]
    fn a_port_name_ends_at_the_first_two_dashes() {
        assert!("a--b".parse::<PortName>().is_err());
        assert!("a-b".parse::<PortName>().is_ok());
    }
}
