//! Flavors, users and teams, and the nodes of the cluster.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use odc_api::http::{
    ApplySpec, ClusterStatistics, ClusterStatus, FlavorResource, FlavorSummary, Node, Page, ProblemType, TeamResource,
    UserResource,
};
use odc_api::v1alpha1::{DevServerUser, Team};
use odc_core::access::{Action, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::devserver::merge;
use super::{CURSOR, LIMIT, PageQuery, authorize, record_denial};
use crate::api::App;
use crate::api::accept::{accept, preconditions};
use crate::api::body::{Json, JsonBody, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Parameter, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::resource::{self, ApiResource, Watchable};
use crate::message::{ApplyMode, ApplyObject, DeleteObject, Message, Preconditions};

const FORCE: Parameter = parameter::<bool>("force", "Takes over fields of other field managers.");

/// Declares the routes by which administrators change a kind.
macro_rules! change_routes {
    ($routes:expr, $path:literal, $noun:literal, $apply_id:literal, $merge_id:literal, $delete_id:literal, $kinds:ident,
     $kind:literal, $resource:ty, $apply:ident, $delete:ident, $example:tt) => {
        $routes
            .add(
                Operation::put($path, $apply_id, concat!("Creates or replaces a ", $noun, " (server-side apply)."))
                    .requires(Action::WriteCluster)
                    .query(&[FORCE])
                    .accepted()
                    .dry_run::<$resource>()
                    .body::<ApplySpec>(json!({"spec": $example})),
                |State(app): State<App>, ctx: RequestContext, Name(name): Name, Params(query): Params<ApplyQuery>,
                 body: JsonBody<ApplySpec>| async move {
                    let mode = if query.force { ApplyMode::ForceApply } else { ApplyMode::Apply };
                    let object = app.cluster.$kinds.get("", &name);
                    let kind = Kind { noun: $noun, name: $kind, apply: Message::$apply };
                    apply(&app, &ctx, &kind, name, object.as_deref(), mode, &query, body).await
                },
            )
            .add(
                Operation::patch($path, $merge_id, concat!("Creates a ", $noun, ", or changes fields of it by a merge patch."))
                    .requires(Action::WriteCluster)
                    .accepted()
                    .dry_run::<$resource>()
                    .body::<ApplySpec>(json!({"spec": $example})),
                |State(app): State<App>, ctx: RequestContext, Name(name): Name, Params(query): Params<ApplyQuery>,
                 body: JsonBody<ApplySpec>| async move {
                    let object = app.cluster.$kinds.get("", &name);
                    let kind = Kind { noun: $noun, name: $kind, apply: Message::$apply };
                    apply(&app, &ctx, &kind, name, object.as_deref(), ApplyMode::Merge, &query, body).await
                },
            )
            .add(
                Operation::delete($path, $delete_id, concat!("Deletes a ", $noun, "."))
                    .requires(Action::WriteCluster)
                    .accepted()
                    .dry_run::<$resource>(),
                |State(app): State<App>, ctx: RequestContext, Name(name): Name, Params(query): Params<DeleteQuery>| async move {
                    authorize(&app, &ctx, Action::WriteCluster, Target::Cluster, ($noun, &name))?;
                    if query.dry_run {
                        return resource::respond(&app.cluster.$kinds, &ctx, "", &name).await;
                    }
                    let object = app.cluster.$kinds.get("", &name);
                    let meta = object.as_deref().map(|object| &object.metadata);
                    let preconditions = preconditions(&ctx, $noun, &name, meta)?;
                    let delete = DeleteObject { name, preconditions };
                    let user = ctx.caller.user.clone();
                    accept(&app, &ctx, &user, ctx.target_hash, |_| Message::$delete(delete.clone())).await
                },
            )
    };
}

pub(super) fn routes() -> Routes {
    let routes = Routes::default()
        .add(
            Operation::get("/flavors", "listFlavors", "Lists flavors.")
                .requires(Action::ReadCatalog)
                .query(&[CURSOR, LIMIT])
                .returns::<Page<FlavorResource>>(),
            list_flavors,
        )
        .add(
            Operation::get("/flavors/{name}", "getFlavor", "Returns a flavor.")
                .requires(Action::ReadCatalog)
                .returns_object::<FlavorResource>(),
            get_flavor,
        )
        .add(
            Operation::get("/users", "listUsers", "Lists users: all for administrators and auditors, else the caller.")
                .requires(Action::ReadUsers)
                .query(&[CURSOR, LIMIT])
                .returns::<Page<UserResource>>(),
            list_users,
        )
        .add(
            Operation::get("/users/{name}", "getUser", "Returns a user.")
                .requires(Action::ReadUsers)
                .returns_object::<UserResource>(),
            get_user,
        )
        .add(
            Operation::get(
                "/teams",
                "listTeams",
                "Lists teams: all for administrators and auditors, else those of the caller.",
            )
            .requires(Action::ReadUsers)
            .query(&[CURSOR, LIMIT])
            .returns::<Page<TeamResource>>(),
            list_teams,
        )
        .add(
            Operation::get("/teams/{name}", "getTeam", "Returns a team.")
                .requires(Action::ReadUsers)
                .returns_object::<TeamResource>(),
            get_team,
        )
        .add(
            Operation::get("/nodes", "listNodes", "Lists nodes.").requires(Action::ReadCluster).returns::<Page<Node>>(),
            list_nodes,
        )
        .add(
            Operation::get("/cluster/status", "getClusterStatus", "Returns the capacity of the cluster.")
                .requires(Action::ReadCatalog)
                .returns::<ClusterStatus>(),
            status,
        )
        .add(
            Operation::get(
                "/cluster/statistics",
                "getClusterStatistics",
                "Returns numbers of servers, disks, users and teams.",
            )
            .requires(Action::ReadCluster)
            .returns::<ClusterStatistics>(),
            statistics,
        )
        .add(
            Operation::get("/node-operations", "listNodeOperations", "Reserved; not implemented yet.")
                .requires(Action::ReadCluster),
            list_node_operations,
        )
        .add(
            Operation::post("/node-operations", "createNodeOperation", "Reserved; not implemented yet.")
                .requires(Action::WriteCluster),
            create_node_operation,
        );
    let routes = change_routes!(routes, "/flavors/{name}", "flavor", "applyFlavor", "patchFlavor", "deleteFlavor", flavors,
        "DevServerFlavor", FlavorResource, FlavorApply, FlavorDelete, {"resources": {"per": "Server", "cpu": "2", "memory": "4Gi"}});
    let routes = change_routes!(routes, "/users/{name}", "user", "applyUser", "patchUser", "deleteUser", users,
        "DevServerUser", UserResource, UserApply, UserDelete, {"displayName": "Ada"});
    change_routes!(routes, "/teams/{name}", "team", "applyTeam", "patchTeam", "deleteTeam", teams,
        "Team", TeamResource, TeamApply, TeamDelete, {"members": ["ada"]})
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApplyQuery {
    #[serde(default)]
    force: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteQuery {
    #[serde(default)]
    dry_run: bool,
}

/// A kind that administrators change.
struct Kind {
    noun: &'static str,
    name: &'static str,
    apply: fn(ApplyObject) -> Message,
}

#[expect(clippy::too_many_arguments, reason = "called by the generated handlers only")]
async fn apply<K: ApiResource + Watchable + Serialize>(
    app: &App,
    ctx: &RequestContext,
    kind: &Kind,
    name: String,
    stored: Option<&K>,
    mode: ApplyMode,
    query: &ApplyQuery,
    body: JsonBody<ApplySpec>,
) -> Result<Response> {
    authorize(app, ctx, Action::WriteCluster, Target::Cluster, (kind.noun, &name))?;
    let ApplySpec { spec, labels, annotations } = body.value;
    let spec = Value::Object(spec);
    if mode == ApplyMode::Merge && !(labels.is_empty() && annotations.is_empty()) {
        let detail = "labels and annotations can only be set by PUT, with a complete spec";
        return Err(Error::with_detail(ProblemType::InvalidObject, detail));
    }
    // A merge patch is complete only together with the stored object, so the API server validates it.
    if mode != ApplyMode::Merge || stored.is_none() || query.dry_run {
        let changed = check(kind, &name, stored.filter(|_| mode == ApplyMode::Merge), &spec)?;
        if query.dry_run {
            return Ok(Json(changed.to_body("", Timestamp::now())).into_response());
        }
    }
    let meta = stored.map(K::meta);
    // Unlike a change, an apply creates the object.
    let preconditions = match &ctx.if_match {
        Some(_) => preconditions(ctx, kind.noun, &name, meta)?,
        None => Preconditions::default(),
    };
    let object = ApplyObject { name, preconditions, mode, spec, labels, annotations };
    let user = ctx.caller.user.clone();
    accept(app, ctx, &user, body.hash, |_| (kind.apply)(object.clone())).await
}

/// Validates an object by the rules that the API server enforces. Returns it with the change.
fn check<K: Watchable + Serialize>(kind: &Kind, name: &str, stored: Option<&K>, spec: &Value) -> Result<K> {
    let old = stored.map(serde_json::to_value).transpose().map_err(|error| Error::internal(&error))?;
    let mut object = old.clone().unwrap_or_else(
        || json!({"apiVersion": odc_api::API_VERSION, "kind": kind.name, "metadata": {"name": name}, "spec": {}}),
    );
    merge(&mut object["spec"], spec);
    odc_api::check::check_object(&object, old.as_ref()).map_err(Error::invalid_object)?;
    serde_json::from_value(object).map_err(|error| Error::with_detail(ProblemType::InvalidObject, error.to_string()))
}

async fn list_flavors(State(app): State<App>, Params(query): Params<PageQuery>) -> Result<Json<Page<FlavorResource>>> {
    resource::list(&app.cluster.flavors, None, query.cursor.as_ref(), query.limit, |_| true)
}

async fn get_flavor(State(app): State<App>, ctx: RequestContext, Name(name): Name) -> Result<Response> {
    resource::respond(&app.cluster.flavors, &ctx, "", &name).await
}

async fn list_users(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<UserResource>>> {
    let is_visible = |user: &DevServerUser| ctx.caller.sees_all_users() || user.name_any() == ctx.caller.user;
    resource::list(&app.cluster.users, None, query.cursor.as_ref(), query.limit, is_visible)
}

async fn get_user(State(app): State<App>, ctx: RequestContext, Name(name): Name) -> Result<Response> {
    authorize(&app, &ctx, Action::ReadUsers, Target::User(&name), ("user", &name))?;
    resource::respond(&app.cluster.users, &ctx, "", &name).await
}

fn is_member(ctx: &RequestContext, team: &Team) -> bool {
    ctx.caller.sees_all_users() || team.spec.members.iter().any(|member| member.as_str() == ctx.caller.user)
}

async fn list_teams(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<PageQuery>,
) -> Result<Json<Page<TeamResource>>> {
    resource::list(&app.cluster.teams, None, query.cursor.as_ref(), query.limit, |team| is_member(&ctx, team))
}

async fn get_team(State(app): State<App>, ctx: RequestContext, Name(name): Name) -> Result<Response> {
    if app.cluster.teams.get("", &name).is_some_and(|team| !is_member(&ctx, &team)) {
        record_denial(&app, &ctx, Action::ReadUsers, Target::Cluster, ("team", &name));
        return Err(Error::not_found("team", &name));
    }
    resource::respond(&app.cluster.teams, &ctx, "", &name).await
}

async fn list_nodes(State(app): State<App>, ctx: RequestContext) -> Result<Json<Page<Node>>> {
    authorize(&app, &ctx, Action::ReadCluster, Target::Cluster, ("cluster", "nodes"))?;
    let observed_at = Time(app.cluster.nodes.observed_at());
    let mut items = vec![];
    app.cluster.nodes.for_each(|node| items.push(to_body(node, &observed_at)));
    Ok(Json(Page { items, next_cursor: None }))
}

fn is_ready(node: &core::Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn to_body(node: &core::Node, observed_at: &Time) -> Node {
    let spec = node.spec.clone().unwrap_or_default();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
    let taint = |taint: core::Taint| format!("{}={}:{}", taint.key, taint.value.unwrap_or_default(), taint.effect);
    Node {
        name: node.name_any(),
        observed_at: observed_at.clone(),
        ready: is_ready(node),
        schedulable: !spec.unschedulable.unwrap_or(false),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        allocatable: allocatable.into_iter().map(|(resource, amount)| (resource, amount.0)).collect(),
        taints: spec.taints.unwrap_or_default().into_iter().map(taint).collect(),
    }
}

async fn status(State(app): State<App>) -> Json<ClusterStatus> {
    let (mut nodes, mut ready_nodes, mut flavors) = (0, 0, vec![]);
    app.cluster.nodes.for_each(|node| {
        nodes += 1;
        ready_nodes += u64::from(is_ready(node));
    });
    app.cluster.flavors.for_each(|flavor| {
        let status = flavor.status.clone().unwrap_or_default();
        flavors.push(FlavorSummary {
            name: flavor.name_any(),
            total: status.total.unwrap_or(0),
            free: status.free.unwrap_or(0),
            queue_length: status.queue_length.unwrap_or(0),
        });
    });
    Json(ClusterStatus { observed_at: Time(app.cluster.flavors.observed_at()), nodes, ready_nodes, flavors })
}

async fn statistics(State(app): State<App>, ctx: RequestContext) -> Result<Json<ClusterStatistics>> {
    authorize(&app, &ctx, Action::ReadCluster, Target::Cluster, ("cluster", "statistics"))?;
    let (mut servers, mut disks) = (BTreeMap::new(), BTreeMap::new());
    app.cluster.devservers.for_each(|server| {
        let phase = server.status.as_ref().and_then(|status| status.phase);
        *servers.entry(phase.map_or_else(|| "Pending".to_owned(), |phase| phase.to_string())).or_insert(0) += 1;
    });
    app.cluster.disks.for_each(|disk| {
        let phase = disk.status.as_ref().and_then(|status| status.phase);
        *disks.entry(phase.map_or_else(|| "Pending".to_owned(), |phase| phase.to_string())).or_insert(0) += 1;
    });
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Ok(Json(ClusterStatistics {
        observed_at: Time(app.cluster.devservers.observed_at()),
        servers,
        disks,
        users: count(app.cluster.users.len()),
        teams: count(app.cluster.teams.len()),
    }))
}

async fn list_node_operations(State(app): State<App>, ctx: RequestContext) -> Result<Response> {
    authorize(&app, &ctx, Action::ReadCluster, Target::Cluster, ("cluster", "node operations"))?;
    Err(node_operations())
}

async fn create_node_operation(State(app): State<App>, ctx: RequestContext) -> Result<Response> {
    authorize(&app, &ctx, Action::WriteCluster, Target::Cluster, ("cluster", "node operations"))?;
    Err(node_operations())
}

fn node_operations() -> Error {
    Error::with_detail(
        ProblemType::NotImplemented,
        "node operations are not implemented yet; use kubectl cordon and drain",
    )
}
