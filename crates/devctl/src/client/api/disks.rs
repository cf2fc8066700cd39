//! Disks and operations on them.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use odc_api::v1alpha1::{Disk, DiskAction, DiskOperation, DiskOperationSpec};
use serde_json::{Value, json};

use super::ApiClient;
use super::event_stream;
use super::http::{Request, encode};
use super::resource::{Object as _, ResourceOf};
use crate::client::{Disks, WatchEvent};
use crate::error::{Error, Kind, Result};
use crate::model::disk::{self, DiskSummary};

fn path(name: &str) -> String {
    format!("/disks/{}", encode(name))
}

fn operation_path(name: &str) -> String {
    format!("/disk-operations/{}", encode(name))
}

/// Returns the name of an action in paths.
const fn action(action: DiskAction) -> &'static str {
    match action {
        DiskAction::Snapshot => "snapshot",
        DiskAction::Rollback => "rollback",
        DiskAction::Clone => "clone",
        DiskAction::Restore => "restore",
        DiskAction::Browse => "browse",
        DiskAction::Diff => "diff",
        DiskAction::Unlock => "unlock",
    }
}

#[async_trait]
impl Disks for ApiClient {
    async fn disks(&self) -> Result<Vec<DiskSummary>> {
        self.list_all(self.own(Request::get("/disks"))).await
    }

    async fn disk(&self, name: &str) -> Result<Option<DiskSummary>> {
        let found = self.http.get_opt::<ResourceOf<DiskSummary>>(&self.own(Request::get(path(name)))).await?;
        Ok(found.map(DiskSummary::from_resource))
    }

    async fn create_disk(&self, disk: &Disk, dry_run: bool) -> Result<DiskSummary> {
        let name = disk.metadata.name.as_deref().unwrap_or_default();
        let mut body = serde_json::to_value(&disk.spec).map_err(|error| Error::failed(error.to_string()))?;
        body["name"] = json!(name);
        let request = self.own(Request::post("/disks")).body(body);
        if dry_run {
            return self.dry_run(request).await;
        }
        self.change_object(request, path, "disk").await
    }

    async fn patch_disk(&self, name: &str, patch: Value, dry_run: bool) -> Result<DiskSummary> {
        let request = self.own(Request::patch(path(name))).body(patch["spec"].clone());
        let patched =
            if dry_run { self.dry_run(request).await } else { self.change_object(request, path, "disk").await };
        patched.map_err(|error| match error.kind {
            Kind::NotFound => disk::not_found(name, None),
            _ => error,
        })
    }

    async fn purge_disk(&self, name: &str, uid: &str) -> Result<()> {
        let request = self.own(Request::delete(path(name))).parameter("confirm", name).parameter("uid", uid);
        self.change(request).await.map(drop)
    }

    async fn listing(&self, disk: &str, point: &str) -> Result<Option<Vec<u8>>> {
        let request = self.own(Request::get(format!("{}/points/{}/content", path(disk), encode(point))));
        match self.http.send(&request).await {
            Ok(response) => Ok(Some(response.into_bytes().to_vec())),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create_operation(&self, spec: &DiskOperationSpec) -> Result<DiskOperation> {
        let arguments = spec.arguments.clone().unwrap_or_default();
        let mut body = serde_json::to_value(arguments).map_err(|error| Error::failed(error.to_string()))?;
        if let Some(note) = &spec.note {
            body["note"] = json!(note);
        }
        let request = Request::post(format!("{}/{}", path(spec.disk.as_str()), action(spec.action)));
        self.change_object(self.own(request).body(body), operation_path, "operation").await
    }

    async fn delete_operation(&self, name: &str, uid: &str) -> Result<()> {
        let request = self.own(Request::delete(operation_path(name))).parameter("uid", uid);
        match self.change(request).await {
            Err(error) if error.kind != Kind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    async fn operations(&self, disk: &str) -> Result<Vec<DiskOperation>> {
        let listed = self.list_all(self.own(Request::get(format!("{}/operations", path(disk))))).await;
        let mut operations: Vec<DiskOperation> = match listed {
            Err(error) if error.kind == Kind::NotFound => vec![],
            listed => listed?,
        };
        operations.sort_by_key(|operation| operation.metadata.creation_timestamp.as_ref().map(|time| time.0));
        Ok(operations)
    }

    fn watch_operation(&self, name: &str) -> BoxStream<'static, Result<WatchEvent<DiskOperation>>> {
        event_stream::watch_object(self.http.clone(), self.own(Request::get(operation_path(name))))
    }
}
