//! Enumerations that are written as their own name: phases, condition types, reasons.
//!
//! Where a newer build may have stored a word that this one does not know, fields are a [`Word`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// All words of a kind.
pub trait Words: Copy + 'static {
    const ALL: &[Self];

    fn as_str(self) -> &'static str;
}

/// Defines a plain enum with its list of values and their text.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }

        impl $crate::word::Words for $name {
            const ALL: &[Self] = Self::ALL;

            fn as_str(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;

/// A word as it is stored. Those we know take no memory of their own: a server has dozens of them, and there are
/// thousands of servers.
#[derive(Clone)]
pub enum Word<T> {
    Known(T),
    Other(Box<str>),
}

impl<T: Words> Word<T> {
    pub fn read(text: &str) -> Self {
        let known = T::ALL.iter().find(|word| word.as_str() == text);
        known.map_or_else(|| Self::Other(text.into()), |word| Self::Known(*word))
    }

    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(word) => Some(*word),
            // Whoever made it may not have looked.
            Self::Other(text) => T::ALL.iter().copied().find(|word| word.as_str() == &**text),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.as_str(),
            Self::Other(word) => word,
        }
    }
}

/// By the text alone, however it was made.
impl<T: Words> PartialEq for Word<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<T: Words> Eq for Word<T> {}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: Words> Deref for Word<T> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<T: Words> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<T: Words> PartialEq<str> for Word<T> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<T: Words> PartialEq<&str> for Word<T> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<T: Words> fmt::Debug for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<T: Words> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: Words> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Words> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader(PhantomData))
    }
}

/// Looks a word up where it stands, without a copy.
struct Reader<T>(PhantomData<T>);

impl<T: Words> de::Visitor<'_> for Reader<T> {
    type Value = Word<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Word<T>, E> {
        Ok(Word::read(text))
    }
}

impl<T> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1alpha1::condition::Reason;

    #[test]
    fn words_of_newer_builds_are_kept_as_they_are() {
        for (text, known) in [("\"Running\"", true), ("\"InOrbit\"", false)] {
            let word: Word<Reason> = serde_json::from_str(text).unwrap();
            assert_eq!(word.known(), known.then_some(Reason::Running));
            assert_eq!(serde_json::to_string(&word).unwrap(), text);
        }
    }

    #[test]
    fn words_of_the_same_text_are_the_same() {
        let running = Word::from(Reason::Running);
        let unread = Word::Other("Running".into());
        assert_eq!((&running, running.known()), (&unread, unread.known()));
        assert_ne!(running, Word::Other("InOrbit".into()));
    }

    #[test]
    fn a_word_is_no_bigger_than_what_it_may_have_to_hold() {
        assert_eq!(size_of::<Word<Reason>>(), size_of::<Box<str>>());
    }
}
