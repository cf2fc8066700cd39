//! Errors (RFC 9457).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An error. Clients decide by `type`, which is stable, and print `detail`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// URI of the kind of error, such as https://odc.dev/problems/not-found.
    #[serde(rename = "type")]
    pub type_uri: String,
    /// Summary of the kind of error.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What failed, why, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Id of the request, which is also in the log of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Fields that are invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldError {
    /// Path of the field, such as spec.lifetime.
    pub field: String,
    pub message: String,
}

macro_rules! problem_types {
    ($($variant:ident, $name:literal, $status:literal, $title:literal;)*) => {
        /// The kinds of errors.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemType {
            $(#[doc = $title] $variant,)*
        }

        impl ProblemType {
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the URI, which is stable.
            pub const fn uri(self) -> &'static str {
                match self { $(Self::$variant => concat!("https://odc.dev/problems/", $name),)* }
            }

            /// Returns the HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

problem_types! {
    InvalidRequest, "invalid-request", 400, "The request is malformed.";
    Unauthenticated, "unauthenticated", 401, "The request has no valid credential.";
    Forbidden, "forbidden", 403, "The caller lacks permission.";
    NotFound, "not-found", 404, "The object does not exist.";
    MethodNotAllowed, "method-not-allowed", 405, "The resource does not have this method.";
    Timeout, "timeout", 408, "The request took too long.";
    Conflict, "conflict", 409, "The state of the object does not allow this.";
    PreconditionFailed, "precondition-failed", 412, "The object was changed.";
    TooLarge, "too-large", 413, "The body is too large.";
    UnsupportedMediaType, "unsupported-media-type", 415, "The body is not JSON.";
    InvalidObject, "invalid-object", 422, "The object is invalid.";
    IdempotencyKeyReused, "idempotency-key-reused", 422, "The idempotency key was used for another request.";
    RequestRejected, "request-rejected", 422, "The cluster rejected the request.";
    RequestFailed, "request-failed", 422, "The request could not be executed.";
    UpgradeRequired, "upgrade-required", 426, "The client is too old.";
    RateLimited, "rate-limited", 429, "Too many requests.";
    Internal, "internal", 500, "The server failed.";
    NotImplemented, "not-implemented", 501, "This is not implemented yet.";
    Unavailable, "unavailable", 503, "A part of the service is unavailable.";
}

impl Problem {
    /// Returns a problem without details.
    pub fn new(kind: ProblemType) -> Self {
        Self {
            type_uri: kind.uri().to_owned(),
            title: kind.title().to_owned(),
            status: kind.status(),
            detail: None,
            request_id: None,
            errors: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn uris_are_unique() {
        let uris: BTreeSet<&str> = ProblemType::ALL.iter().map(|kind| kind.uri()).collect();
        assert_eq!(uris.len(), ProblemType::ALL.len());
    }
}
