//! The data that a disk starts with.

use std::borrow::Cow;

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::name::{DiskName, ObjectName};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub enum DiskSource {
    /// The newest verified restore point of a disk.
    Disk(DiskName),
    /// A restore point of a disk.
    Point { disk: DiskName, point: ObjectName },
    /// A claim that does not belong to a disk.
    Claim(ObjectName),
}

/// The serialized form. Unknown fields of a newer version are ignored, which an externally tagged enum would not allow.
#[derive(Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("has(self.disk) != has(self.claim)")
        .message("exactly one of source.disk and source.claim must be set"),
    validation = kube::core::Rule::new("!has(self.point) || has(self.disk)")
        .message("source.point requires source.disk, the disk of the restore point"),
)]
struct Fields {
    /// Name of a Disk in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disk: Option<DiskName>,

    /// Name of a restore point of that disk. Defaults to its newest verified point at the first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    point: Option<ObjectName>,

    /// Name of a PersistentVolumeClaim in the same namespace, which is copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<ObjectName>,
}

#[derive(Debug, thiserror::Error)]
#[error("exactly one of source.disk and source.claim must be set, and source.point requires source.disk")]
struct InvalidSource;

impl TryFrom<Fields> for DiskSource {
    type Error = InvalidSource;

    fn try_from(fields: Fields) -> Result<Self, InvalidSource> {
        match fields {
            Fields { disk: Some(disk), point: None, claim: None } => Ok(Self::Disk(disk)),
            Fields { disk: Some(disk), point: Some(point), claim: None } => Ok(Self::Point { disk, point }),
            Fields { disk: None, point: None, claim: Some(claim) } => Ok(Self::Claim(claim)),
            Fields { .. } => Err(InvalidSource),
        }
    }
}

impl From<DiskSource> for Fields {
    fn from(source: DiskSource) -> Self {
        match source {
            DiskSource::Disk(disk) => Self { disk: Some(disk), point: None, claim: None },
            DiskSource::Point { disk, point } => Self { disk: Some(disk), point: Some(point), claim: None },
            DiskSource::Claim(claim) => Self { disk: None, point: None, claim: Some(claim) },
        }
    }
}

impl JsonSchema for DiskSource {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "DiskSource".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Fields::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_a_disk_a_point_or_a_claim() {
        let read = |text: &str| serde_json::from_str::<DiskSource>(text);
        let point = DiskSource::Point { disk: "d".parse().unwrap(), point: "p".parse().unwrap() };
        assert_eq!(read(r#"{"disk": "d", "point": "p", "mode": "new"}"#).unwrap(), point);
        assert_eq!(serde_json::to_string(&point).unwrap(), r#"{"disk":"d","point":"p"}"#);
        for invalid in ["{}", r#"{"disk": "d", "claim": "c"}"#, r#"{"claim": "c", "point": "p"}"#] {
            assert!(read(invalid).is_err(), "{invalid}");
        }
    }
}
