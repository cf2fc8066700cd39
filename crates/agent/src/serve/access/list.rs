//! Lines of public keys, read strictly: one key of a type we know, large enough, and nothing else. A line that cannot be
//! used is left out with its reason; the others count.

use russh::keys::ssh_key::public::{KeyData, RsaPublicKey};
use russh::keys::{Algorithm, PublicKey};

/// As `ssh-keygen` recommends; what is smaller is within reach.
const RSA_BITS: u32 = 3072;

const LONGEST: usize = 16 << 10;

/// More than any team has, and few enough to look through for every login.
pub const MOST: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("it is longer than {LONGEST} bytes")]
    Long,
    #[error("it has control characters")]
    Characters,
    #[error("it is not a public key of a type this server knows; options before the key are not supported")]
    NotAKey,
    #[error("its RSA key has {0} bits; at least {RSA_BITS} are needed")]
    Small(u32),
    #[error("there are more than {MOST}")]
    Many,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    pub keys: Vec<KeyData>,
    /// The number of the line, from 1, and what is wrong with it.
    pub unusable: Vec<(usize, Unusable)>,
}

impl List {
    /// Empty lines and comments are nothing, as in every such file.
    pub fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for (number, line) in lines.into_iter().enumerate() {
            let line = line.trim_matches([' ', '\t', '\r']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match key(line).and_then(|key| if list.keys.len() < MOST { Ok(key) } else { Err(Unusable::Many) }) {
                Ok(key) if list.keys.contains(&key) => {}
                Ok(key) => list.keys.push(key),
                Err(reason) => list.unusable.push((number + 1, reason)),
            }
        }
        list
    }

    pub fn has(&self, key: &KeyData) -> bool {
        self.keys.contains(key)
    }
}

fn key(line: &str) -> Result<KeyData, Unusable> {
    if line.len() > LONGEST {
        return Err(Unusable::Long);
    }
    if line.chars().any(char::is_control) {
        return Err(Unusable::Characters);
    }
    let key = PublicKey::from_openssh(line).map_err(|_| Unusable::NotAKey)?;
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::SkEd25519 | Algorithm::Ecdsa { .. } | Algorithm::SkEcdsaSha2NistP256 => {}
        Algorithm::Rsa { .. } => {
            let bits = key.key_data().rsa().map_or(0, RsaPublicKey::key_size);
            if bits < RSA_BITS {
                return Err(Unusable::Small(bits));
            }
        }
        _ => return Err(Unusable::NotAKey),
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
        let list = List::parse(text.lines());
        (list.keys.len(), list.unusable.iter().map(|(line, _)| *line).collect())
    }

    #[test]
    fn keys_are_read_and_everything_else_is_left_out_by_line() {
        assert_eq!(parse(""), (0, vec![]));
        assert_eq!(parse(&format!("# team\n\n{KEY} ada@laptop\n{KEY}\r\n  {KEY}")), (1, vec![]));
        assert_eq!(parse(&format!("command=\"/bin/sh\" {KEY}\n{KEY}\nrestrict {KEY}")), (1, vec![1, 3]));
        assert_eq!(parse(&format!("ssh-ed25519 AAAA\n{SMALL}\nssh-dss AAAAB3NzaC1kc3M=\n{KEY}")), (1, vec![1, 2, 3]));
    }

    #[test]
    fn a_line_that_hides_another_is_not_a_key() {
        for hidden in ["\n", "\r", "\0", "\u{b}", "\u{85}"] {
            let list = List::parse([format!("{KEY} a{hidden}{KEY}").as_str()]);
            assert_eq!(list.unusable, [(1, Unusable::Characters)], "{hidden:?}");
        }
    }

    #[test]
    fn a_certificate_is_not_a_key() {
        let list = List::parse(["ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29t"]);
        assert_eq!(list.unusable, [(1, Unusable::NotAKey)]);
    }

    proptest! {
        #[test]
        fn whatever_is_said_each_line_is_a_key_or_has_a_reason(lines in proptest::collection::vec("(ssh-[a-z0-9]{1,8} )?\\PC{0,60}", 0..8)) {
            let list = List::parse(lines.iter().map(String::as_str));
            prop_assert!(list.keys.len() + list.unusable.len() <= lines.len());
        }
    }

    #[test]
    fn too_long_a_line_is_not_even_looked_at() {
        let list = List::parse([format!("{KEY} {}", "x".repeat(LONGEST)).as_str()]);
        assert_eq!(list.unusable, [(1, Unusable::Long)]);
    }
}
