//! What is known about a request before its handler runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use http::request::Parts;
use odc_core::access::{Caller, Via};
use odc_store::audit::{Actor, ActorKind, Origin};
use odc_store::page::Visible;

use super::error::{Error, Result};

/// An authenticated request.
#[derive(Clone, Debug)]
pub(super) struct RequestContext(Arc<RequestData>);

#[derive(Debug)]
pub(super) struct RequestData {
    pub caller: Caller,
    pub credential: Credential,
    pub origin: Origin,
    pub client_version: Option<String>,
    pub idempotency_key: Option<String>,
    /// How long the response may wait for the result of a change.
    pub wait: Duration,
    /// Whether the response to a change should have the object after it.
    pub wants_object: bool,
    pub if_match: Option<String>,
    pub if_none_match: Option<String>,
    /// SHA-256 of method, path and query.
    pub target_hash: [u8; 32],
}

/// The credential of a caller, which streams check again.
#[derive(Clone)]
pub(super) struct Credential(String);

impl Credential {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Does not show the secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

impl RequestContext {
    pub fn new(data: RequestData) -> Self {
        Self(Arc::new(data))
    }

    /// Returns the user whose objects the request is about: the given one, or the caller.
    pub fn user<'a>(&'a self, named: Option<&'a str>) -> &'a str {
        named.unwrap_or(&self.0.caller.user)
    }

    pub fn actor(&self) -> Actor {
        let caller = &self.0.caller;
        let (kind, key_id) = match &caller.via {
            Via::ApiKey { id } => (ActorKind::ApiKey, Some(id.clone())),
            Via::Kubernetes => (ActorKind::Kubernetes, None),
        };
        Actor { name: caller.user.clone(), kind, key_id }
    }

    /// Returns whose rows to list: of one user, or of all if the caller sees them.
    pub fn visible(&self, named: Option<&str>) -> Visible {
        match named {
            Some(user) => Visible::User(user.to_owned()),
            None if self.0.caller.sees_all_users() => Visible::All,
            None => Visible::User(self.0.caller.user.clone()),
        }
    }
}

impl std::ops::Deref for RequestContext {
    type Target = RequestData;

    fn deref(&self) -> &RequestData {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Error::unauthenticated("a credential is required"))
    }
}
