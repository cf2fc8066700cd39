//! The queue and the availability of flavors, answered by the leading operator.

use axum::extract::State;
use odc_api::http::{Page, ProblemType};
use odc_api::queue::{
    Availability, DryRun, DryRunSpec, DryRunStatus, Queue, QueueEntry, WhatIf, WhatIfSpec, WhatIfStatus,
};
use odc_core::access::{Action, Target};
use serde::Deserialize;
use serde_json::json;

use super::{OwnerQuery, USER, authorize, authorize_user, check_user_exists};
use crate::api::App;
use crate::api::body::{Json, JsonBody, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, parameter};
use crate::api::error::{Error, Result};
use crate::api::queue;

pub(super) fn routes() -> Routes {
    let all = parameter::<bool>("all", "Returns the servers of all users, for administrators and auditors.");
    Routes::default()
        .add(
            Operation::get("/queue", "listQueues", "Returns the queue of each flavor, without names.")
                .requires(Action::ReadCatalog)
                .returns::<Page<Queue>>(),
            queues,
        )
        .add(
            Operation::get(
                "/queue/entries",
                "listQueueEntries",
                "Returns pending servers with position and estimated start.",
            )
            .requires(Action::ReadServers)
            .query(&[USER, all])
            .returns::<Page<QueueEntry>>(),
            entries,
        )
        .add(
            Operation::get(
                "/availability",
                "listAvailability",
                "Returns when a new server of each flavor and size would start.",
            )
            .requires(Action::ReadCatalog)
            .query(&[USER])
            .returns::<Page<Availability>>(),
            availability,
        )
        .add(
            Operation::post("/queue/dry-run", "dryRun", "Returns when a server would start, and what it waits for.")
                .requires(Action::ReadServers)
                .query(&[USER])
                .body::<DryRunSpec>(json!({"flavor": "cpu", "lifetime": "8h"}))
                .returns::<DryRunStatus>(),
            dry_run,
        )
        .add(
            Operation::post("/queue/what-if", "whatIf", "Returns which starts other quotas would change.")
                .requires(Action::ReadCluster)
                .body::<WhatIfSpec>(json!({"users": {"ada": {"devices": 4}}}))
                .returns::<WhatIfStatus>(),
            what_if,
        )
}

fn page<T>(items: Vec<T>) -> Json<Page<T>> {
    Json(Page { items, next_cursor: None })
}

async fn queues(State(app): State<App>) -> Result<Json<Page<Queue>>> {
    Ok(page(queue::list(&app.kube, "queues").await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntriesQuery {
    user: Option<String>,
    #[serde(default)]
    all: bool,
}

async fn entries(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<EntriesQuery>,
) -> Result<Json<Page<QueueEntry>>> {
    if query.all {
        authorize(&app, &ctx, Action::ReadServers, Target::Cluster, ("queue", "entries"))?;
        return Ok(page(queue::list(&app.kube, "queueentries").await?));
    }
    let namespace = namespace(&app, &ctx, Action::ReadServers, query.user.as_deref())?;
    Ok(page(queue::list(&app.kube, &format!("namespaces/{namespace}/queueentries")).await?))
}

/// Returns the namespace of an existing user. The name comes from the client, so it is looked up before it becomes part of a
/// path.
fn namespace(app: &App, ctx: &RequestContext, action: Action, user: Option<&str>) -> Result<String> {
    let user = ctx.user(user);
    authorize_user(app, ctx, action, user, ("user", user))?;
    check_user_exists(app, user)?;
    Ok(odc_api::namespace::for_user(user))
}

async fn availability(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<Availability>>> {
    let namespace = namespace(&app, &ctx, Action::ReadCatalog, query.user.as_deref())?;
    Ok(page(queue::list(&app.kube, &format!("namespaces/{namespace}/availabilities")).await?))
}

async fn dry_run(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
    body: JsonBody<DryRunSpec>,
) -> Result<Json<DryRunStatus>> {
    let namespace = namespace(&app, &ctx, Action::ReadServers, query.user.as_deref())?;
    let path = format!("namespaces/{namespace}/dryruns");
    let review: DryRun = queue::review(&app.kube, &path, "DryRun", &body.value).await?;
    review.status.map(Json).ok_or_else(empty)
}

async fn what_if(
    State(app): State<App>,
    ctx: RequestContext,
    body: JsonBody<WhatIfSpec>,
) -> Result<Json<WhatIfStatus>> {
    authorize(&app, &ctx, Action::ReadCluster, Target::Cluster, ("queue", "what-if"))?;
    let review: WhatIf = queue::review(&app.kube, "whatifs", "WhatIf", &body.value).await?;
    review.status.map(Json).ok_or_else(empty)
}

fn empty() -> Error {
    Error::with_detail(ProblemType::Unavailable, "the queue returned no answer; repeat the request later")
}
