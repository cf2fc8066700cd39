//! Text that fits its field. The operator writes messages it did not choose (log tails, errors of others); one that is
//! too long would make the API server refuse the whole status, so it is cut instead.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// At most `LONGEST` characters, as the API server counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Text<const LONGEST: usize>(Box<str>);

impl<const LONGEST: usize> Text<LONGEST> {
    /// Keeps the beginning: for messages, which say first what matters.
    pub fn start_of(text: &str) -> Self {
        const { assert!(LONGEST > 0, "a text needs room for the mark that it was cut") };
        match text.char_indices().nth(LONGEST) {
            None => Self(text.into()),
            Some(_) => Self(text.chars().take(LONGEST - 1).chain(['…']).collect()),
        }
    }

    /// Keeps the end: for logs, which say last what went wrong.
    pub fn end_of(text: &str) -> Self {
        const { assert!(LONGEST > 0, "a text needs room for the mark that it was cut") };
        let length = text.chars().count();
        if length <= LONGEST {
            return Self(text.into());
        }
        Self(['…'].into_iter().chain(text.chars().skip(length - LONGEST + 1)).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const LONGEST: usize> From<String> for Text<LONGEST> {
    fn from(text: String) -> Self {
        Self::start_of(&text)
    }
}

impl<const LONGEST: usize> From<&str> for Text<LONGEST> {
    fn from(text: &str) -> Self {
        Self::start_of(text)
    }
}

impl<const LONGEST: usize> From<Text<LONGEST>> for String {
    fn from(text: Text<LONGEST>) -> Self {
        text.0.into()
    }
}

impl<const LONGEST: usize> Deref for Text<LONGEST> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const LONGEST: usize> fmt::Display for Text<LONGEST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const LONGEST: usize> JsonSchema for Text<LONGEST> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": LONGEST})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_stays_whole() {
        assert_eq!(Text::<4>::start_of("äöü!").as_str(), "äöü!");
        assert_eq!(Text::<4>::end_of("äöü!").as_str(), "äöü!");
        assert_eq!(Text::<4>::end_of("").as_str(), "");
    }

    #[test]
    fn long_text_keeps_the_telling_side() {
        assert_eq!(Text::<4>::start_of("äöüßx").as_str(), "äöü…");
        assert_eq!(Text::<4>::end_of("xäöüß").as_str(), "…öüß");
    }
}
