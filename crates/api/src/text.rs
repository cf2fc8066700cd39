//! Text with a maximum length. The operator writes messages of other systems (log tails, errors); one that is too long
//! would make the API server reject the whole status, so it is truncated instead.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Text of at most `MAX_LENGTH` Unicode characters, as the API server counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text<const MAX_LENGTH: usize>(Box<str>);

impl<const MAX_LENGTH: usize> Text<MAX_LENGTH> {
    /// Keeps the beginning, for messages.
    pub fn truncated(text: &str) -> Self {
        const { assert!(MAX_LENGTH > 0, "the ellipsis must fit") };
        match text.char_indices().nth(MAX_LENGTH) {
            None => Self(text.into()),
            Some(_) => Self(text.chars().take(MAX_LENGTH - 1).chain(['…']).collect()),
        }
    }

    /// Keeps the end, for logs.
    pub fn tail(text: &str) -> Self {
        const { assert!(MAX_LENGTH > 0, "the ellipsis must fit") };
        let length = text.chars().count();
        if length <= MAX_LENGTH {
            return Self(text.into());
        }
        Self(['…'].into_iter().chain(text.chars().skip(length - MAX_LENGTH + 1)).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX_LENGTH: usize> From<String> for Text<MAX_LENGTH> {
    fn from(text: String) -> Self {
        Self::truncated(&text)
    }
}

impl<const MAX_LENGTH: usize> From<&str> for Text<MAX_LENGTH> {
    fn from(text: &str) -> Self {
        Self::truncated(text)
    }
}

impl<const MAX_LENGTH: usize> From<Text<MAX_LENGTH>> for String {
    fn from(text: Text<MAX_LENGTH>) -> Self {
        text.0.into()
    }
}

impl<const MAX_LENGTH: usize> Deref for Text<MAX_LENGTH> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX_LENGTH: usize> fmt::Display for Text<MAX_LENGTH> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX_LENGTH: usize> JsonSchema for Text<MAX_LENGTH> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": MAX_LENGTH})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_is_unchanged() {
        assert_eq!(Text::<4>::truncated("äöü!").as_str(), "äöü!");
        assert_eq!(Text::<4>::tail("äöü!").as_str(), "äöü!");
        assert_eq!(Text::<4>::tail("").as_str(), "");
    }

    #[test]
    fn long_text_is_truncated_at_the_other_end() {
        assert_eq!(Text::<4>::truncated("äöüßx").as_str(), "äöü…");
        assert_eq!(Text::<4>::tail("xäöüß").as_str(), "…öüß");
    }
}
