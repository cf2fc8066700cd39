//! Operations on disks: each action creates a `DiskOperation`, whose name is derived from the id of the request.

use axum::extract::State;
use axum::response::Response;
use odc_api::check;
use odc_api::http::{DiskActionBody, DiskOperationResource, Page, ProblemType};
use odc_api::name::DiskName;
use odc_api::v1alpha1::{DiskAction, DiskArguments, DiskOperation, DiskOperationSpec};
use odc_core::access::Action;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{CURSOR, LIMIT, OwnerQuery, PageQuery, UID, USER, authorize_user};
use crate::api::App;
use crate::api::accept::{accept, preconditions};
use crate::api::body::{Json, JsonBody, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes};
use crate::api::error::{Error, Result};
use crate::api::resource;
use crate::message::{CreateDiskOperation, DeleteObject, Message};

/// Characters of a note.
const MAX_NOTE_LENGTH: usize = 256;

/// Declares the route of an action.
macro_rules! action {
    ($routes:expr, $path:literal, $id:literal, $summary:literal, $action:ident, $example:tt) => {
        $routes.add(
            Operation::post(concat!("/disks/{name}/", $path), $id, $summary)
                .requires(Action::WriteDisks)
                .query(&[USER])
                .accepted()
                .body::<DiskActionBody>(json!($example)),
            |State(app): State<App>,
             ctx: RequestContext,
             Name(name): Name,
             Params(query): Params<OwnerQuery>,
             body: JsonBody<DiskActionBody>| async move {
                start(&app, &ctx, &name, &query, DiskAction::$action, body).await
            },
        )
    };
}

pub(super) fn routes() -> Routes {
    let routes = Routes::default();
    let routes =
        action!(routes, "snapshot", "snapshotDisk", "Takes a restore point.", Snapshot, {"note": "before upgrade"});
    let routes = action!(routes, "rollback", "rollbackDisk", "Replaces the data by that of a restore point.", Rollback, {"point": "home-1"});
    let routes = action!(routes, "clone", "cloneDisk", "Creates a disk from a restore point.", Clone, {"name": "copy"});
    let routes = action!(routes, "restore", "restoreFiles", "Copies files of a restore point to the disk.", Restore, {"point": "home-1", "paths": ["src"]});
    let routes = action!(routes, "browse", "browseDisk", "Starts a pod with a restore point mounted read-only.", Browse, {"point": "home-1"});
    let routes = action!(routes, "diff", "diffDisk", "Lists the paths that differ from a restore point.", Diff, {"point": "home-1"});
    let routes =
        action!(routes, "unlock", "unlockDisk", "Deletes remaining pods of a server that has ended.", Unlock, {});
    routes
        .add(
            Operation::get("/disks/{name}/operations", "listDiskOperations", "Lists the operations on a disk.")
                .requires(Action::ReadDisks)
                .query(&[USER, CURSOR, LIMIT])
                .returns::<Page<DiskOperationResource>>(),
            list,
        )
        .add(
            Operation::get("/disk-operations/{name}", "getDiskOperation", "Returns an operation on a disk.")
                .requires(Action::ReadDisks)
                .query(&[USER])
                .returns_object::<DiskOperationResource>(),
            get,
        )
        .add(
            Operation::delete("/disk-operations/{name}", "deleteDiskOperation", "Deletes an operation, which ends it.")
                .requires(Action::WriteDisks)
                .query(&[USER, UID])
                .accepted(),
            delete,
        )
}

async fn start(
    app: &App,
    ctx: &RequestContext,
    disk: &str,
    query: &OwnerQuery,
    action: DiskAction,
    body: JsonBody<DiskActionBody>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(app, ctx, Action::WriteDisks, user, ("disk", disk))?;
    if app.cluster.disks.get(user, disk).is_none() && ctx.idempotency_key.is_none() {
        return Err(Error::not_found("disk", disk));
    }
    let name: DiskName = disk.parse().map_err(|_| Error::not_found("disk", disk))?;
    let DiskActionBody { arguments, note } = body.value;
    if note.as_deref().is_some_and(|note| note.chars().count() > MAX_NOTE_LENGTH) {
        let detail = format!("note: at most {MAX_NOTE_LENGTH} characters");
        return Err(Error::with_detail(ProblemType::InvalidObject, detail));
    }
    let arguments = (arguments != DiskArguments::default()).then_some(arguments);
    let spec = DiskOperationSpec { disk: name, action, arguments, note: note.map(Into::into) };
    let mut checked = DiskOperation::new("operation", spec.clone());
    checked.metadata.namespace = Some(odc_api::namespace::for_user(user));
    check::check_create(&checked).map_err(Error::invalid_object)?;
    let build = |id: Uuid| {
        let create = CreateDiskOperation { name: operation_name(action, id), spec: spec.clone() };
        Message::DiskOperationCreate(Box::new(create))
    };
    accept(app, ctx, user, body.hash, build).await
}

/// Returns the name of the operation of a request, such as `snapshot-0192f0c1a7b37cc0a2f4d1a3c9e8b7d6`.
fn operation_name(action: DiskAction, id: Uuid) -> String {
    format!("{action:?}-{}", id.simple()).to_lowercase()
}

/// Lists the operations that the cluster still has; older ones are in the audit log.
async fn list(
    State(app): State<App>,
    ctx: RequestContext,
    Name(disk): Name,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<DiskOperationResource>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("disk", &disk))?;
    app.cluster.disks.get(user, &disk).ok_or_else(|| Error::not_found("disk", &disk))?;
    let matches = |operation: &DiskOperation| operation.spec.disk.as_str() == disk;
    resource::list(&app.cluster.operations, Some(user), query.cursor.as_ref(), query.limit, matches)
}

async fn get(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("operation", &name))?;
    resource::respond(&app.cluster.operations, &ctx, user, &name).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteOperationQuery {
    user: Option<String>,
    uid: Option<String>,
}

async fn delete(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<DeleteOperationQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteDisks, user, ("operation", &name))?;
    let operation = app.cluster.operations.get(user, &name);
    let preconditions = preconditions(&ctx, "operation", &name, operation.as_deref().map(|object| &object.metadata))?;
    let delete = DeleteObject { name, preconditions: preconditions.with_uid(query.uid) };
    accept(&app, &ctx, user, ctx.target_hash, |_| Message::DiskOperationDelete(delete.clone())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_operation_is_derived_from_the_request() {
        assert_eq!(operation_name(DiskAction::Snapshot, Uuid::nil()), "snapshot-00000000000000000000000000000000");
    }
}
