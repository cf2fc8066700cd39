//! Errors as problems (RFC 9457). They contain nothing about the inside of the service.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use odc_api::check::Violation;
use odc_api::http::{FieldError, PROBLEM_JSON, Problem, ProblemType};
use odc_core::access::Reason;

pub(super) type Result<T, E = Error> = std::result::Result<T, E>;

/// Seconds after which clients repeat a request that failed because a part of the service was unavailable.
const RETRY_AFTER_SECONDS: u32 = 5;

tokio::task_local! {
    /// The id of the current request, which is part of every problem.
    pub(super) static REQUEST_ID: String;
}

/// A response that reports an error.
#[derive(Debug)]
pub(super) struct Error {
    kind: ProblemType,
    detail: Option<String>,
    fields: Vec<FieldError>,
    /// Replaces the status of the kind.
    status: Option<u16>,
    retry_after: Option<u32>,
}

impl Error {
    pub fn new(kind: ProblemType) -> Self {
        Self { kind, detail: None, fields: vec![], status: None, retry_after: None }
    }

    pub fn with_detail(kind: ProblemType, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(kind) }
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::with_detail(ProblemType::InvalidRequest, detail)
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::with_detail(ProblemType::Unauthenticated, detail)
    }

    pub const fn is_unauthenticated(&self) -> bool {
        matches!(self.kind, ProblemType::Unauthenticated)
    }

    /// Returns the error for an object that does not exist or that the caller may not see. Both are the same.
    pub fn not_found(noun: &str, name: &str) -> Self {
        Self::with_detail(ProblemType::NotFound, format!("{noun} {name} not found"))
    }

    pub fn forbidden(reason: Reason) -> Self {
        Self::with_detail(ProblemType::Forbidden, reason.to_string())
    }

    pub fn invalid_object(violations: Vec<Violation>) -> Self {
        let detail = violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let fields =
            violations.into_iter().map(|violation| FieldError { field: violation.path, message: violation.message });
        Self { fields: fields.collect(), ..Self::with_detail(ProblemType::InvalidObject, detail) }
    }

    pub fn rate_limited(seconds: u32) -> Self {
        let detail = format!("too many requests; repeat the request in {seconds}s");
        Self { retry_after: Some(seconds), ..Self::with_detail(ProblemType::RateLimited, detail) }
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(RETRY_AFTER_SECONDS), ..Self::with_detail(ProblemType::Unavailable, detail) }
    }

    /// Returns the error for a failure that is logged and not described to the caller.
    pub fn internal(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "failed to answer a request");
        Self::new(ProblemType::Internal)
    }

    /// Returns the error for a request that the API server rejected, with its status and message.
    pub fn rejected(status: Option<u16>, message: Option<String>) -> Self {
        let status = status.filter(|status| (400..500).contains(status));
        Self { detail: message, status, ..Self::new(ProblemType::RequestRejected) }
    }

    /// Returns the error for a request that the worker could not execute.
    pub fn failed(reason: Option<&str>, message: Option<String>) -> Self {
        let status = reason.filter(|reason| *reason == "NotFound").map(|_| 404);
        Self { detail: message, status, ..Self::new(ProblemType::RequestFailed) }
    }

    fn problem(self) -> Problem {
        let mut problem = Problem::new(self.kind);
        problem.status = self.status.unwrap_or(problem.status);
        problem.detail = self.detail;
        problem.errors = self.fields;
        problem.request_id = REQUEST_ID.try_with(Clone::clone).ok();
        problem
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after;
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<odc_store::Error> for Error {
    fn from(error: odc_store::Error) -> Self {
        if error.is_unavailable() {
            tracing::warn!(%error, "the database is unavailable");
            return Self::unavailable("the database is unavailable; repeat the request later");
        }
        Self::internal(&error)
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status)
                if (400..500).contains(&status.code) && ![401, 403, 429].contains(&status.code) =>
            {
                Self::rejected(Some(status.code), Some(status.message.clone()))
            }
            error => {
                tracing::warn!(%error, "the Kubernetes API is unavailable");
                Self::unavailable("the Kubernetes API is unavailable; repeat the request later")
            }
        }
    }
}
