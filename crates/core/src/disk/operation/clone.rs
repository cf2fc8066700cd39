//! Clone: creates a disk from a point.

use odc_api::annotation;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{Disk, DiskOperation, DiskOperationResult, DiskSource, DiskSpec, PointReason};

use super::super::{State, Steps};
use super::Progress;
use super::point_argument::{take_point, wait_for_point};
use crate::manifest::{Kind, Object};
use crate::plan::Write;

/// Creates a disk whose source is a verified point of this disk.
pub(super) fn clone(state: &State<'_>, steps: &mut Steps, operation: &DiskOperation) -> Result<Progress, Progress> {
    let uid = operation.metadata.uid.as_deref().unwrap_or_default();
    let Some(name) = operation.spec.new_name() else {
        return Err(Progress::Failed(Reason::Invalid, "The action Clone requires arguments.name.".into()));
    };
    let created_for = |disk: &Disk| {
        let annotations = disk.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(annotation::OPERATION_UID).cloned())
    };
    let existing = state.observed.disks.iter().find(|disk| disk.metadata.name.as_deref() == Some(name.as_str()));
    match existing {
        Some(disk) if created_for(disk).as_deref() == Some(uid) => {
            let point = match &disk.spec.source {
                Some(DiskSource::Point { point, .. }) => Some(point.clone()),
                Some(DiskSource::Disk(_) | DiskSource::Claim(_)) | None => None,
            };
            return Ok(Progress::done(DiskOperationResult { disk: Some(name.clone()), point, ..Default::default() }));
        }
        Some(_) => {
            let message = format!("Disk {name} already exists. Choose another name.");
            return Err(Progress::Failed(Reason::NameConflict, message));
        }
        None => {}
    }
    let snapshot = match operation.spec.point() {
        Some(point) => wait_for_point(state, point.as_str())?,
        None => take_point(state, steps, operation, PointReason::OnDemand)?,
    };
    let (Ok(disk), Ok(point)) = (state.name.parse(), snapshot.name.parse()) else {
        return Err(Progress::Failed(Reason::Invalid, format!("Disk {} has an invalid name.", state.name)));
    };
    let size = snapshot.restore_size.map_or(state.disk.spec.size, |size| size.max(state.disk.spec.size));
    let spec = DiskSpec {
        display_name: None,
        size,
        storage_class: state.disk.spec.storage_class.clone(),
        source: Some(DiskSource::Point { disk, point }),
        schedule: state.disk.spec.schedule.clone(),
        retention: state.disk.spec.retention.clone(),
        deleted: false,
    };
    let mut copy = Disk::new(name.as_str(), spec);
    copy.metadata.namespace = Some(state.namespace.to_owned());
    copy.metadata.annotations = Some([(annotation::OPERATION_UID.to_owned(), uid.to_owned())].into());
    steps.operation_writes.push((uid.to_owned(), Write::Create(Object::new(Kind::Disk, &copy))));
    Ok(Progress::Wait(format!("Creating disk {name}.")))
}
