//! The service itself: version, caller, health, document.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use kube::ResourceExt as _;
use odc_api::http::{Health, Me, Version};
use odc_api::queue::Queue;
use odc_core::access::{Action, Scope, Via};
use serde_json::Value;

use crate::api::body::Json;
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes, openapi};
use crate::api::error::Result;
use crate::api::{App, MINIMUM_CLIENT_VERSION, queue};

/// How long a check of the database may take.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Routes {
    Routes::default()
        .add(Operation::get("/version", "getVersion", "Returns the version of the API.").returns::<Version>(), version)
        .add(Operation::get("/openapi.json", "getOpenApi", "Returns this document."), document)
        .add(Operation::get("/me", "getMe", "Returns the caller.").requires(Action::ReadCatalog).returns::<Me>(), me)
        .add(
            Operation::get("/health", "getHealth", "Returns whether the parts of the service work.")
                .returns::<Health>(),
            parts,
        )
}

/// Returns the routes for probes of the kubelet.
pub(in crate::api) fn health() -> Router<App> {
    Router::new().route("/livez", get(|| async { "ok\n" })).route("/readyz", get(ready))
}

async fn version() -> Json<Version> {
    let (major, minor, patch) = MINIMUM_CLIENT_VERSION;
    let minimum_client_version = format!("{major}.{minor}.{patch}");
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), minimum_client_version })
}

async fn document() -> Json<Value> {
    Json(openapi())
}

async fn me(State(app): State<App>, ctx: RequestContext) -> Result<Json<Me>> {
    let caller = &ctx.caller;
    let mut teams = vec![];
    app.cluster.teams.for_each(|team| {
        if team.spec.members.iter().any(|member| member.as_str() == caller.user) {
            teams.push(team.name_any());
        }
    });
    let key_id = match &caller.via {
        Via::ApiKey { id } => Some(id.clone()),
        Via::Kubernetes => None,
    };
    let scopes = caller.scopes.iter().map(Scope::as_str).map(str::to_owned).collect();
    let namespace = odc_api::namespace::for_user(&caller.user);
    Ok(Json(Me { user: caller.user.clone(), role: caller.role, namespace, scopes, key_id, teams }))
}

/// Reports ready as soon as reads can be answered. Without the database the API still answers reads, so a restart or a
/// change of endpoints would not help.
async fn ready(State(app): State<App>) -> Response {
    if app.cluster.is_synced() {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "watches not synced\n").into_response()
    }
}

async fn parts(State(app): State<App>) -> Json<Health> {
    let word = |works: bool, otherwise: &str| if works { "ok".to_owned() } else { otherwise.to_owned() };
    let database = tokio::time::timeout(DATABASE_TIMEOUT, app.store.ping()).await.is_ok_and(|ping| ping.is_ok());
    let queue = queue::list::<Queue>(&app.kube, "queues").await.is_ok();
    Json(Health {
        ready: app.cluster.is_synced(),
        cluster: word(app.cluster.is_synced(), "watches not synced"),
        database: word(database, "unavailable"),
        notifications: word(app.authenticator.is_listening(), "not received"),
        queue: word(queue, "unavailable"),
    })
}
