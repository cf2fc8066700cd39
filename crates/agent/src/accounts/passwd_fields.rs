//! Validated fields of a passwd entry.

use std::str::FromStr;

/// A login name that no tool mistakes for a number, an option or several words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName(String);

/// An absolute path without field or line separators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(String);

/// The GECOS full name; `git` uses it as author name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullName(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 63 lowercase letters, digits, '-' or '_', starting with a letter or '_'")]
pub struct InvalidUserName;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an absolute path without ':' and line breaks")]
pub struct InvalidHome;

impl Default for UserName {
    fn default() -> Self {
        Self("dev".into())
    }
}

impl UserName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = InvalidUserName;

    fn from_str(text: &str) -> Result<Self, InvalidUserName> {
        let starts_well = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if starts_well && text.len() <= 63 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidUserName)
        }
    }
}

impl Home {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Home {
    type Err = InvalidHome;

    fn from_str(text: &str) -> Result<Self, InvalidHome> {
        let is_separator = |letter: char| letter == ':' || letter.is_control();
        if text.starts_with('/') && !text.contains(is_separator) { Ok(Self(text.to_owned())) } else { Err(InvalidHome) }
    }
}

impl FullName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FullName {
    type Err = std::convert::Infallible;

    /// Accepts any name. Characters that the field cannot contain become spaces; so do commas, which separate GECOS
    /// fields.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> =
            text.split(|letter: char| ":,".contains(letter) || letter.is_control() || letter.is_whitespace()).collect();
        Ok(Self(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_names_are_portable() {
        for good in ["dev", "_svc", "ada-1", "a", &"a".repeat(63)] {
            assert_eq!(good.parse::<UserName>().as_ref().map(UserName::as_str), Ok(good));
        }
        for bad in ["", "1a", "-a", "a:b", "a b", "a\n", "Ada", "ä", "a/b", "+", &"a".repeat(64)] {
            assert_eq!(bad.parse::<UserName>(), Err(InvalidUserName), "{bad}");
        }
    }

    #[test]
    fn homes_are_absolute_without_separators() {
        for good in ["/", "/home/dev", "/home/a b", "/heim/ä"] {
            assert_eq!(good.parse::<Home>().as_ref().map(Home::as_str), Ok(good));
        }
        for bad in ["", "home", "~", "/a:b", "/a\nb", "/a\0b"] {
            assert_eq!(bad.parse::<Home>(), Err(InvalidHome), "{bad}");
        }
    }

    #[test]
    fn full_names_replace_separators() {
        for (given, expect) in [("Ada Lovelace", "Ada Lovelace"), ("Ü: x,\ny ", "Ü x y"), (":", ""), ("", "")] {
            assert_eq!(given.parse::<FullName>().unwrap().as_str(), expect);
        }
    }
}
