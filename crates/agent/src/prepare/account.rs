//! The parts of an account that are given to us. Whatever is held by these types may stand in a line of `/etc/passwd`.

use std::str::FromStr;

/// A login name that no tool takes for a number, an option or two words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserName(String);

/// An absolute path without what would end its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(String);

/// What a person is called; `git` takes the author's name from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullName(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write 1 to 63 lowercase letters, digits, '-' and '_', with a letter or '_' first")]
pub struct NotAUserName;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an absolute path without ':' and line breaks")]
pub struct NotAHome;

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
    type Err = NotAUserName;

    fn from_str(text: &str) -> Result<Self, NotAUserName> {
        let starts = text.starts_with(|first: char| first.is_ascii_lowercase() || first == '_');
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if starts && text.len() <= 63 && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAUserName)
        }
    }
}

impl Home {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Home {
    type Err = NotAHome;

    fn from_str(text: &str) -> Result<Self, NotAHome> {
        let ends_field = |letter: char| letter == ':' || letter.is_control();
        if text.starts_with('/') && !text.contains(ends_field) { Ok(Self(text.to_owned())) } else { Err(NotAHome) }
    }
}

impl FullName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FullName {
    type Err = std::convert::Infallible;

    /// People have the names they have, so what the field cannot hold becomes a space. A comma would end the name too.
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
    fn user_names_are_those_every_tool_takes() {
        for good in ["dev", "_svc", "ada-1", "a", &"a".repeat(63)] {
            assert_eq!(good.parse::<UserName>().as_ref().map(UserName::as_str), Ok(good));
        }
        for bad in ["", "1a", "-a", "a:b", "a b", "a\n", "Ada", "ä", "a/b", "+", &"a".repeat(64)] {
            assert_eq!(bad.parse::<UserName>(), Err(NotAUserName), "{bad}");
        }
    }

    #[test]
    fn homes_are_absolute_and_fit_their_field() {
        for good in ["/", "/home/dev", "/home/a b", "/heim/ä"] {
            assert_eq!(good.parse::<Home>().as_ref().map(Home::as_str), Ok(good));
        }
        for bad in ["", "home", "~", "/a:b", "/a\nb", "/a\0b"] {
            assert_eq!(bad.parse::<Home>(), Err(NotAHome), "{bad}");
        }
    }

    #[test]
    fn full_names_keep_all_that_fits() {
        for (given, kept) in [("Ada Lovelace", "Ada Lovelace"), ("Ü: x,\ny ", "Ü x y"), (":", ""), ("", "")] {
            assert_eq!(given.parse::<FullName>().unwrap().as_str(), kept);
        }
    }
}
