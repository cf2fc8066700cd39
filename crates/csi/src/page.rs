//! Pages of volume and snapshot lists. A token names the last entry of the previous page, so entries that are created
//! or deleted between two pages neither repeat nor hide others.

use crate::name::Name;

/// Entries of a page, also if the client asks for more or for all.
pub const MAX_PAGE_ENTRIES: usize = 1000;
/// A slash cannot occur in a name, so other texts are not mistaken for tokens.
const TOKEN_PREFIX: &str = "after/";

/// Requested part of a list.
#[derive(Debug, PartialEq, Eq)]
pub struct PageRequest {
    after: Option<Name>,
    max_entries: usize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    #[error("negative max_entries")]
    Negative,
    #[error("starting_token was not issued by this driver; list from the start")]
    UnknownToken,
}

impl PageRequest {
    pub fn parse(max_entries: i32, starting_token: &str) -> Result<Self, PageError> {
        let max_entries = usize::try_from(max_entries).map_err(|_| PageError::Negative)?;
        let after = match starting_token {
            "" => None,
            token => {
                let name = token.strip_prefix(TOKEN_PREFIX).ok_or(PageError::UnknownToken)?;
                Some(name.parse().map_err(|_| PageError::UnknownToken)?)
            }
        };
        let max_entries = if max_entries == 0 { MAX_PAGE_ENTRIES } else { max_entries.min(MAX_PAGE_ENTRIES) };
        Ok(Self { after, max_entries })
    }

    /// Returns the page of the sorted names, and the token of the next one, or an empty one after the last page.
    pub fn select(&self, sorted: &[Name]) -> (Vec<Name>, String) {
        let start = self.after.as_ref().map_or(0, |after| sorted.partition_point(|name| name <= after));
        let rest = &sorted[start..];
        let page = &rest[..rest.len().min(self.max_entries)];
        let token = match page.last() {
            Some(last) if page.len() < rest.len() => format!("{TOKEN_PREFIX}{last}"),
            _ => String::new(),
        };
        (page.to_vec(), token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Name> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn check(max_entries: i32, token: &str, expected: &[&str], next: &str) {
        let page = PageRequest::parse(max_entries, token).unwrap().select(&names(&["b", "d", "f"]));
        assert_eq!(page, (names(expected), next.to_owned()));
    }

    #[test]
    fn pages_follow_each_other_without_gaps() {
        check(2, "", &["b", "d"], "after/d");
        check(2, "after/d", &["f"], "");
        check(0, "after/b", &["d", "f"], "");
        check(3, "", &["b", "d", "f"], "");
        check(i32::MAX, "after/f", &[], "");
    }

    #[test]
    fn token_of_a_deleted_entry_continues_after_it() {
        check(1, "after/c", &["d"], "after/d");
        check(1, "after/a", &["b"], "after/b");
    }

    #[test]
    fn unknown_tokens_and_negative_limits_are_rejected() {
        for token in ["invalid-token", "after/", "after/../x", "b"] {
            assert_eq!(PageRequest::parse(0, token), Err(PageError::UnknownToken), "{token}");
        }
        assert_eq!(PageRequest::parse(-1, ""), Err(PageError::Negative));
    }
}
