//! Errors of the database, by what callers can do about them.

use sqlx::error::DatabaseError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The texts contain the cause, because a log entry has no sources of an error. They are not for callers of the API.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement may or may not have been committed. It can be repeated.
    #[error("the database is unavailable: {0}")]
    Unavailable(sqlx::Error),
    /// The data violates a constraint, which is named.
    #[error("{cause}")]
    Constraint { constraint: String, cause: sqlx::Error },
    /// The data cannot be stored, such as a text with a NUL character.
    #[error("the data is invalid: {0}")]
    Invalid(sqlx::Error),
    #[error("the query failed: {0}")]
    Query(sqlx::Error),
}

impl Error {
    pub const fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    /// Reports whether the same statement can succeed with other data. Otherwise the database is unavailable, or the schema or
    /// the privileges do not fit the statement.
    pub fn is_caused_by_data(&self) -> bool {
        match self {
            Self::Constraint { .. } | Self::Invalid(_) => true,
            // Class 42: syntax error or access rule violation.
            Self::Query(sqlx::Error::Database(error)) => error.code().is_some_and(|code| !code.starts_with("42")),
            Self::Query(_) | Self::Unavailable(_) => false,
        }
    }

    /// Reports whether this constraint is violated.
    pub fn violates(&self, name: &str) -> bool {
        matches!(self, Self::Constraint { constraint, .. } if constraint == name)
    }
}

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        match &source {
            error if is_unavailable(error) || is_refused(error) => Self::Unavailable(source),
            // Class 22: data exception.
            sqlx::Error::Database(error) if error.code().is_some_and(|code| code.starts_with("22")) => {
                Self::Invalid(source)
            }
            sqlx::Error::Database(error) => match error.constraint() {
                Some(constraint) => Self::Constraint { constraint: constraint.to_owned(), cause: source },
                None => Self::Query(source),
            },
            _ => Self::Query(source),
        }
    }
}

/// Reports whether the server rejects the connection until an administrator has acted: the password is wrong or was changed,
/// or the database does not exist, such as during a restore.
fn is_refused(error: &sqlx::Error) -> bool {
    const CLASSES: [&str; 2] = ["28", "3D"];
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| CLASSES.iter().any(|class| code.starts_with(class)))
}

/// Reports whether the same statement can succeed later.
pub(crate) fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => is_transient(&**error),
        _ => false,
    }
}

/// Reports whether the server could not execute the statement now: it is starting or stopping, out of resources, has a
/// failing disk, is read-only after a failover, or the statement waited too long or had to be ended in favor of another one.
fn is_transient(error: &dyn DatabaseError) -> bool {
    const CLASSES: [&str; 4] = ["08", "53", "57", "58"];
    const CODES: [&str; 4] = ["25006", "40001", "40P01", "55P03"];
    error
        .code()
        .is_some_and(|code| CODES.contains(&code.as_ref()) || CLASSES.iter().any(|class| code.starts_with(class)))
}
