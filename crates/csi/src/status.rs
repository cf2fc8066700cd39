//! Maps errors to gRPC codes, in one place. The message contains the causes.

use std::error::Error as StdError;

use tonic::{Code, Status};

use crate::access::AccessError;
use crate::capacity::RangeError;
use crate::operation::InProgress;
use crate::page::PageError;
use crate::pool::Error as PoolError;
use crate::publish::Error as PublishError;
use crate::request::InvalidRequest;
use crate::volume::Conflict;

/// Any failure of a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Request(#[from] InvalidRequest),
    #[error(transparent)]
    InProgress(#[from] InProgress),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("the call panicked")]
    Task(#[source] tokio::task::JoinError),
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Self::Request(error) => request_code(error),
            Self::InProgress(_) => Code::Aborted,
            Self::Pool(error) => pool_code(error),
            Self::Publish(error) => publish_code(error),
            Self::Task(_) => Code::Internal,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let (code, message) = (error.code(), describe(&error));
        if code == Code::Internal {
            tracing::error!("{message}");
        }
        Self::new(code, message)
    }
}

fn request_code(error: &InvalidRequest) -> Code {
    match error {
        InvalidRequest::Range(error) => range_code(error),
        InvalidRequest::Page(PageError::UnknownToken) => Code::Aborted,
        InvalidRequest::Page(PageError::Negative)
        | InvalidRequest::Missing { .. }
        | InvalidRequest::Name { .. }
        | InvalidRequest::Path { .. }
        | InvalidRequest::Parameter { .. }
        | InvalidRequest::ContentSource => Code::InvalidArgument,
        InvalidRequest::Access(error) => access_code(error),
        InvalidRequest::VolumeNotFound { .. } | InvalidRequest::SnapshotNotFound { .. } => Code::NotFound,
        InvalidRequest::Topology { .. } => Code::ResourceExhausted,
    }
}

fn access_code(error: &AccessError) -> Code {
    match error {
        AccessError::Missing
        | AccessError::TooMany
        | AccessError::Block
        | AccessError::Mode { .. }
        | AccessError::FsType { .. }
        | AccessError::MountFlag { .. }
        | AccessError::Group { .. } => Code::InvalidArgument,
    }
}

fn range_code(error: &RangeError) -> Code {
    match error {
        RangeError::Negative | RangeError::Empty { .. } => Code::InvalidArgument,
        RangeError::TooLarge { .. } | RangeError::TooSmall { .. } => Code::OutOfRange,
    }
}

fn pool_code(error: &PoolError) -> Code {
    match error {
        PoolError::VolumeNotFound { .. } | PoolError::SnapshotNotFound { .. } => Code::NotFound,
        PoolError::Conflict(Conflict::Size { .. } | Conflict::Source { .. } | Conflict::Volume { .. }) => {
            Code::AlreadyExists
        }
        PoolError::Range(error) => range_code(error),
        PoolError::Full { .. } | PoolError::TooManySnapshots { .. } => Code::ResourceExhausted,
        PoolError::InUse { .. } => Code::FailedPrecondition,
        PoolError::Btrfs { .. } | PoolError::Command { .. } | PoolError::Io { .. } if error.is_no_space() => {
            Code::ResourceExhausted
        }
        PoolError::Btrfs { .. }
        | PoolError::Command { .. }
        | PoolError::Io { .. }
        | PoolError::Record { .. }
        | PoolError::Task(_) => Code::Internal,
    }
}

fn publish_code(error: &PublishError) -> Code {
    match error {
        PublishError::Occupied { .. } | PublishError::SingleTarget { .. } => Code::FailedPrecondition,
        PublishError::OtherAccess { .. } => Code::AlreadyExists,
        PublishError::NotPublished { .. } => Code::NotFound,
        PublishError::Io { .. } | PublishError::TooManyMounts { .. } | PublishError::Task(_) => Code::Internal,
    }
}

/// Returns the message of an error and its causes.
pub fn describe(error: &dyn StdError) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message += &format!(": {cause}");
        source = cause.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::ByteSize;

    #[test]
    fn message_contains_the_causes() {
        let source = std::io::Error::other("disk on fire");
        let status = Status::from(Error::Pool(PoolError::Io { action: "listing", path: "/pool".into(), source }));
        assert_eq!((status.code(), status.message()), (Code::Internal, "listing /pool: disk on fire"));
    }

    #[test]
    fn full_file_system_is_an_exhausted_resource() {
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::Pool(PoolError::Io { action: "creating", path: "/pool".into(), source });
        assert_eq!(error.code(), Code::ResourceExhausted);
        let full = PoolError::Full { requested: ByteSize(2 << 30), available: ByteSize(1 << 30) };
        let status = Status::from(Error::Pool(full));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "pool is full: requested 2Gi, available 1Gi");
    }
}
