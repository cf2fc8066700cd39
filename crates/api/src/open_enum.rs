//! Enums that are serialized as their variant names: phases, condition types, reasons.
//!
//! Fields in which a newer version may have stored an unknown value are an [`OpenEnum`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An enum with the text of its variants.
pub trait StringEnum: Copy + 'static {
    const ALL: &[Self];

    fn as_str(self) -> &'static str;
}

/// Defines an enum with the list of its variants and their text.
macro_rules! string_enum {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $doc:literal])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[doc = $doc])* $variant,)+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// Returns the documentation of the value as one line of text.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*),)+
                }
                .trim_start()
            }
        }

        impl $crate::open_enum::StringEnum for $name {
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

pub(crate) use string_enum;

/// A value of an enum, or text of a newer version. Known values need no allocation, because each of thousands of
/// servers has dozens of them.
#[derive(Clone)]
pub enum OpenEnum<T> {
    Known(T),
    Other(Box<str>),
}

impl<T: StringEnum> OpenEnum<T> {
    pub fn parse(text: &str) -> Self {
        let known = T::ALL.iter().find(|value| value.as_str() == text);
        known.map_or_else(|| Self::Other(text.into()), |value| Self::Known(*value))
    }

    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            // `Other` can be constructed with the text of a known value.
            Self::Other(text) => T::ALL.iter().copied().find(|value| value.as_str() == &**text),
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.as_str(),
            Self::Other(text) => text,
        }
    }
}

/// Compares the text only.
impl<T: StringEnum> PartialEq for OpenEnum<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<T: StringEnum> Eq for OpenEnum<T> {}

impl<T> From<T> for OpenEnum<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: StringEnum> Deref for OpenEnum<T> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl<T: StringEnum> PartialEq<T> for OpenEnum<T> {
    fn eq(&self, other: &T) -> bool {
        self.as_str() == other.as_str()
    }
}

impl<T: StringEnum> PartialEq<str> for OpenEnum<T> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<T: StringEnum> PartialEq<&str> for OpenEnum<T> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<T: StringEnum> fmt::Debug for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<T: StringEnum> fmt::Display for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<T: StringEnum> Serialize for OpenEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: StringEnum> Deserialize<'de> for OpenEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(OpenEnumVisitor(PhantomData))
    }
}

/// Parses without allocating the text of known values.
struct OpenEnumVisitor<T>(PhantomData<T>);

impl<T: StringEnum> de::Visitor<'_> for OpenEnumVisitor<T> {
    type Value = OpenEnum<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<OpenEnum<T>, E> {
        Ok(OpenEnum::parse(text))
    }
}

impl<T> JsonSchema for OpenEnum<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OpenEnum".into()
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
    fn unknown_value_is_preserved() {
        for (text, known) in [("\"Running\"", true), ("\"FromNewerVersion\"", false)] {
            let value: OpenEnum<Reason> = serde_json::from_str(text).unwrap();
            assert_eq!(value.known(), known.then_some(Reason::Running));
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
        }
    }

    #[test]
    fn values_with_the_same_text_are_equal() {
        let running = OpenEnum::from(Reason::Running);
        let unparsed = OpenEnum::Other("Running".into());
        assert_eq!((&running, running.known()), (&unparsed, unparsed.known()));
        assert_ne!(running, OpenEnum::Other("FromNewerVersion".into()));
    }

    #[test]
    fn open_enum_is_as_small_as_its_text() {
        assert_eq!(size_of::<OpenEnum<Reason>>(), size_of::<Box<str>>());
    }
}
