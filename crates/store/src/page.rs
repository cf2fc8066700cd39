//! Pages of lists that are sorted by time, newest first.

use jiff::Timestamp;
use uuid::Uuid;

/// The maximum number of rows of a page.
pub const MAX_PAGE_SIZE: u32 = 500;

/// The part of a list to return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page<Id = Uuid> {
    /// The last row of the previous page.
    pub after: Option<(Timestamp, Id)>,
    pub limit: u32,
}

impl<Id> Page<Id> {
    /// Returns the limit, between 1 and [`MAX_PAGE_SIZE`].
    pub(crate) fn limit(&self) -> i64 {
        self.limit.clamp(1, MAX_PAGE_SIZE).into()
    }
}

/// Whose rows a caller may see. A filter of every list, so that no query can forget it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    All,
    User(String),
}

impl Visible {
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::User(name) => Some(name),
        }
    }
}
