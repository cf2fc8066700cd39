//! SSH public keys: one line, `ssh-ed25519`, no options. All lines of `authorized_keys` files are printed from this type,
//! so they contain nothing but key material.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rule;

const ALGORITHM: &str = "ssh-ed25519";
/// The blob is length, algorithm, length and 32 bytes: 51 bytes, or 68 base64 characters without padding, of which the
/// first 25 and two bits of the next are constant. So a key can be validated as text.
const BLOB_START: &str = "AAAAC3NzaC1lZDI1NTE5AAAAI";
const BLOB_LENGTH: usize = 68;
const MAX_COMMENT_LENGTH: usize = 128;
const PATTERN: &str = "^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-P][0-9A-Za-z+/]{42}( [ -~]{1,128})?$";

/// Keys are compared without the comment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    blob: String,
    comment: Option<String>,
}

impl PublicKey {
    /// Returns the line for an `authorized_keys` file, without the comment.
    pub fn line(&self) -> String {
        format!("{ALGORITHM} {}", self.blob)
    }

    pub fn comment(&self) -> Option<&str> {
        self.comment.as_deref()
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.blob == other.blob
    }
}

impl Eq for PublicKey {}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("invalid SSH key: must be one line of printable ASCII")]
    Characters,
    #[error(
        "invalid SSH key: only {ALGORITHM} keys without options are supported; create one with: ssh-keygen -t ed25519"
    )]
    Algorithm,
    #[error("invalid SSH key: incomplete or corrupt; copy the whole line of the .pub file")]
    Corrupt,
    #[error("invalid SSH key: the comment has {0} characters, 1 to {MAX_COMMENT_LENGTH} are allowed")]
    Comment(usize),
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(InvalidKey::Characters);
        }
        let rest = text.strip_prefix(ALGORITHM).and_then(|rest| rest.strip_prefix(' ')).ok_or(InvalidKey::Algorithm)?;
        let (blob, comment) = rest.split_once(' ').map_or((rest, None), |(blob, comment)| (blob, Some(comment)));
        if !is_blob(blob) {
            return Err(InvalidKey::Corrupt);
        }
        match comment.map(str::len) {
            None | Some(1..=MAX_COMMENT_LENGTH) => {
                Ok(Self { blob: blob.to_owned(), comment: comment.map(str::to_owned) })
            }
            Some(length) => Err(InvalidKey::Comment(length)),
        }
    }
}

fn is_blob(text: &str) -> bool {
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len() == BLOB_LENGTH
        && text.bytes().all(base64)
        && text.strip_prefix(BLOB_START).is_some_and(|rest| rest.starts_with(|c| ('A'..='P').contains(&c)))
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM} {}", self.blob)?;
        self.comment.iter().try_for_each(|comment| write!(f, " {comment}"))
    }
}

impl TryFrom<String> for PublicKey {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl JsonSchema for PublicKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PublicKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "minLength": 80,
            "maxLength": 256,
            "x-kubernetes-validations": rule::validations([(
                format!("self.matches('{PATTERN}')"),
                "must be the line of an ed25519 .pub file, without options; create one with: ssh-keygen -t ed25519",
            )]),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";

    #[test]
    fn line_omits_the_comment() {
        let key: PublicKey = format!("{KEY} ada@laptop, new").parse().unwrap();
        assert_eq!(key.comment(), Some("ada@laptop, new"));
        assert_eq!(key.line(), KEY);
        assert_eq!(key, KEY.parse().unwrap());
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap().comment(), key.comment());
    }

    #[test]
    fn invalid_keys_are_rejected_with_the_reason() {
        let check = |text: &str, expect: InvalidKey| assert_eq!(text.parse::<PublicKey>(), Err(expect), "{text:?}");
        check(&format!("{KEY}\n"), InvalidKey::Characters);
        check(&format!("{KEY} a\r\nssh-rsa AAAA"), InvalidKey::Characters);
        check(&format!("{KEY} a\0"), InvalidKey::Characters);
        check(&format!("command=\"/bin/sh\" {KEY}"), InvalidKey::Algorithm);
        check(&format!(" {KEY}"), InvalidKey::Algorithm);
        check("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7", InvalidKey::Algorithm);
        check("ssh-ed25519", InvalidKey::Algorithm);
        check("", InvalidKey::Algorithm);
        check("ssh-ed25519 AAAA", InvalidKey::Corrupt);
        check(&KEY.replace("AAAAIJ", "AAAAIQ"), InvalidKey::Corrupt);
        check(&KEY.replace(' ', "  "), InvalidKey::Corrupt);
        check(&format!("{KEY} "), InvalidKey::Comment(0));
        check(&format!("{KEY} {}", "c".repeat(129)), InvalidKey::Comment(129));
    }

    proptest! {
        #[test]
        fn parser_and_schema_agree(
            text in "ssh-(ed25519|rsa) AAAAC3NzaC1lZDI1NTE5AAAAI[A-R][0-9A-Za-z+/=]{42}( [ -~]{0,3})?|\\PC{0,90}"
        ) {
            prop_assert_eq!(text.parse::<PublicKey>().is_ok(), Regex::new(PATTERN).unwrap().is_match(&text));
        }
    }
}
