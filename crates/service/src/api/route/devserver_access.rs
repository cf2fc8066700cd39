//! Access to servers: other users, Jupyter, heartbeats.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use odc_api::http::EventType;
use odc_api::name::UserName;
use odc_api::queue::HeartbeatServer;
use odc_core::access::Action;
use serde_json::json;

use super::devserver::patch_spec;
use super::{OwnerQuery, USER, authorize_user};
use crate::api::App;
use crate::api::accept::{accept, preconditions};
use crate::api::body::{Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes};
use crate::api::error::{Error, Result};
use crate::message::{Message, SetUser};

pub(super) fn routes() -> Routes {
    let write = |operation: Operation| operation.requires(Action::WriteServers).query(&[USER]).accepted();
    Routes::default()
        .add(
            write(Operation::put(
                "/devservers/{name}/users/{member}",
                "shareDevServer",
                "Gives a user access to a server.",
            )),
            share,
        )
        .add(
            write(Operation::delete(
                "/devservers/{name}/users/{member}",
                "unshareDevServer",
                "Removes the access of a user.",
            )),
            unshare,
        )
        .add(write(Operation::put("/devservers/{name}/jupyter", "enableJupyter", "Starts Jupyter.")), enable_jupyter)
        .add(
            write(Operation::delete("/devservers/{name}/jupyter", "disableJupyter", "Stops Jupyter.")),
            disable_jupyter,
        )
        .add(
            Operation::post("/devservers/{name}/heartbeat", "sendHeartbeat", "Reports that a server is in use.")
                .requires(Action::WriteServers)
                .query(&[USER])
                .returns_nothing(202),
            heartbeat,
        )
}

async fn share(
    State(app): State<App>,
    ctx: RequestContext,
    Name(path): Name<(String, String)>,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    set_user(&app, &ctx, path, &query, true).await
}

async fn unshare(
    State(app): State<App>,
    ctx: RequestContext,
    Name(path): Name<(String, String)>,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    set_user(&app, &ctx, path, &query, false).await
}

async fn set_user(
    app: &App,
    ctx: &RequestContext,
    (name, member): (String, String),
    query: &OwnerQuery,
    has_access: bool,
) -> Result<Response> {
    let owner = ctx.user(query.user.as_deref());
    authorize_user(app, ctx, Action::WriteServers, owner, ("server", &name))?;
    let user: UserName = member.parse().map_err(|error| Error::invalid(format!("invalid user name: {error}")))?;
    let server = app.cluster.devservers.get(owner, &name);
    let preconditions = preconditions(ctx, "server", &name, server.as_deref().map(|server| &server.metadata))?;
    let set = SetUser { name, preconditions, user, has_access };
    accept(app, ctx, owner, ctx.target_hash, |_| Message::DevServerSetUser(set.clone())).await
}

async fn enable_jupyter(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    patch_spec(&app, &ctx, &name, &query, |_| json!({"access": {"jupyter": true}})).await
}

async fn disable_jupyter(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    patch_spec(&app, &ctx, &name, &query, |_| json!({"access": {"jupyter": false}})).await
}

/// Answers from memory; the heartbeat is passed on later.
async fn heartbeat(
    State(app): State<App>,
    ctx: RequestContext,
    Name(name): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteServers, user, ("server", &name))?;
    app.cluster.devservers.get(user, &name).ok_or_else(|| Error::not_found("server", &name))?;
    let server = HeartbeatServer { namespace: odc_api::namespace::for_user(user), name: name.clone() };
    if app.heartbeats.note(server) {
        app.events.publish(EventType::Heartbeat, user, &name, json!({}));
    }
    Ok(StatusCode::ACCEPTED.into_response())
}
