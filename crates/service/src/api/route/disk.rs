//! Disks and their restore points.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use odc_api::check;
use odc_api::http::{CreateDisk, DiskResource, Page, ProblemType};
use odc_api::v1alpha1::{Disk, DiskSpec, LISTING_KEY, RestorePoint};
use odc_core::access::Action;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::devserver::{merge, reject_unknown_fields};
use super::{
    CURSOR, ChangeQuery, LIMIT, LISTED_USER, OwnerQuery, PageQuery, UID, USER, authorize_list, authorize_user,
    check_user_exists, listed_user,
};
use crate::api::App;
use crate::api::accept::{accept, preconditions};
use crate::api::body::{Json, JsonBody, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::resource::{self, ApiResource as _};
use crate::message::{self, Message};

pub(super) fn routes() -> Routes {
    let read = |operation: Operation| operation.requires(Action::ReadDisks);
    let write = |operation: Operation| operation.requires(Action::WriteDisks).query(&[USER]).accepted();
    let confirm = parameter::<String>("confirm", "Name of the disk: deletes its data now, without retention.");
    Routes::default()
        .add(
            read(Operation::get("/disks", "listDisks", "Lists disks."))
                .query(&[LISTED_USER, CURSOR, LIMIT])
                .returns::<Page<DiskResource>>(),
            list,
        )
        .add(
            write(Operation::post("/disks", "createDisk", "Creates a disk."))
                .dry_run::<DiskResource>()
                .body::<CreateDisk>(json!({"name": "data", "size": "50Gi"})),
            create,
        )
        .add(
            read(Operation::get("/disks/{name}", "getDisk", "Returns a disk."))
                .query(&[USER])
                .returns_object::<DiskResource>(),
            get,
        )
        .add(
            write(Operation::patch("/disks/{name}", "patchDisk", "Changes a disk by a merge patch of its spec."))
                .dry_run::<DiskResource>()
                .body::<Map<String, Value>>(json!({"size": "100Gi"})),
            patch,
        )
        .add(
            write(Operation::delete(
                "/disks/{name}",
                "deleteDisk",
                "Marks a disk as deleted; it can be undeleted for 30 days.",
            ))
            .query(&[UID, confirm]),
            delete,
        )
        .add(write(Operation::post("/disks/{name}/undelete", "undeleteDisk", "Gets a deleted disk back.")), undelete)
        .add(
            read(Operation::get("/disks/{name}/points", "listPoints", "Lists the restore points of a disk."))
                .query(&[USER])
                .returns::<Page<RestorePoint>>(),
            points,
        )
        .add(
            read(Operation::get(
                "/disks/{name}/points/{point}/content",
                "getPointContent",
                "Returns the listing of the files of a restore point.",
            ))
            .query(&[USER])
            .streams::<Value>("application/octet-stream"),
            content,
        )
}

async fn list(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<DiskResource>>> {
    authorize_list(&app, &ctx, Action::ReadDisks, query.user.as_deref())?;
    let user = listed_user(&ctx, query.user.as_deref());
    resource::list(&app.cluster.disks, user, query.cursor.as_ref(), query.limit, |_| true)
}

async fn get(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("disk", &name))?;
    resource::respond(&app.cluster.disks, &ctx, user, &name).await
}

async fn create(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<ChangeQuery>,
    body: JsonBody<CreateDisk>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    let name = body.value.name.to_string();
    authorize_user(&app, &ctx, Action::WriteDisks, user, ("user", user))?;
    check_user_exists(&app, user)?;
    let object = json!({
        "apiVersion": odc_api::API_VERSION,
        "kind": "Disk",
        "metadata": {"name": name, "namespace": odc_api::namespace::for_user(user)},
        "spec": body.value.spec,
    });
    let disk = parse(&object, None)?;
    if app.cluster.disks.get(user, &name).is_some() && (query.dry_run || ctx.idempotency_key.is_none()) {
        return Err(Error::with_detail(
            ProblemType::Conflict,
            format!("disk {name} already exists; choose another name"),
        ));
    }
    if query.dry_run {
        return Ok(Json(disk.to_body(user, app.cluster.disks.observed_at())).into_response());
    }
    let create = message::CreateDisk { name, spec: disk.spec };
    accept(&app, &ctx, user, body.hash, |_| Message::DiskCreate(create.clone())).await
}

/// Validates a disk by the rules that the API server enforces.
fn parse(object: &Value, old: Option<&Value>) -> Result<Disk> {
    check::check_object(object, old).map_err(Error::invalid_object)?;
    reject_unknown_fields::<DiskSpec>(object)?;
    serde_json::from_value(object.clone())
        .map_err(|error| Error::with_detail(ProblemType::InvalidObject, error.to_string()))
}

async fn patch(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<ChangeQuery>,
    body: JsonBody<Map<String, Value>>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteDisks, user, ("disk", &name))?;
    let patch = Value::Object(body.value);
    let disk = app.cluster.disks.get(user, &name);
    if query.dry_run && disk.is_none() {
        return Err(Error::not_found("disk", &name));
    }
    if let Some(disk) = disk
        && (query.dry_run || ctx.idempotency_key.is_none())
    {
        let old = serde_json::to_value(&*disk).map_err(|error| Error::internal(&error))?;
        let mut new = old.clone();
        merge(&mut new["spec"], &patch);
        let changed = parse(&new, Some(&old))?;
        if query.dry_run {
            return Ok(Json(changed.to_body(user, app.cluster.disks.observed_at())).into_response());
        }
    }
    patch_spec(&app, &ctx, user, name, patch, body.hash).await
}

async fn undelete(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteDisks, user, ("disk", &name))?;
    patch_spec(&app, &ctx, user, name, json!({"deleted": false}), ctx.target_hash).await
}

async fn patch_spec(
    app: &App,
    ctx: &RequestContext,
    user: &str,
    name: String,
    patch: Value,
    hash: [u8; 32],
) -> Result<Response> {
    let disk = app.cluster.disks.get(user, &name);
    let preconditions = preconditions(ctx, "disk", &name, disk.as_deref().map(|disk| &disk.metadata))?;
    let patch = message::PatchObject { name, preconditions, patch };
    accept(app, ctx, user, hash, |_| Message::DiskPatch(patch.clone())).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteDiskQuery {
    user: Option<String>,
    uid: Option<String>,
    confirm: Option<String>,
}

async fn delete(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<DeleteDiskQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteDisks, user, ("disk", &name))?;
    if query.confirm.as_deref().is_some_and(|confirmed| confirmed != name) {
        return Err(Error::invalid("the parameter confirm must be the name of the disk"));
    }
    let disk = app.cluster.disks.get(user, &name);
    let preconditions = preconditions(&ctx, "disk", &name, disk.as_deref().map(|disk| &disk.metadata))?;
    let preconditions = preconditions.with_uid(query.uid);
    let delete = message::DeleteDisk { name, preconditions, confirmed: query.confirm.is_some() };
    accept(&app, &ctx, user, ctx.target_hash, |_| Message::DiskDelete(delete.clone())).await
}

async fn points(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<RestorePoint>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("disk", &name))?;
    let disk = app.cluster.disks.get(user, &name).ok_or_else(|| Error::not_found("disk", &name))?;
    let items = disk.status.as_ref().map(|status| status.points.clone()).unwrap_or_default();
    Ok(Json(Page { items, next_cursor: None }))
}

/// Returns a compressed listing. Only the `ConfigMap`s of points of the disk are read.
async fn content(
    State(app): State<App>,
    ctx: RequestContext,
    Name((name, point)): Name<(String, String)>,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadDisks, user, ("disk", &name))?;
    let disk = app.cluster.disks.get(user, &name).ok_or_else(|| Error::not_found("disk", &name))?;
    let mut points = disk.status.iter().flat_map(|status| &status.points);
    if !points.any(|known| known.name.as_str() == point) {
        return Err(Error::not_found("restore point", &point));
    }
    let stored: Api<ConfigMap> = Api::namespaced(app.kube.clone(), &odc_api::namespace::for_user(user));
    let stored = stored.get_opt(&point).await?;
    let listing = stored.and_then(|stored| stored.binary_data?.remove(LISTING_KEY));
    let listing = listing.ok_or_else(|| Error::not_found("listing of restore point", &point))?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], listing.0).into_response())
}
