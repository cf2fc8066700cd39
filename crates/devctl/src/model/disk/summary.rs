//! The part of a `Disk` that devctl prints or decides by. Enums are strings, as in
//! [`ServerSummary`](crate::model::server::ServerSummary): a value of a newer operator must not fail `devctl create`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::{Disk, DiskDeletion, DiskSchedule};
use serde::Deserialize;

use crate::model::server::{Condition, light_metadata};

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Disk)]
pub struct DiskSummary {
    #[serde(deserialize_with = "light_metadata")]
    pub metadata: ObjectMeta,
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub display_name: Option<String>,
    pub size: Quantity,
    pub storage_class: Option<String>,
    pub source: Option<Source>,
    pub schedule: DiskSchedule,
    pub deleted: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Source {
    pub disk: Option<String>,
    pub point: Option<String>,
    pub claim: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub phase: Option<String>,
    pub conditions: Vec<Condition>,
    pub claim: Option<String>,
    pub holder: Option<Holder>,
    pub last_used: Option<Time>,
    pub used: Option<Quantity>,
    pub used_at: Option<Time>,
    pub location: Option<String>,
    pub points: Vec<Point>,
    pub deletion: Option<DiskDeletion>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    pub server: String,
    pub since: Time,
    #[serde(default)]
    pub releasing_since: Option<Time>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Point {
    pub name: String,
    #[serde(default)]
    pub at: Option<Time>,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub consistency: String,
    #[serde(default)]
    pub size: Option<Quantity>,
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub note: Option<String>,
    #[serde(default)]
    pub listing: Option<PointListing>,
}

/// A listing of the content of a point is stored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PointListing {
    pub used: Quantity,
    pub files: i64,
}

impl TryFrom<&Disk> for DiskSummary {
    type Error = serde_json::Error;

    fn try_from(disk: &Disk) -> Result<Self, serde_json::Error> {
        serde_json::from_value(serde_json::to_value(disk)?)
    }
}

#[cfg(test)]
impl DiskSummary {
    /// Returns a disk without a status.
    pub fn test(name: &str, size: &str) -> Self {
        serde_json::from_value(serde_json::json!({"metadata": {"name": name}, "spec": {"size": size}})).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_of_a_newer_operator_are_kept() {
        let disk = serde_json::json!({"metadata": {"name": "home", "managedFields": 7},
            "spec": {"size": "20Gi", "source": {"bucket": "x"}},
            "status": {"phase": "Archived", "points": [{"name": "p", "reason": "Archive", "consistency": "Frozen"}]}});
        let disk: DiskSummary = serde_json::from_value(disk).unwrap();
        assert_eq!(
            (disk.status.phase.as_deref(), disk.status.points[0].reason.as_str()),
            (Some("Archived"), "Archive")
        );
        assert_eq!(super::super::phase(&disk), None);
    }

    #[test]
    fn summary_matches_the_whole_object() {
        let summary = DiskSummary::try_from(&Disk::test()).unwrap();
        assert_eq!((summary.metadata.name.as_deref(), summary.spec.size), (Some("disk-home"), Disk::test().spec.size));
    }
}
