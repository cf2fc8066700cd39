//! API keys.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{Span, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use odc_api::http::{CreateKey, CreatedKey, Key, Page, ProblemType};
use odc_core::access::{Action, Scope, Scopes};
use odc_store::audit::{Entry, Outcome};
use odc_store::key::{Created, NewKey};
use serde_json::json;

use super::{OwnerQuery, USER, authorize_user, check_user_exists};
use crate::api::App;
use crate::api::auth::{generate_key, hash_key};
use crate::api::body::{Json, JsonBody, Name, Params};
use crate::api::context::RequestContext;
use crate::api::document::{Operation, Routes};
use crate::api::error::{Error, Result};

/// The longest validity of a key, which is also the default.
const MAX_VALID_SECONDS: u64 = 90 * 24 * 60 * 60;
/// The maximum number of valid keys of a user.
pub const MAX_KEYS: u32 = 50;
/// The number of keys that are listed.
const MAX_LISTED: u32 = 500;

pub(super) fn routes() -> Routes {
    let example = json!({"description": "notebook", "scopes": ["servers:read"], "validFor": "720h"});
    Routes::default()
        .add(
            Operation::get("/keys", "listKeys", "Lists API keys, without their secrets.")
                .requires(Action::ReadKeys)
                .query(&[USER])
                .returns::<Page<Key>>(),
            list,
        )
        .add(
            Operation::post("/keys", "createKey", "Creates an API key. It is shown once.")
                .requires(Action::WriteKeys)
                .query(&[USER])
                .body::<CreateKey>(example)
                .status(201)
                .returns::<CreatedKey>(),
            create,
        )
        .add(
            Operation::delete("/keys/{id}", "revokeKey", "Revokes an API key on all replicas.")
                .requires(Action::WriteKeys)
                .query(&[USER])
                .returns_nothing(204),
            revoke,
        )
        .add(
            Operation::post(
                "/keys/{id}/rotate",
                "rotateKey",
                "Creates a key with the same scopes; the old one stays valid.",
            )
            .requires(Action::WriteKeys)
            .query(&[USER])
            .status(201)
            .returns::<CreatedKey>(),
            rotate,
        )
}

async fn list(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
) -> Result<Json<Page<Key>>> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::ReadKeys, user, ("user", user))?;
    let keys = app.store.list_keys(user, MAX_LISTED).await?;
    Ok(Json(Page { items: keys.into_iter().map(to_body).collect(), next_cursor: None }))
}

fn to_body(key: odc_store::key::Key) -> Key {
    Key {
        id: key.id,
        user: key.user,
        description: key.description,
        scopes: key.scopes,
        created_at: Time(key.created_at),
        created_by: key.created_by,
        expires_at: Time(key.expires_at),
        last_used_at: key.last_used_at.map(Time),
        revoked_at: key.revoked_at.map(Time),
    }
}

async fn create(
    State(app): State<App>,
    ctx: RequestContext,
    Params(query): Params<OwnerQuery>,
    body: JsonBody<CreateKey>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteKeys, user, ("user", user))?;
    check_user_exists(&app, user)?;
    let CreateKey { description, scopes, valid_for } = body.value;
    let scopes = match scopes {
        Some(names) => parse_scopes(&names)?,
        None => ctx.caller.scopes.iter().filter(|scope| *scope != Scope::Admin).collect(),
    };
    let seconds = valid_for.map_or(MAX_VALID_SECONDS, |valid_for| valid_for.as_std().as_secs());
    let new = NewScopedKey { user, description: &description, scopes, seconds, replaces: None };
    issue(&app, &ctx, new).await
}

fn parse_scopes(names: &[String]) -> Result<Scopes> {
    let parse = |name: &String| {
        Scope::from_name(name).ok_or_else(|| {
            let known = Scope::ALL.map(Scope::as_str).join(", ");
            Error::with_detail(ProblemType::InvalidObject, format!("unknown scope {name:?}; must be one of {known}"))
        })
    };
    names.iter().map(parse).collect::<Result<Vec<Scope>>>().map(|scopes| scopes.into_iter().collect())
}

struct NewScopedKey<'a> {
    user: &'a str,
    description: &'a str,
    scopes: Scopes,
    seconds: u64,
    replaces: Option<String>,
}

/// Creates a key with at most the scopes of the caller.
async fn issue(app: &App, ctx: &RequestContext, new: NewScopedKey<'_>) -> Result<Response> {
    if !ctx.caller.may_grant(new.scopes) {
        return Err(Error::with_detail(ProblemType::Forbidden, "a key cannot have scopes that its creator lacks"));
    }
    if new.scopes.iter().next().is_none() {
        return Err(Error::with_detail(ProblemType::InvalidObject, "scopes: at least one is required"));
    }
    if new.description.chars().count() > 128 || new.description.contains('\0') {
        return Err(Error::with_detail(ProblemType::InvalidObject, "description: at most 128 characters"));
    }
    if !(1..=MAX_VALID_SECONDS).contains(&new.seconds) {
        return Err(Error::with_detail(
            ProblemType::InvalidObject,
            "validFor: at least 1s and at most 2160h (90 days)",
        ));
    }
    let valid_for = Span::new().seconds(i64::try_from(new.seconds).unwrap_or(i64::MAX));
    let expires_at = Timestamp::now().checked_add(valid_for).map_err(|error| Error::internal(&error))?;
    let key = generate_key();
    let scopes: Vec<String> = new.scopes.iter().map(Scope::as_str).map(str::to_owned).collect();
    let stored = NewKey {
        id: key.id(),
        user: new.user,
        hash: hash_key(&key),
        description: new.description,
        scopes: &scopes,
        expires_at,
    };
    let action = if new.replaces.is_some() { "key.rotate" } else { "key.create" };
    let actor = ctx.actor();
    let entry = Entry {
        actor: &actor,
        origin: &ctx.origin,
        user: Some(new.user),
        action,
        object_kind: "ApiKey",
        object_name: key.id(),
        result: Outcome::Succeeded,
        request_id: None,
        details: json!({"scopes": scopes, "replaces": new.replaces}),
    };
    match app.store.create_key(&stored, MAX_KEYS, &entry).await? {
        Created::Created => {}
        Created::TooMany => {
            let detail = format!("user {} has {MAX_KEYS} valid keys; revoke one first", new.user);
            return Err(Error::with_detail(ProblemType::Conflict, detail));
        }
    }
    let body = CreatedKey {
        id: key.id().to_owned(),
        user: new.user.to_owned(),
        key: key.as_str().to_owned(),
        scopes,
        expires_at: Time(expires_at),
        replaces: new.replaces,
    };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

async fn revoke(
    State(app): State<App>,
    ctx: RequestContext,
    Name(id): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<StatusCode> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteKeys, user, ("key", &id))?;
    let actor = ctx.actor();
    let entry = Entry {
        actor: &actor,
        origin: &ctx.origin,
        user: Some(user),
        action: "key.revoke",
        object_kind: "ApiKey",
        object_name: &id,
        result: Outcome::Succeeded,
        request_id: None,
        details: json!({}),
    };
    if app.store.revoke_key(user, &id, &entry).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Error::not_found("key", &id))
    }
}

async fn rotate(
    State(app): State<App>,
    ctx: RequestContext,
    Name(id): Name,
    Params(query): Params<OwnerQuery>,
) -> Result<Response> {
    let user = ctx.user(query.user.as_deref());
    authorize_user(&app, &ctx, Action::WriteKeys, user, ("key", &id))?;
    let keys = app.store.list_keys(user, MAX_LISTED).await?;
    let old = keys.into_iter().find(|key| key.id == id && key.revoked_at.is_none());
    let old = old.ok_or_else(|| Error::not_found("key", &id))?;
    let scopes = old.scopes.iter().filter_map(|name| Scope::from_name(name)).collect();
    let new =
        NewScopedKey { user, description: &old.description, scopes, seconds: MAX_VALID_SECONDS, replaces: Some(id) };
    issue(&app, &ctx, new).await
}
