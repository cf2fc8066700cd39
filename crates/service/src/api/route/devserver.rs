//! Servers: list, create, read, change, delete.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::check;
use odc_api::http::{CreateDevServer, DevServerResource, Extend, Page, ProblemType, TimelineEntry};
use odc_api::v1alpha1::{DevServer, DevServerSpec, DiskSpec};
use odc_core::access::Action;
use odc_store::projection::ServerFilter;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    ALL, CURSOR, ChangeQuery, DeleteQuery, LIMIT, LISTED_USER, OwnerQuery, UID, USER, authorize_all, authorize_list,
    authorize_user, check_user_exists, listed_user,
};
use crate::api::App;
use crate::api::accept::{accept, preconditions};
use crate::api::body::{Json, JsonBody, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::page::{Cursor, rows};
use crate::api::resource::{self, ApiResource as _};
use crate::message::{self, Message};

/// The name and size of the disk that is created for servers without a home. As in `devctl`.
const DEFAULT_DISK: &str = "home";
const DEFAULT_DISK_SIZE: &str = "20Gi";
/// The fields of the spec that can be changed.
const MUTABLE_FIELDS: [&str; 6] = ["desired", "wake", "lifetime", "idle", "access", "scheduling"];
/// The longest timeline that is returned.
const MAX_TIMELINE: u32 = 1_000;

pub(super) fn routes() -> Routes {
    let read = |operation: Operation| operation.requires(Action::ReadServers);
    let write = |operation: Operation| operation.requires(Action::WriteServers).query(&[USER]).accepted();
    let example = json!({"name": "box", "flavor": "cpu", "lifetime": "1h"});
    let filters = [
        LISTED_USER,
        ALL,
        CURSOR,
        LIMIT,
        parameter::<String>("phase", "Phases to return, separated by commas."),
        parameter::<String>("flavor", "Flavor to return."),
        parameter::<String>("name", "Name to return."),
        parameter::<bool>("history", "Returns servers from the database, newest first, including deleted ones."),
    ];
    let purge = parameter::<bool>("purge", "Deletes the server also if it is not finished.");
    Routes::default()
        .add(
            read(Operation::get("/devservers", "listDevServers", "Lists servers."))
                .query(&filters)
                .returns::<Page<DevServerResource>>(),
            list,
        )
        .add(
            write(Operation::post("/devservers", "createDevServer", "Creates a server."))
                .dry_run::<DevServerResource>()
                .body::<CreateDevServer>(example),
            create,
        )
        .add(
            read(Operation::get("/devservers/{name}", "getDevServer", "Returns a server."))
                .query(&[USER])
                .returns_object::<DevServerResource>(),
            get,
        )
        .add(
            write(Operation::patch(
                "/devservers/{name}",
                "patchDevServer",
                "Changes a server by a merge patch of its spec.",
            ))
            .dry_run::<DevServerResource>()
            .body::<Map<String, Value>>(json!({"idle": {"timeout": "1h"}})),
            patch,
        )
        .add(
            write(Operation::delete(
                "/devservers/{name}",
                "deleteDevServer",
                "Stops a server, or deletes it if it is finished.",
            ))
            .query(&[UID, purge])
            .dry_run::<DevServerResource>(),
            delete,
        )
        .add(
            write(Operation::post("/devservers/{name}/extend", "extendDevServer", "Adds time to the lifetime."))
                .body::<Extend>(json!({"by": "1h"})),
            extend,
        )
        .add(
            write(Operation::post("/devservers/{name}/hibernate", "hibernateDevServer", "Hibernates a server.")),
            hibernate,
        )
        .add(write(Operation::post("/devservers/{name}/wake", "wakeDevServer", "Wakes a hibernated server.")), wake)
        .add(
            read(Operation::get("/devservers/{name}/timeline", "getTimeline", "Returns all phase transitions."))
                .query(&[USER])
                .returns::<Page<TimelineEntry>>(),
            timeline,
        )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListQuery {
    user: Option<String>,
    #[serde(default)]
    all: bool,
    cursor: Option<Cursor>,
    limit: Option<u32>,
    phase: Option<String>,
    flavor: Option<String>,
    name: Option<String>,
    #[serde(default)]
    history: bool,
}

impl ListQuery {
    fn phases(&self) -> Vec<String> {
        let phases = self.phase.as_deref().unwrap_or_default().split(',');
        phases.map(str::trim).filter(|phase| !phase.is_empty()).map(str::to_owned).collect()
    }
}

async fn list(State(app): State<App>, ctx: RequestContext, Params(query): Params<ListQuery>) -> Result<Response> {
    if query.all {
        authorize_all(&app, &ctx, Action::ReadServers)?;
    }
    authorize_list(&app, &ctx, Action::ReadServers, query.user.as_deref())?;
    if query.history {
        return Ok(history(&app, &ctx, &query).await?.into_response());
    }
    let phases = query.phases();
    let matches = |server: &DevServer| {
        let status = server.status.as_ref();
        let phase = status.and_then(|status| status.phase).map(|phase| phase.to_string()).unwrap_or_default();
        let flavor = status.and_then(|status| status.flavor.as_ref()).or(server.spec.flavor.as_ref());
        (phases.is_empty() || phases.contains(&phase))
            && query.flavor.as_deref().is_none_or(|wanted| flavor.is_some_and(|flavor| flavor.as_str() == wanted))
            && query.name.as_deref().is_none_or(|wanted| server.metadata.name.as_deref() == Some(wanted))
    };
    let user = listed_user(&ctx, query.user.as_deref());
    let page = resource::list(&app.cluster.devservers, user, query.cursor.as_ref(), query.limit, matches)?;
    Ok(page.into_response())
}

/// Lists servers of the database, which has deleted ones.
async fn history(app: &App, ctx: &RequestContext, query: &ListQuery) -> Result<Json<Page<DevServerResource>>> {
    let page = rows::<Uuid>(query.cursor.as_ref(), query.limit)?;
    let filter =
        ServerFilter { phases: query.phases(), flavor: query.flavor.clone(), name: query.name.clone(), deleted: false };
    let found = app.store.list_servers(&ctx.visible(query.user.as_deref()), &filter, &page).await?;
    let is_full = found.len() == usize::try_from(page.limit).unwrap_or(usize::MAX);
    let last = found.last().filter(|_| is_full);
    let next_cursor = last.map(|(at, uid, _)| Cursor::after(&[&at.to_string(), &uid.to_string()]));
    let observed_at = Timestamp::now();
    let servers = found.into_iter().filter_map(|(_, uid, object)| match serde_json::from_value::<DevServer>(object) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(%uid, %error, "ignored an invalid server of the database");
            None
        }
    });
    let owner = |server: &DevServer| odc_api::namespace::owner(&server.namespace().unwrap_or_default());
    let body = |server: DevServer| {
        server.to_body(owner(&server).map(String::from).as_deref().unwrap_or_default(), observed_at)
    };
    Ok(Json(Page { items: servers.map(body).collect(), next_cursor }))
}

async fn get(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadServers, user, ("server", &name))?;
    resource::respond(&app.cluster.devservers, &ctx, user, &name).await
}

async fn create(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<ChangeQuery>,
    body: JsonBody<CreateDevServer>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    let name = body.value.name.to_string();
    authorize_user(&app, &ctx, Action::WriteServers, user, ("user", user))?;
    check_user_exists(&app, user)?;
    let mut spec = body.value.spec;
    let needs_default = !spec.contains_key("home");
    if needs_default {
        spec.insert("home".to_owned(), json!({"disk": DEFAULT_DISK}));
    }
    let object = object(&name, user, &spec.into());
    let server = parse(&object, None)?;
    let existing = app.cluster.devservers.get(user, &name);
    if existing.is_some() && (query.dry_run || ctx.idempotency_key.is_none()) {
        let detail = format!("server {name} already exists; delete it or choose another name");
        return Err(Error::with_detail(ProblemType::Conflict, detail));
    }
    if query.dry_run {
        return Ok(Json(server.to_body(user, app.cluster.devservers.observed_at())).into_response());
    }
    let is_missing = needs_default && app.cluster.disks.get(user, DEFAULT_DISK).is_none();
    let default_disk = is_missing.then(default_disk).transpose()?;
    let create = message::CreateDevServer { name, spec: server.spec, default_disk };
    accept(&app, &ctx, user, body.hash, |_| Message::DevServerCreate(Box::new(create.clone()))).await
}

fn default_disk() -> Result<message::CreateDisk> {
    let spec: DiskSpec =
        serde_json::from_value(json!({"size": DEFAULT_DISK_SIZE})).map_err(|error| Error::internal(&error))?;
    Ok(message::CreateDisk { name: DEFAULT_DISK.to_owned(), spec })
}

/// Returns the JSON of a server.
fn object(name: &str, user: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": odc_api::API_VERSION,
        "kind": "DevServer",
        "metadata": {"name": name, "namespace": odc_api::namespace::for_user(user)},
        "spec": spec,
    })
}

/// Validates a server by the rules that the API server enforces.
fn parse(object: &Value, old: Option<&Value>) -> Result<DevServer> {
    check::check_object(object, old).map_err(Error::invalid_object)?;
    reject_unknown_fields::<DevServerSpec>(object)?;
    serde_json::from_value(object.clone())
        .map_err(|error| Error::with_detail(ProblemType::InvalidObject, error.to_string()))
}

/// Rejects fields of a spec that its schema does not have. The API server would remove them silently.
pub(super) fn reject_unknown_fields<T: schemars::JsonSchema>(object: &Value) -> Result<()> {
    let schema = schemars::generate::SchemaSettings::default().into_generator().into_root_schema_for::<T>();
    let known = schema.get("properties").and_then(Value::as_object);
    let spec = object.get("spec").and_then(Value::as_object);
    let (Some(known), Some(spec)) = (known, spec) else { return Ok(()) };
    let unknown = spec.keys().filter(|field| !known.contains_key(*field));
    let violations: Vec<check::Violation> = unknown
        .map(|field| check::Violation { path: format!("spec.{field}"), message: "unknown field".to_owned() })
        .collect();
    if violations.is_empty() { Ok(()) } else { Err(Error::invalid_object(violations)) }
}

async fn patch(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<ChangeQuery>,
    body: JsonBody<Map<String, Value>>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteServers, user, ("server", &name))?;
    if let Some(field) = body.value.keys().find(|field| !MUTABLE_FIELDS.contains(&field.as_str())) {
        let detail =
            format!("the field {field} is immutable or unknown; can be changed: {}", MUTABLE_FIELDS.join(", "));
        return Err(Error::with_detail(ProblemType::InvalidObject, detail));
    }
    let server = app.cluster.devservers.get(user, &name);
    let preconditions = preconditions(&ctx, "server", &name, server.as_deref().map(|server| &server.metadata))?;
    let patch = Value::Object(body.value);
    if query.dry_run && server.is_none() {
        return Err(Error::not_found("server", &name));
    }
    if let Some(server) = &server
        && (query.dry_run || ctx.idempotency_key.is_none())
    {
        let old = serde_json::to_value(&**server).map_err(|error| Error::internal(&error))?;
        let mut new = old.clone();
        merge(&mut new["spec"], &patch);
        let changed = parse(&new, Some(&old))?;
        if query.dry_run {
            return Ok(Json(changed.to_body(user, app.cluster.devservers.observed_at())).into_response());
        }
    }
    let patch = message::PatchObject { name, preconditions, patch };
    accept(&app, &ctx, user, body.hash, |_| Message::DevServerPatch(patch.clone())).await
}

/// Applies a merge patch (RFC 7386).
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in patch {
        match (value, target.as_object_mut()) {
            (Value::Null, Some(target)) => drop(target.remove(field)),
            (value, Some(target)) => merge(target.entry(field.clone()).or_insert(Value::Null), value),
            (_, None) => {}
        }
    }
}

async fn delete(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<DeleteQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteServers, user, ("server", &name))?;
    if query.dry_run {
        return resource::respond(&app.cluster.devservers, &ctx, user, &name).await;
    }
    let server = app.cluster.devservers.get(user, &name);
    let preconditions = preconditions(&ctx, "server", &name, server.as_deref().map(|server| &server.metadata))?;
    let preconditions = preconditions.with_uid(query.uid);
    let delete = message::DeleteDevServer { name, preconditions, purge: query.purge };
    accept(&app, &ctx, user, ctx.target_hash, |_| Message::DevServerDelete(delete.clone())).await
}

async fn extend(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
    body: JsonBody<Extend>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteServers, user, ("server", &name))?;
    let server = app.cluster.devservers.get(user, &name);
    let preconditions = preconditions(&ctx, "server", &name, server.as_deref().map(|server| &server.metadata))?;
    let extend = message::ExtendDevServer { name, preconditions, by: body.value.by };
    accept(&app, &ctx, user, body.hash, |_| Message::DevServerExtend(extend.clone())).await
}

async fn hibernate(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    patch_spec(&app, &ctx, &name, &query, |_| json!({"desired": "Hibernated"})).await
}

/// Wakes a server that was hibernated by its user (`desired`) or by idleness or a drain (`wake`).
async fn wake(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    patch_spec(&app, &ctx, &name, &query, |id| json!({"desired": "Running", "wake": id.to_string()})).await
}

/// Accepts a change of the spec of a server that depends on nothing in its body.
pub(super) async fn patch_spec(
    app: &App,
    ctx: &RequestContext,
    name: &str,
    query: &OwnerQuery,
    patch: impl Fn(Uuid) -> Value + Send + Sync,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(app, ctx, Action::WriteServers, user, ("server", name))?;
    let server = app.cluster.devservers.get(user, name);
    let preconditions = preconditions(ctx, "server", name, server.as_deref().map(|server| &server.metadata))?;
    let build = |id| {
        let (name, preconditions) = (name.to_owned(), preconditions.clone());
        Message::DevServerPatch(message::PatchObject { name, preconditions, patch: patch(id) })
    };
    accept(app, ctx, user, ctx.target_hash, build).await
}

async fn timeline(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<TimelineEntry>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadServers, user, ("server", &name))?;
    let live = app.cluster.devservers.get(user, &name).and_then(|server| server.metadata.uid.as_deref()?.parse().ok());
    let uid: Option<Uuid> = if live.is_some() {
        live
    } else {
        let filter = ServerFilter { name: Some(name.clone()), ..ServerFilter::default() };
        let page = odc_store::page::Page { after: None, limit: 1 };
        let found = app.store.list_servers(&ctx.visible(Some(user)), &filter, &page).await?;
        found.first().map(|(_, uid, _)| *uid)
    };
    let uid = uid.ok_or_else(|| Error::not_found("server", &name))?;
    let rows = app.store.timeline(uid, MAX_TIMELINE).await?;
    let entry = |row: odc_store::projection::TimelineRow| TimelineEntry {
        at: Time(row.at),
        phase: row.phase,
        reason: row.reason,
    };
    Ok(Json(Page { items: rows.into_iter().map(entry).collect(), next_cursor: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_follows_the_rfc() {
        let check = |target: Value, patch: Value, expected: Value| {
            let mut merged = target;
            merge(&mut merged, &patch);
            assert_eq!(merged, expected);
        };
        check(json!({"a": "b", "c": {"d": 1}}), json!({"a": null, "c": {"e": 2}}), json!({"c": {"d": 1, "e": 2}}));
        check(json!({"a": [1]}), json!({"a": [2, 3]}), json!({"a": [2, 3]}));
        check(json!(7), json!({"a": {"b": null}}), json!({"a": {}}));
    }

    #[test]
    fn unknown_field_is_rejected() {
        let spec = |field: &str| object("box", "ada", &json!({"home": {"disk": "home"}, field: "1h"}));
        assert!(parse(&spec("lifetime"), None).is_ok());
        assert!(parse(&spec("lifetimes"), None).is_err());
    }
}
