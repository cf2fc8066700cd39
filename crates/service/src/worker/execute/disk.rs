//! Requests about disks and the operations on them.

use kube::api::{ApiResource, DynamicObject};
use odc_api::annotation;
use odc_api::v1alpha1::{Disk, DiskOperation};
use serde_json::json;

use super::object::{Created, Execution, Step};
use super::server::to_value;
use crate::message::{CreateDisk, CreateDiskOperation, DeleteDisk, DeleteObject, PatchObject, Preconditions};

pub async fn create(execution: &Execution<'_>, create: &CreateDisk) -> Step {
    match create_disk(execution, create).await? {
        Created::Done => Ok(()),
        Created::Exists(_, rejected) => Err(rejected),
    }
}

/// Creates a disk. A disk of the same name is used as it is.
pub async fn create_unless_exists(execution: &Execution<'_>, create: &CreateDisk) -> Step {
    create_disk(execution, create).await.map(drop)
}

async fn create_disk(execution: &Execution<'_>, create: &CreateDisk) -> Step<Created> {
    let api = execution.namespaced::<Disk>();
    execution.create(&api, &ApiResource::erase::<Disk>(&()), &create.name, to_value(&create.spec)?).await
}

pub async fn patch(execution: &Execution<'_>, patch: &PatchObject) -> Step {
    let api = execution.namespaced::<Disk>();
    let spec = |_: &DynamicObject| Ok(json!({"spec": patch.patch}));
    execution.change(&api, &patch.name, &patch.preconditions, spec).await
}

/// Marks a disk as deleted or, if the owner confirmed it, deletes the disk with its data.
pub async fn delete(execution: &Execution<'_>, delete: &DeleteDisk) -> Step {
    let api = execution.namespaced::<Disk>();
    let Some(disk) = execution.get_opt(&api, &delete.name).await? else { return Ok(()) };
    if !delete.confirmed {
        let mark = |_: &DynamicObject| Ok(json!({"spec": {"deleted": true}}));
        return execution.change(&api, &delete.name, &delete.preconditions, mark).await;
    }
    let confirm =
        |_: &DynamicObject| Ok(json!({"metadata": {"annotations": {annotation::CONFIRM_DELETE: delete.name}}}));
    execution.change(&api, &delete.name, &delete.preconditions, confirm).await?;
    // The confirmation has changed the version.
    let uid = delete.preconditions.uid.clone().or(disk.metadata.uid);
    execution.delete(&api, &delete.name, &Preconditions { uid, resource_version: None }).await
}

pub async fn create_operation(execution: &Execution<'_>, create: &CreateDiskOperation) -> Step {
    let api = execution.namespaced::<DiskOperation>();
    let resource = ApiResource::erase::<DiskOperation>(&());
    match execution.create(&api, &resource, &create.name, to_value(&create.spec)?).await? {
        Created::Done => Ok(()),
        Created::Exists(_, rejected) => Err(rejected),
    }
}

pub async fn delete_operation(execution: &Execution<'_>, delete: &DeleteObject) -> Step {
    let api = execution.namespaced::<DiskOperation>();
    execution.delete(&api, &delete.name, &delete.preconditions).await
}
