//! The routes, one file per resource. A handler authorizes the caller, calls one function, and answers.

mod access;
mod activity;
mod admin;
mod devserver;
mod devserver_access;
mod devserver_logs;
mod disk;
mod event_stream;
mod operation;
mod queue;
mod service;

use std::time::Duration;

use odc_api::name::UserName;
use odc_core::access::{self as rules, Action, Decision, Target};
use odc_store::audit::{Entry, Outcome};
use serde::Deserialize;

use super::App;
use super::context::RequestContext;
use super::document::{Parameter, Routes, parameter};
use super::error::{Error, Result};
use super::page::Cursor;

pub use access::MAX_KEYS;
pub(super) use service::health;

/// Returns all documented routes.
pub(super) fn all() -> Routes {
    Routes::default()
        .merge(service::routes())
        .merge(devserver::routes())
        .merge(devserver_access::routes())
        .merge(devserver_logs::routes())
        .merge(disk::routes())
        .merge(operation::routes())
        .merge(admin::routes())
        .merge(queue::routes())
        .merge(access::routes())
        .merge(activity::routes())
        .merge(event_stream::routes())
}

/// How long a stream continues after its caller is not accepted any more.
const STREAM_CHECK_INTERVAL: Duration = Duration::from_secs(5);

const USER: Parameter = parameter::<String>("user", "User who owns the object. Defaults to the caller.");
const LISTED_USER: Parameter = parameter::<String>(
    "user",
    "User whose objects to return. Defaults to all users for administrators and auditors, else to the caller.",
);
const UID: Parameter = parameter::<String>("uid", "Uid of the object. Another object of this name is not deleted.");
const ALL: Parameter = parameter::<bool>("all", "Objects of all users, for administrators and auditors only.");
const CURSOR: Parameter = parameter::<String>("cursor", "Value of nextCursor of the previous page.");
const LIMIT: Parameter = parameter::<u32>("limit", "Number of items of a page, at most 500. Defaults to 100.");

/// Whose object a request is about.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerQuery {
    user: Option<String>,
}

/// Whose object a request is about, and whether it is only validated.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeQuery {
    user: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

/// Which object to delete.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteQuery {
    user: Option<String>,
    uid: Option<String>,
    #[serde(default)]
    dry_run: bool,
    /// Deletes a server that is not finished.
    #[serde(default)]
    purge: bool,
}

/// A page of the objects of a user.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PageQuery {
    user: Option<String>,
    cursor: Option<Cursor>,
    limit: Option<u32>,
}

/// Checks the permission of a caller for an object, which is named in the error and in the audit log.
fn authorize(app: &App, ctx: &RequestContext, action: Action, target: Target<'_>, object: (&str, &str)) -> Result<()> {
    let (noun, name) = object;
    let error = match rules::decide(&ctx.caller, action, target) {
        Decision::Allow => return check_user_name(ctx, target),
        Decision::NotFound => Error::not_found(noun, name),
        Decision::Forbidden(reason) => Error::forbidden(reason),
    };
    record_denial(app, ctx, action, target, object);
    Err(error)
}

/// Checks the name of a user that the caller may see. It becomes part of a namespace.
fn check_user_name(ctx: &RequestContext, target: Target<'_>) -> Result<()> {
    match target {
        Target::User(user) if user != ctx.caller.user && user.parse::<UserName>().is_err() => {
            Err(Error::not_found("user", user))
        }
        Target::User(_) | Target::Cluster => Ok(()),
    }
}

/// Checks that a user exists, before something is created for them.
fn check_user_exists(app: &App, user: &str) -> Result<()> {
    app.cluster.users.get("", user).map(drop).ok_or_else(|| Error::not_found("user", user))
}

/// Checks the permission for the objects of one user.
fn authorize_user(app: &App, ctx: &RequestContext, action: Action, user: &str, object: (&str, &str)) -> Result<()> {
    authorize(app, ctx, action, Target::User(user), object)
}

/// Checks the permission for a list of all users.
fn authorize_all(app: &App, ctx: &RequestContext, action: Action) -> Result<()> {
    authorize(app, ctx, action, Target::Cluster, ("objects", "all"))
}

/// Checks the permission for a list, of one user or of all that the caller sees.
fn authorize_list(app: &App, ctx: &RequestContext, action: Action, user: Option<&str>) -> Result<()> {
    match user {
        Some(user) => authorize_user(app, ctx, action, user, ("user", user)),
        None => authorize_user(app, ctx, action, &ctx.caller.user, ("user", &ctx.caller.user)),
    }
}

/// Waits until the caller of a stream is not accepted any more, or has another role. A part of the service that is unavailable
/// does not end streams.
async fn wait_until_rejected(app: App, ctx: RequestContext) {
    loop {
        tokio::time::sleep(STREAM_CHECK_INTERVAL).await;
        match app.authenticator.authenticate(ctx.credential.as_str(), &app.cluster.users).await {
            Ok(caller) if caller == ctx.caller => {}
            Err(error) if !error.is_unauthenticated() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Returns the user whose objects a list contains: the named one, the caller, or none for all.
fn listed_user<'a>(ctx: &'a RequestContext, named: Option<&'a str>) -> Option<&'a str> {
    match named {
        Some(user) => Some(user),
        None if ctx.caller.sees_all_users() => None,
        None => Some(&ctx.caller.user),
    }
}

/// Records a denial in the audit log, in the background and at a limited rate, so that it neither delays the response nor
/// fills the database.
fn record_denial(app: &App, ctx: &RequestContext, action: Action, target: Target<'_>, object: (&str, &str)) {
    if !app.limits.may_record_denial(&ctx.caller.user) {
        return;
    }
    let user = match target {
        Target::User(user) => Some(user.chars().take(253).collect::<String>()),
        Target::Cluster => None,
    };
    let name: String = object.1.chars().filter(|character| *character != '\0').take(253).collect();
    let kind = object.0.to_owned();
    let (app, ctx) = (app.clone(), ctx.clone());
    tokio::spawn(async move {
        let entry = Entry {
            actor: &ctx.actor(),
            origin: &ctx.origin,
            user: user.as_deref(),
            action: action.as_str(),
            object_kind: &kind,
            object_name: &name,
            result: Outcome::Denied,
            request_id: None,
            details: serde_json::json!({}),
        };
        if let Err(error) = app.store.record(&entry).await {
            tracing::warn!(%error, "failed to record a denial");
        }
    });
}
