//! Parses the arguments of calls into types of the driver.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::{Component, PathBuf};

use crate::access::AccessError;
use crate::capacity::RangeError;
use crate::name::{Name, ParseNameError};
use crate::page::PageError;
use crate::proto::csi::VolumeContentSource;
use crate::proto::csi::volume_content_source::Type as SourceType;
use crate::volume::Source;

/// Prefix of parameters that the sidecars add (`--extra-create-metadata`) or consume.
const SIDECAR_PARAMETER_PREFIX: &str = "csi.storage.k8s.io/";
/// `PATH_MAX` of Linux.
const MAX_PATH_LEN: usize = 4096;

/// Reason for which a call is rejected before anything is done.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} {text:?}")]
    Name { field: &'static str, text: String, source: ParseNameError },
    #[error("{field} is not an absolute path without '..'")]
    Path { field: &'static str },
    #[error("parameter {key:?} is not supported")]
    Parameter { key: String },
    #[error("volume {id:?} does not exist in this pool")]
    VolumeNotFound { id: String },
    #[error("snapshot {id:?} does not exist in this pool")]
    SnapshotNotFound { id: String },
    #[error("content source is empty or unknown")]
    ContentSource,
    #[error("pool {pool} is not in the requested topology")]
    Topology { pool: String },
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Parses the name of a new volume or snapshot.
pub fn parse_name(text: &str) -> Result<Name, InvalidRequest> {
    let field = "name";
    if text.is_empty() {
        return Err(InvalidRequest::Missing { field });
    }
    text.parse().map_err(|source| InvalidRequest::Name { field, text: text.to_owned(), source })
}

/// Parses the id of a volume. An id that this driver cannot have issued belongs to no volume.
pub fn parse_volume_id(id: &str) -> Result<Name, InvalidRequest> {
    if id.is_empty() {
        return Err(InvalidRequest::Missing { field: "volume_id" });
    }
    id.parse().map_err(|_| InvalidRequest::VolumeNotFound { id: id.to_owned() })
}

/// Parses the id of a snapshot, like [`parse_volume_id`].
pub fn parse_snapshot_id(id: &str) -> Result<Name, InvalidRequest> {
    if id.is_empty() {
        return Err(InvalidRequest::Missing { field: "snapshot_id" });
    }
    id.parse().map_err(|_| InvalidRequest::SnapshotNotFound { id: id.to_owned() })
}

pub fn parse_source(source: Option<&VolumeContentSource>) -> Result<Option<Source>, InvalidRequest> {
    let Some(source) = source else { return Ok(None) };
    match &source.r#type {
        Some(SourceType::Snapshot(snapshot)) => Ok(Some(Source::Snapshot(parse_snapshot_id(&snapshot.snapshot_id)?))),
        Some(SourceType::Volume(volume)) => Ok(Some(Source::Volume(parse_volume_id(&volume.volume_id)?))),
        None => Err(InvalidRequest::ContentSource),
    }
}

pub fn parse_path(field: &'static str, path: &str) -> Result<PathBuf, InvalidRequest> {
    if path.is_empty() {
        return Err(InvalidRequest::Missing { field });
    }
    let parsed = PathBuf::from(path);
    let plain = parsed.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !parsed.is_absolute() || !plain || path.len() > MAX_PATH_LEN {
        return Err(InvalidRequest::Path { field });
    }
    Ok(parsed)
}

/// Rejects parameters, because none has an effect.
pub fn check_parameters<S: BuildHasher>(parameters: &HashMap<String, String, S>) -> Result<(), InvalidRequest> {
    match parameters.keys().find(|key| !key.starts_with(SIDECAR_PARAMETER_PREFIX)) {
        Some(key) => Err(InvalidRequest::Parameter { key: key.chars().take(128).collect() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_ids_do_not_exist() {
        assert!(matches!(parse_volume_id("../../etc"), Err(InvalidRequest::VolumeNotFound { .. })));
        assert!(matches!(parse_snapshot_id("a/b"), Err(InvalidRequest::SnapshotNotFound { .. })));
        assert_eq!(parse_volume_id(""), Err(InvalidRequest::Missing { field: "volume_id" }));
        assert!(matches!(parse_name("../x"), Err(InvalidRequest::Name { .. })));
        assert_eq!(parse_name(""), Err(InvalidRequest::Missing { field: "name" }));
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        assert_eq!(parse_path("p", "/a/b"), Ok(PathBuf::from("/a/b")));
        assert_eq!(parse_path("p", ""), Err(InvalidRequest::Missing { field: "p" }));
        for path in ["some/path", "/a/../b", "../b", &format!("/{}", "x".repeat(4096))] {
            assert_eq!(parse_path("p", path), Err(InvalidRequest::Path { field: "p" }), "{path}");
        }
    }

    #[test]
    fn only_parameters_of_the_sidecars_are_accepted() {
        let parameters = |key: &str| HashMap::from([(key.to_owned(), "x".to_owned())]);
        assert_eq!(check_parameters(&parameters("csi.storage.k8s.io/pvc/name")), Ok(()));
        assert_eq!(
            check_parameters(&parameters("compression")),
            Err(InvalidRequest::Parameter { key: "compression".into() })
        );
    }

    #[test]
    fn source_is_a_volume_a_snapshot_or_absent() {
        assert_eq!(parse_source(None), Ok(None));
        assert_eq!(parse_source(Some(&VolumeContentSource { r#type: None })), Err(InvalidRequest::ContentSource));
    }
}
