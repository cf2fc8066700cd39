//! SSH public keys: one line, `ssh-ed25519`, no options. Whatever reaches an authorized-keys list is written from here,
//! so nothing but key material can.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::rule;

const ALGORITHM: &str = "ssh-ed25519";
/// The blob is length, algorithm, length and 32 bytes: 51 bytes, so 68 characters without padding, of which the first
/// 25 and two bits of the next never differ. The text alone therefore tells whether a key is well formed.
const BLOB_START: &str = "AAAAC3NzaC1lZDI1NTE5AAAAI";
const BLOB_LENGTH: usize = 68;
const LONGEST_COMMENT: usize = 128;
const PATTERN: &str = "^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-P][0-9A-Za-z+/]{42}( [ -~]{1,128})?$";

/// Keys are equal if their material is; the comment is a note for people.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    blob: String,
    comment: Option<String>,
}

impl PublicKey {
    /// The key as it may stand in an authorized-keys list: without the comment, which is nobody's business there.
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
pub enum NotAKey {
    #[error("a key is one line of plain text, without control characters")]
    Characters,
    #[error(
        "only {ALGORITHM} keys are accepted, without options before the type; make one with: ssh-keygen -t ed25519"
    )]
    Algorithm,
    #[error("the key itself is incomplete or damaged; copy the whole line of the .pub file")]
    Damaged,
    #[error("the comment after the key has {0} characters; use at most {LONGEST_COMMENT}")]
    Comment(usize),
}

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(NotAKey::Characters);
        }
        let rest = text.strip_prefix(ALGORITHM).and_then(|rest| rest.strip_prefix(' ')).ok_or(NotAKey::Algorithm)?;
        let (blob, comment) = rest.split_once(' ').map_or((rest, None), |(blob, comment)| (blob, Some(comment)));
        if !is_blob(blob) {
            return Err(NotAKey::Damaged);
        }
        match comment.map(str::len) {
            None | Some(1..=LONGEST_COMMENT) => Ok(Self { blob: blob.to_owned(), comment: comment.map(str::to_owned) }),
            Some(length) => Err(NotAKey::Comment(length)),
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
    type Error = NotAKey;

    fn try_from(text: String) -> Result<Self, NotAKey> {
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
                "give the one line of an ed25519 .pub file, without options; make one with: ssh-keygen -t ed25519",
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
    fn a_key_keeps_its_comment_but_is_authorised_without() {
        let key: PublicKey = format!("{KEY} ada@laptop, the new one").parse().unwrap();
        assert_eq!(key.comment(), Some("ada@laptop, the new one"));
        assert_eq!(key.line(), KEY);
        assert_eq!(key, KEY.parse().unwrap());
        assert_eq!(key.to_string().parse::<PublicKey>().unwrap().comment(), key.comment());
    }

    #[test]
    fn hostile_keys_are_refused_with_the_reason() {
        let check = |text: &str, expect: NotAKey| assert_eq!(text.parse::<PublicKey>(), Err(expect), "{text:?}");
        check(&format!("{KEY}\n"), NotAKey::Characters);
        check(&format!("{KEY} a\r\nssh-rsa AAAA"), NotAKey::Characters);
        check(&format!("{KEY} a\0"), NotAKey::Characters);
        check(&format!("command=\"/bin/sh\" {KEY}"), NotAKey::Algorithm);
        check(&format!(" {KEY}"), NotAKey::Algorithm);
        check("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7", NotAKey::Algorithm);
        check("ssh-ed25519", NotAKey::Algorithm);
        check("", NotAKey::Algorithm);
        check("ssh-ed25519 AAAA", NotAKey::Damaged);
        check(&KEY.replace("AAAAIJ", "AAAAIQ"), NotAKey::Damaged);
        check(&KEY.replace(' ', "  "), NotAKey::Damaged);
        check(&format!("{KEY} "), NotAKey::Comment(0));
        check(&format!("{KEY} {}", "c".repeat(129)), NotAKey::Comment(129));
    }

    proptest! {
        #[test]
        fn the_parser_accepts_what_the_schema_accepts(
            text in "ssh-(ed25519|rsa) AAAAC3NzaC1lZDI1NTE5AAAAI[A-R][0-9A-Za-z+/=]{42}( [ -~]{0,3})?|\\PC{0,90}"
        ) {
            prop_assert_eq!(text.parse::<PublicKey>().is_ok(), Regex::new(PATTERN).unwrap().is_match(&text));
        }
    }
}
