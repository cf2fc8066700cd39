//! Text of limited length and without control characters, because it ends up in terminals, in files and in the status of
//! an object.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize};

/// A name or a short reason.
pub type Line = Bounded<256>;
/// What a person is told.
pub type Text = Bounded<4096>;
/// What a home holds. JSON may double its length, and a reply must still fit into a line.
pub type Listing = Bounded<{ 256 << 10 }>;

/// At most `MOST` bytes. Line breaks and tabs are the only control characters in it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bounded<const MOST: usize>(String);

impl<const MOST: usize> Bounded<MOST> {
    pub const MOST: usize = MOST;

    /// What is too long is cut, what a terminal would act on is replaced.
    pub fn new(text: impl AsRef<str>) -> Self {
        let mut kept = String::new();
        for symbol in text.as_ref().chars().map(|symbol| if is_plain(symbol) { symbol } else { '\u{fffd}' }) {
            if kept.len() + symbol.len_utf8() > MOST {
                break;
            }
            kept.push(symbol);
        }
        Self(kept)
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

impl<const MOST: usize> Deref for Bounded<MOST> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MOST: usize> From<&str> for Bounded<MOST> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<const MOST: usize> From<String> for Bounded<MOST> {
    fn from(text: String) -> Self {
        if text.len() <= MOST && text.chars().all(is_plain) { Self(text) } else { Self::new(text) }
    }
}

impl<const MOST: usize> fmt::Debug for Bounded<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MOST: usize> fmt::Display for Bounded<MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, const MOST: usize> Deserialize<'de> for Bounded<MOST> {
    /// What comes from outside is refused rather than cut: half a message may mean the opposite.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MOST {
            return Err(serde::de::Error::custom(format!("a text of {} bytes, where {MOST} are allowed", text.len())));
        }
        if !text.chars().all(is_plain) {
            return Err(serde::de::Error::custom("a text with control characters"));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(Bounded::<4>::new("ab").as_str(), "ab");
        assert_eq!(Bounded::<4>::new("abcdef").as_str(), "abcd");
        assert_eq!(Bounded::<4>::new("abcé").as_str(), "abc");
        assert_eq!(Bounded::<4>::from("abcdef".to_owned()).as_str(), "abcd");
    }

    #[test]
    fn a_terminal_never_gets_to_see_an_escape() {
        assert_eq!(Line::new("a\x1b[2Jb\n\tc\u{9b}").as_str(), "a\u{fffd}[2Jb\n\tc\u{fffd}");
        assert!(serde_json::from_str::<Line>(r#""a\u001b[2J""#).is_err());
        assert!(serde_json::from_str::<Line>(r#""a\r""#).is_err());
    }

    #[test]
    fn too_much_from_outside_is_refused() {
        let long = format!("\"{}\"", "x".repeat(257));
        let error = serde_json::from_str::<Line>(&long).unwrap_err();
        assert!(error.to_string().starts_with("a text of 257 bytes, where 256 are allowed"), "{error}");
    }
}
