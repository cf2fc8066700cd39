//! Times are `timestamptz` in the database and [`Timestamp`] in Rust.

use jiff::Timestamp;

/// The type of `timestamptz` in queries.
pub(crate) type Sql = jiff_sqlx::Timestamp;

pub(crate) fn to_sql(time: Timestamp) -> Sql {
    jiff_sqlx::ToSqlx::to_sqlx(time)
}
