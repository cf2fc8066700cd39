//! Cursors: opaque texts that continue a list.

use std::str::FromStr;

use jiff::Timestamp;
use odc_store::page::{MAX_PAGE_SIZE, Page};
use serde::Deserialize;

use super::body::QueryTime;
use super::error::{Error, Result};

/// The number of items of a page without the parameter `limit`.
pub(super) const DEFAULT_LIMIT: u32 = 100;

/// The position after which a page starts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Cursor(String);

impl Cursor {
    /// Returns the cursor after the item with this key.
    pub fn after(key: &[&str]) -> String {
        key.join("\n").bytes().map(|byte| format!("{byte:02x}")).collect()
    }

    fn parts(&self) -> Option<(&str, &str)> {
        self.0.split_once('\n')
    }

    /// Returns the key of the last item of the previous page: user and name.
    pub fn object(&self) -> Result<(String, String)> {
        let (user, name) = self.parts().ok_or_else(invalid)?;
        Ok((user.to_owned(), name.to_owned()))
    }

    /// Returns the time and id of the last row of the previous page.
    fn row<Id: FromStr>(&self) -> Result<(Timestamp, Id)> {
        let (at, id) = self.parts().ok_or_else(invalid)?;
        let at: Timestamp = at.parse().map_err(|_| invalid())?;
        Ok((QueryTime::try_from(at).map_err(|_| invalid())?.get(), id.parse().map_err(|_| invalid())?))
    }
}

impl TryFrom<String> for Cursor {
    type Error = &'static str;

    fn try_from(text: String) -> std::result::Result<Self, &'static str> {
        let invalid = "invalid cursor";
        if !text.len().is_multiple_of(2) || text.len() > 2048 || !text.is_ascii() {
            return Err(invalid);
        }
        let byte = |start: usize| u8::from_str_radix(text.get(start..start + 2).unwrap_or_default(), 16);
        let bytes: std::result::Result<Vec<u8>, _> = (0..text.len()).step_by(2).map(byte).collect();
        Ok(Self(String::from_utf8(bytes.map_err(|_| invalid)?).map_err(|_| invalid)?))
    }
}

fn invalid() -> Error {
    Error::invalid("invalid cursor: use the nextCursor of the previous page")
}

/// Returns the page of a list that the database sorts by time.
pub(super) fn rows<Id: FromStr>(cursor: Option<&Cursor>, limit: Option<u32>) -> Result<Page<Id>> {
    Ok(Page { after: cursor.map(Cursor::row).transpose()?, limit: clamp(limit) })
}

pub(super) fn clamp(limit: Option<u32>) -> u32 {
    limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn cursor_is_read_as_written() {
        let cursor = |text: String| Cursor::try_from(text).unwrap();
        let object = cursor(Cursor::after(&["ada", "box"]));
        assert_eq!(object.object().unwrap(), ("ada".to_owned(), "box".to_owned()));
        let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let row = cursor(Cursor::after(&[&at.to_string(), &Uuid::nil().to_string()]));
        assert_eq!(rows(Some(&row), None).unwrap(), Page { after: Some((at, Uuid::nil())), limit: 100 });
        assert!(rows::<i64>(Some(&row), None).is_err());
        let ancient = cursor(Cursor::after(&["-009999-01-02T01:59:59Z", "1"]));
        assert!(rows::<i64>(Some(&ancient), None).is_err());
    }

    #[test]
    fn invalid_cursor_is_rejected() {
        for text in ["x", "zz", "ff", "é", &"00".repeat(2000)] {
            assert!(Cursor::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert!(Cursor::try_from("6162".to_owned()).unwrap().object().is_err());
    }

    #[test]
    fn limit_is_bounded() {
        assert_eq!((clamp(None), clamp(Some(0)), clamp(Some(u32::MAX))), (100, 1, MAX_PAGE_SIZE));
    }
}
