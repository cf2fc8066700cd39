//! Strings of bounded length without control characters. They are shown in terminals and stored in files and in the
//! status of objects.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};

/// A name or a short reason.
pub type Line = Bounded<256>;
/// A message for users.
pub type Text = Bounded<4096>;

/// A string of at most `MAX_BYTES` bytes. Line breaks and tabs are the only control characters in it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bounded<const MAX_BYTES: usize>(String);

impl<const MAX_BYTES: usize> Bounded<MAX_BYTES> {
    pub const MAX_BYTES: usize = MAX_BYTES;

    /// Truncates `text` and replaces control characters.
    pub fn new(text: impl AsRef<str>) -> Self {
        let mut bounded = String::new();
        for symbol in text.as_ref().chars().map(|symbol| if is_plain(symbol) { symbol } else { '\u{fffd}' }) {
            if bounded.len() + symbol.len_utf8() > MAX_BYTES {
                break;
            }
            bounded.push(symbol);
        }
        Self(bounded)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

fn is_plain(symbol: char) -> bool {
    !symbol.is_control() || symbol == '\n' || symbol == '\t'
}

impl<const MAX_BYTES: usize> Deref for Bounded<MAX_BYTES> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX_BYTES: usize> From<&str> for Bounded<MAX_BYTES> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<const MAX_BYTES: usize> From<String> for Bounded<MAX_BYTES> {
    fn from(text: String) -> Self {
        if text.len() <= MAX_BYTES && text.chars().all(is_plain) { Self(text) } else { Self::new(text) }
    }
}

impl<const MAX_BYTES: usize> fmt::Debug for Bounded<MAX_BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MAX_BYTES: usize> fmt::Display for Bounded<MAX_BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, const MAX_BYTES: usize> Deserialize<'de> for Bounded<MAX_BYTES> {
    /// Rejects a string that is too long instead of truncating it, which could reverse its meaning.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_BYTES {
            return Err(serde::de::Error::custom(format!(
                "string of {} bytes exceeds the limit of {MAX_BYTES}",
                text.len()
            )));
        }
        if !text.chars().all(is_plain) {
            return Err(serde::de::Error::custom("string contains control characters"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_at_character_boundary() {
        assert_eq!(Bounded::<4>::new("ab").as_str(), "ab");
        assert_eq!(Bounded::<4>::new("abcdef").as_str(), "abcd");
        assert_eq!(Bounded::<4>::new("abcé").as_str(), "abc");
        assert_eq!(Bounded::<4>::from("abcdef".to_owned()).as_str(), "abcd");
    }

    #[test]
    fn control_characters_are_replaced_or_rejected() {
        assert_eq!(Line::new("a\x1b[2Jb\n\tc\u{9b}").as_str(), "a\u{fffd}[2Jb\n\tc\u{fffd}");
        assert!(serde_json::from_str::<Line>(r#""a\u001b[2J""#).is_err());
        assert!(serde_json::from_str::<Line>(r#""a\r""#).is_err());
    }

    #[test]
    fn deserializing_too_long_text_fails() {
        let long = format!("\"{}\"", "x".repeat(257));
        let error = serde_json::from_str::<Line>(&long).unwrap_err();
        assert!(error.to_string().starts_with("string of 257 bytes exceeds the limit of 256"), "{error}");
    }
}
