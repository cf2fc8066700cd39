//! Rows of disks and of the operations on them.

use kube::api::DynamicObject;
use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Disk, DiskOperation, DiskOperationPhase, DiskPhase};
use odc_store::projection::{DiskOperationRow, DiskRow};
use serde_json::Value;

use super::{InvalidObject, copied, parse, timestamp};

pub fn disk(object: &DynamicObject) -> Result<DiskRow, InvalidObject> {
    let (value, Disk { spec, status, .. }) = parse(object)?;
    let status = status.unwrap_or_default();
    Ok(DiskRow {
        display_name: spec.display_name.map(String::from),
        phase: status.phase.unwrap_or(DiskPhase::Pending).to_string(),
        size_bytes: spec.size.value().max(0),
        used_bytes: status.used.map(|used| used.value().max(0)),
        storage_class: spec.storage_class.map(|class| class.to_string()),
        claim: status.claim.map(|claim| claim.to_string()),
        holder: status.holder.map(|holder| holder.server.to_string()),
        points: u32::try_from(status.points.len()).unwrap_or(u32::MAX),
        last_point_at: status.points.iter().filter_map(|point| timestamp(point.at.as_ref())).max(),
        last_used_at: timestamp(status.last_used.as_ref()),
        is_deleted: spec.deleted,
        copied: copied(object, value)?,
    })
}

pub fn disk_operation(object: &DynamicObject) -> Result<DiskOperationRow, InvalidObject> {
    let (value, DiskOperation { spec, status, .. }) = parse(object)?;
    let status = status.unwrap_or_default();
    let action = value.pointer("/spec/action").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(DiskOperationRow {
        disk_name: spec.disk.to_string(),
        action,
        phase: status.phase.unwrap_or(DiskOperationPhase::Pending).to_string(),
        message: condition::find(&status.conditions, Type::Complete).map(|complete| complete.message.to_string()),
        finished_at: timestamp(status.finished_at.as_ref()),
        copied: copied(object, value)?,
    })
}

#[cfg(test)]
mod tests {
    use odc_api::fixtures::time;
    use odc_api::v1alpha1::{Consistency, DiskAction, PointReason, RestorePoint};

    use super::super::tests::dynamic;
    use super::*;

    fn point(name: &str, at: &str) -> RestorePoint {
        RestorePoint {
            name: name.parse().unwrap(),
            at: Some(time(at)),
            reason: PointReason::Stop,
            size: None,
            ready: true,
            consistency: Consistency::Clean,
            note: None,
            listing: None,
        }
    }

    #[test]
    fn disk_has_its_size_and_newest_point() {
        let stored = Disk::test().status(|status| {
            status.phase = Some(DiskPhase::Available);
            status.used = Some("1Gi".parse().unwrap());
            status.points = vec![point("b", "2026-01-02T00:00:00Z"), point("a", "2026-01-01T00:00:00Z")];
        });
        let row = disk(&dynamic(&stored)).unwrap();
        assert_eq!((row.size_bytes, row.used_bytes), (50 << 30, Some(1 << 30)));
        assert_eq!((row.points, row.last_point_at), (2, Some(time("2026-01-02T00:00:00Z").0)));
        assert_eq!((row.phase.as_str(), row.is_deleted), ("Available", false));
    }

    #[test]
    fn operation_has_its_disk_and_action() {
        let row = disk_operation(&dynamic(&DiskOperation::test("snapshot-1", DiskAction::Snapshot))).unwrap();
        assert_eq!(
            (row.disk_name.as_str(), row.action.as_str(), row.phase.as_str()),
            ("disk-home", "Snapshot", "Pending")
        );
    }
}
