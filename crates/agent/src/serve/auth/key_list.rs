//! Lists of public keys in the format of `authorized_keys`, parsed strictly: each line is one key of a supported type
//! and size, without options. Invalid lines are ignored and reported.

use russh::keys::ssh_key::public::{KeyData, RsaPublicKey};
use russh::keys::{Algorithm, PublicKey};

/// The default of `ssh-keygen`.
const MIN_RSA_BITS: u32 = 3072;

const MAX_LINE_BYTES: usize = 16 << 10;

/// Few enough for a linear search at every login.
pub const MAX_KEYS: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("contains control characters")]
    ControlCharacters,
    #[error("not a public key of a supported type; options are not supported")]
    NotAKey,
    #[error("RSA key with {0} bits; the minimum is {MIN_RSA_BITS}")]
    TooSmall(u32),
    #[error("more than {MAX_KEYS} keys")]
    TooMany,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    pub keys: Vec<KeyData>,
    /// Line numbers, from 1, with the reason.
    pub invalid: Vec<(usize, InvalidKey)>,
}

impl KeyList {
    /// Ignores empty lines and comments.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for (number, line) in lines.into_iter().enumerate() {
            let line = line.trim_matches([' ', '\t', '\r']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_key(line)
                .and_then(|key| if list.keys.len() < MAX_KEYS { Ok(key) } else { Err(InvalidKey::TooMany) })
            {
                Ok(key) if list.keys.contains(&key) => {}
                Ok(key) => list.keys.push(key),
                Err(reason) => list.invalid.push((number + 1, reason)),
            }
        }
        list
    }

    pub fn contains(&self, key: &KeyData) -> bool {
        self.keys.contains(key)
    }
}

fn parse_key(line: &str) -> Result<KeyData, InvalidKey> {
    if line.len() > MAX_LINE_BYTES {
        return Err(InvalidKey::TooLong);
    }
    if line.chars().any(char::is_control) {
        return Err(InvalidKey::ControlCharacters);
    }
    let key = PublicKey::from_openssh(line).map_err(|_| InvalidKey::NotAKey)?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::SkEd25519 | Algorithm::Ecdsa { .. } | Algorithm::SkEcdsaSha2NistP256 => {}
        Algorithm::Rsa { .. } => {
            let bits = key.key_data().rsa().map_or(0, RsaPublicKey::key_size);
            if bits < MIN_RSA_BITS {
                return Err(InvalidKey::TooSmall(bits));
            }
        }
        _ => return Err(InvalidKey::NotAKey),
    }
    Ok(key.key_data().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7hP0nCkmRMlIzbQ1SxNDVHPV2cQbGuEIFm8KWNPVlT";
    const SMALL: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDXx1a0fTmkw3X8Yg1i3dvZ3rVqm8CqGm5m0M5cXVxgC0Nw0mXnKJ9i7f6m5kF8b2d0QzN0b3Jl";

    fn parse(text: &str) -> (usize, Vec<usize>) {
        let list = KeyList::parse(text.lines());
        (list.keys.len(), list.invalid.iter().map(|(line, _)| *line).collect())
    }

    #[test]
    fn keys_are_parsed_and_invalid_lines_reported() {
        assert_eq!(parse(""), (0, vec![]));
        assert_eq!(parse(&format!("# team\n\n{KEY} ada@laptop\n{KEY}\r\n  {KEY}")), (1, vec![]));
        assert_eq!(parse(&format!("command=\"/bin/sh\" {KEY}\n{KEY}\nrestrict {KEY}")), (1, vec![1, 3]));
        assert_eq!(parse(&format!("ssh-ed25519 AAAA\n{SMALL}\nssh-dss AAAAB3NzaC1kc3M=\n{KEY}")), (1, vec![1, 2, 3]));
    }

    #[test]
    fn line_with_control_characters_is_invalid() {
        for hidden in ["\n", "\r", "\0", "\u{b}", "\u{85}"] {
            let list = KeyList::parse([format!("{KEY} a{hidden}{KEY}").as_str()]);
            assert_eq!(list.invalid, [(1, InvalidKey::ControlCharacters)], "{hidden:?}");
        }
    }

    #[test]
    fn certificate_is_not_a_key() {
        let list =
            KeyList::parse(["ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29t"]);
        assert_eq!(list.invalid, [(1, InvalidKey::NotAKey)]);
    }

    proptest! {
        #[test]
        fn each_line_is_a_key_or_invalid(lines in proptest::collection::vec("(ssh-[a-z0-9]{1,8} )?\\PC{0,60}", 0..8)) {
            let list = KeyList::parse(lines.iter().map(String::as_str));
            prop_assert!(list.keys.len() + list.invalid.len() <= lines.len());
        }
    }

    #[test]
    fn overlong_line_is_invalid() {
        let list = KeyList::parse([format!("{KEY} {}", "x".repeat(MAX_LINE_BYTES)).as_str()]);
        assert_eq!(list.invalid, [(1, InvalidKey::TooLong)]);
    }
}
