//! Accepts changes: one statement stores the request, its audit entry and the message for the worker.

mod executed;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use odc_api::http::{Accepted, ProblemType, Request, RequestState};
use odc_store::request::{self, NewRequest, State};
use serde_json::Value;
use uuid::Uuid;

use super::AppState;
use super::body::Json;
use super::context::RequestContext;
use super::error::{Error, Result};
use super::resource;
use crate::message::{Message, Payload, Preconditions};

/// Pending requests of a user. The worker executes requests about one object one after the other and reads the queue in
/// order, so that the requests of one user would otherwise delay those of all others without a limit.
const MAX_PENDING: u32 = 400;
/// Seconds after which a client with too many pending requests repeats a request.
const PENDING_RETRY_SECONDS: u32 = 5;
/// The longest time that `Prefer: wait` waits.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(30);

/// Accepts a change on behalf of a user. The message is built from the id of the request. `hash` identifies what the client
/// sent.
pub(super) async fn accept(
    app: &AppState,
    ctx: &RequestContext,
    user: &str,
    hash: [u8; 32],
    build: impl Fn(Uuid) -> Message + Send + Sync,
) -> Result<Response> {
    let new_id = Uuid::now_v7();
    let message = build(new_id);
    let (action, object_kind, queue) = (message.action(), message.object_kind(), message.queue());
    let object_name = message.object_name().to_owned();
    let payload = serde_json::to_value(Payload::new(message)).map_err(|error| Error::internal(&error))?;
    let actor = ctx.actor();
    let request = NewRequest {
        id: new_id,
        user,
        actor: &actor,
        origin: &ctx.origin,
        queue,
        action,
        object_kind,
        object_name: &object_name,
        payload: &payload,
        idempotency_key: ctx.idempotency_key.as_deref(),
        body_hash: hash,
        client_version: ctx.client_version.as_deref(),
    };
    let id = match app.store.accept_within(&request, Some(MAX_PENDING)).await? {
        request::Accepted::New(id) | request::Accepted::Repeated(id) => id,
        request::Accepted::KeyReused => {
            let detail = "the idempotency key was used for a different request; use a new key";
            return Err(Error::with_detail(ProblemType::IdempotencyKeyReused, detail));
        }
        request::Accepted::TooMany => return Err(Error::rate_limited(PENDING_RETRY_SECONDS)),
    };
    let message = build(id);
    let request = app.results.wait(id, ctx.wait).await.map(to_body);
    let is_executed = request.as_ref().is_some_and(|request| request.state == RequestState::Succeeded);
    let object = if is_executed { executed::wait_for_object(app, user, id, &message).await } else { None };
    respond(ctx, id, message.object_name().to_owned(), request, object.filter(|_| ctx.wants_object))
}

/// Returns 202, or the result if the client waits and it is known in time.
fn respond(
    ctx: &RequestContext,
    id: Uuid,
    name: String,
    request: Option<Request>,
    object: Option<Value>,
) -> Result<Response> {
    let state = request.as_ref().map_or(RequestState::Pending, |request| request.state);
    let status = match (state, &request) {
        (RequestState::Rejected, Some(request)) => {
            return Err(Error::rejected(request.status_code, request.message.clone()));
        }
        (RequestState::Failed, Some(request)) => {
            return Err(Error::failed(request.reason.as_deref(), request.message.clone()));
        }
        (RequestState::Succeeded, _) => StatusCode::OK,
        _ => StatusCode::ACCEPTED,
    };
    let location = format!("/api/v1/requests/{id}");
    let value = HeaderValue::from_str(&location);
    let body = Accepted { request_id: id.to_string(), location, name, request, object };
    let mut response = (status, Json(body)).into_response();
    if let Ok(value) = value {
        response.headers_mut().insert(header::LOCATION, value);
    }
    if !ctx.wait.is_zero() {
        response.headers_mut().insert("preference-applied", HeaderValue::from_static("wait"));
    }
    Ok(response)
}

pub(super) fn to_body(request: request::Request) -> Request {
    Request {
        id: request.id.to_string(),
        user: request.user,
        actor: request.actor,
        action: request.action,
        object_kind: request.object_kind,
        object_name: request.object_name,
        state: match request.state {
            State::Pending => RequestState::Pending,
            State::Succeeded => RequestState::Succeeded,
            State::Rejected => RequestState::Rejected,
            State::Failed => RequestState::Failed,
        },
        reason: request.reason,
        message: request.message,
        status_code: request.status_code,
        created_at: Time(request.created_at),
        finished_at: request.finished_at.map(Time),
    }
}

/// Returns the preconditions of a change of an object: its uid, and the version of `If-Match`. Fails if the object does not
/// exist or has another version.
///
/// A request with an idempotency key may be a repetition, after which the object has changed. Then only the worker decides.
pub(super) fn preconditions(
    ctx: &RequestContext,
    noun: &str,
    name: &str,
    meta: Option<&ObjectMeta>,
) -> Result<Preconditions> {
    let is_repeatable = ctx.idempotency_key.is_some();
    let version = ctx.if_match.as_deref().filter(|tags| tags.trim() != "*");
    let version = version.map(|tag| tag.trim().trim_matches('"').to_owned());
    let Some(meta) = meta else {
        return if is_repeatable {
            Ok(Preconditions { uid: None, resource_version: version })
        } else {
            Err(Error::not_found(noun, name))
        };
    };
    let current = meta.resource_version.as_deref().unwrap_or_default();
    let is_current = ctx.if_match.as_deref().is_none_or(|tags| resource::contains(tags, &resource::etag(current)));
    if !is_current && !is_repeatable {
        let detail =
            format!("{noun} {name} was changed: its current version is {current}; read it and repeat the request");
        return Err(Error::with_detail(ProblemType::PreconditionFailed, detail));
    }
    let resource_version = version.map(|version| if is_current { current.to_owned() } else { version });
    // Also of a request that may be a repetition: then the preconditions of the first one are stored already.
    Ok(Preconditions { uid: meta.uid.clone(), resource_version })
}
