//! The format of API keys: `odc_<id>_<secret><checksum>`.
//!
//! The id is public; it finds the stored hash. The secret has 256 bits. The checksum tells a mistyped or truncated key from
//! one that was revoked, without a request, and lets secret scanners exclude false positives.

use std::fmt;
use std::str::FromStr;

/// The first part of every key.
pub const PREFIX: &str = "odc";
/// Characters of the id: lower case letters and digits.
pub const ID_LENGTH: usize = 12;
/// Characters of the secret. 43 characters of 62 have 256 bits.
pub const SECRET_LENGTH: usize = 43;
/// Characters of the checksum.
pub const CHECKSUM_LENGTH: usize = 6;
/// Matches keys in texts, for secret scanners.
pub const SCAN_PATTERN: &str = r"\bodc_[0-9a-z]{12}_[0-9A-Za-z]{49}\b";

/// The characters of secrets and checksums.
pub const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The characters of ids.
pub const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// A well-formed key. It is not printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiKey {
    #[error("not an API key: expected odc_<id>_<secret>")]
    Format,
    #[error("the checksum of the API key is wrong: it is mistyped or incomplete")]
    Checksum,
}

impl ApiKey {
    /// Returns the key of an id and a secret.
    pub fn new(id: &str, secret: &str) -> Result<Self, InvalidApiKey> {
        let is_id = id.len() == ID_LENGTH && id.bytes().all(|byte| BASE36.contains(&byte));
        let is_secret = secret.len() == SECRET_LENGTH && secret.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_id || !is_secret {
            return Err(InvalidApiKey::Format);
        }
        let body = format!("{PREFIX}_{id}_{secret}");
        let checksum = checksum(&body);
        Ok(Self(body + &checksum))
    }

    /// Returns the public part, which identifies the key.
    pub fn id(&self) -> &str {
        self.0.get(PREFIX.len() + 1..PREFIX.len() + 1 + ID_LENGTH).unwrap_or_default()
    }

    /// Returns the whole key, which is secret.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ApiKey {
    type Err = InvalidApiKey;

    fn from_str(text: &str) -> Result<Self, InvalidApiKey> {
        let mut parts = text.split('_');
        let (Some(PREFIX), Some(id), Some(rest), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(InvalidApiKey::Format);
        };
        if rest.len() != SECRET_LENGTH + CHECKSUM_LENGTH {
            return Err(InvalidApiKey::Format);
        }
        let secret = rest.get(..SECRET_LENGTH).ok_or(InvalidApiKey::Format)?;
        let key = Self::new(id, secret)?;
        if key.0 == text { Ok(key) } else { Err(InvalidApiKey::Checksum) }
    }
}

impl fmt::Debug for ApiKey {
    /// Prints the id only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}_{}_…", self.id())
    }
}

/// Returns the CRC-32 of a text in base 62, with leading zeros.
fn checksum(text: &str) -> String {
    let mut rest = crc32(text.as_bytes());
    let mut digits = [b'0'; CHECKSUM_LENGTH];
    for digit in digits.iter_mut().rev() {
        let index = usize::try_from(rest % 62).unwrap_or_default();
        *digit = BASE62.get(index).copied().unwrap_or(b'0');
        rest /= 62;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// Returns the CRC-32 of IEEE 802.3, as in gzip.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & 0u32.wrapping_sub(crc & 1));
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ApiKey {
        ApiKey::new("0123456789ab", &"Zz9".repeat(15)[..SECRET_LENGTH]).unwrap()
    }

    #[test]
    fn crc32_equals_the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn key_is_parsed_as_printed() {
        let key = key();
        assert_eq!(key.as_str().parse(), Ok(key.clone()));
        assert_eq!(key.id(), "0123456789ab");
        assert!(regex::Regex::new(SCAN_PATTERN).unwrap().is_match(key.as_str()));
    }

    #[test]
    fn changed_character_is_detected() {
        let key = key();
        let text = key.as_str();
        for position in 4..text.len() {
            let mut changed = text.as_bytes().to_vec();
            changed[position] = if changed[position] == b'1' { b'2' } else { b'1' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(changed.parse::<ApiKey>().is_err(), "{changed}");
        }
        let mistyped = text.replace("Zz9Z", "Zz8Z").parse::<ApiKey>();
        assert_eq!(mistyped, Err(InvalidApiKey::Checksum));
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in ["", "odc", "odc__", "odc_0123456789ab_", "ghp_0123456789ab_x", "odc_0123456789ab_é", "a_b_c_d"] {
            assert_eq!(text.parse::<ApiKey>(), Err(InvalidApiKey::Format), "{text}");
        }
    }

    #[test]
    fn secret_is_not_printed() {
        assert_eq!(format!("{:?}", key()), "odc_0123456789ab_…");
    }
}
