//! Conversion of problems (RFC 9457). A message of the Kubernetes API that the worker forwarded becomes the same error as in
//! the backend `kube`.

mod cluster_message;

use ::http::StatusCode;
use odc_api::http::{Problem, ProblemType};

use crate::client::{ObjectKind, Target, status};
use crate::error::{Error, Kind};

const DENIED_HINT: &str = "ask your administrator, or choose another context (`devctl config contexts`)";
const RETRY_HINT: &str = "try again in a minute";
const UNEXPECTED_HINT: &str = "try again, or ask your administrator";

/// Converts the body of a response with the status of an error.
pub fn to_error(url: &str, status: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => from_problem(url, &problem),
        // From a proxy, or not from the API of ODC.
        Err(_) => match status.as_u16() {
            429 | 502..=504 => Error::failed(format!("{url} is unavailable ({status})")).with_hint(RETRY_HINT),
            _ => Error::failed(format!("unexpected response from {url}: {status}"))
                .with_hint("check the URL of the API and the proxy settings"),
        },
    }
}

fn from_problem(url: &str, problem: &Problem) -> Error {
    let detail = problem.detail.clone().unwrap_or_else(|| problem.title.trim_end_matches('.').to_owned());
    match kind(problem) {
        Some(ProblemType::RequestRejected) => from_cluster(url, problem.status, &detail),
        Some(ProblemType::RequestFailed) if problem.status == 404 => from_cluster(url, 404, &detail),
        Some(ProblemType::RequestFailed) => {
            Error::failed(format!("the request was not executed: {detail}")).with_hint(UNEXPECTED_HINT)
        }
        Some(ProblemType::InvalidObject) => {
            let fields: Vec<String> =
                problem.errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect();
            let message = if fields.is_empty() { detail } else { fields.join("; ") };
            Error::usage(message).with_hint("correct the value; see `--help` for the accepted formats")
        }
        Some(ProblemType::Unauthenticated) => Error::denied(format!("authentication to {url} failed: {detail}"))
            .with_hint("check the API key: DEVCTL_API_KEY, or the key of the context"),
        Some(ProblemType::Forbidden) => Error::denied(format!("permission denied: {detail}")).with_hint(DENIED_HINT),
        Some(ProblemType::NotFound) => Error::not_found(detail).with_hint("run `devctl list` to see your servers"),
        Some(ProblemType::Conflict | ProblemType::PreconditionFailed) => {
            Error::conflict(detail).with_hint("the object was changed concurrently; try again")
        }
        Some(ProblemType::Timeout) => Error::timeout(detail).with_hint("try again"),
        Some(ProblemType::UpgradeRequired) => {
            Error::failed(detail).with_hint("install the current version of devctl; `devctl version` prints yours")
        }
        Some(ProblemType::RateLimited | ProblemType::Unavailable) => {
            Error::failed(format!("{url} is unavailable: {detail}")).with_hint(RETRY_HINT)
        }
        Some(ProblemType::Internal) => {
            let id = problem.request_id.as_deref().unwrap_or("unknown");
            Error::failed(format!("{url} failed to answer the request {id}"))
                .with_hint("try again; give the id of the request to your administrator if it happens again")
        }
        Some(
            ProblemType::InvalidRequest
            | ProblemType::MethodNotAllowed
            | ProblemType::TooLarge
            | ProblemType::UnsupportedMediaType
            | ProblemType::IdempotencyKeyReused
            | ProblemType::NotImplemented,
        )
        | None => Error::new(kind_of_status(problem.status), detail).with_hint(UNEXPECTED_HINT),
    }
}

/// Returns the type of a problem, if this version of devctl knows it.
fn kind(problem: &Problem) -> Option<ProblemType> {
    ProblemType::ALL.iter().copied().find(|kind| kind.uri() == problem.type_uri)
}

/// Returns the kind of an error of an unknown type.
const fn kind_of_status(status: u16) -> Kind {
    match status {
        401 | 403 => Kind::Denied,
        404 => Kind::NotFound,
        409 | 412 => Kind::Conflict,
        408 => Kind::Timeout,
        _ => Kind::Failed,
    }
}

/// Converts a message of the Kubernetes API.
fn from_cluster(url: &str, code: u16, message: &str) -> Error {
    let target = Target {
        context: url.to_owned(),
        is_named: false,
        address: url.to_owned(),
        namespace: String::new(),
        // The worker has the permissions, so a rejection says nothing about the namespace.
        owner: Some(String::new()),
    };
    status::from_status(&target, &cluster_message::to_status(code, message))
}

/// Converts the conflict of a manifest with other field managers.
pub fn field_conflict(kind: ObjectKind, name: &str, error: Error) -> Error {
    match cluster_message::field_conflicts(&error.message) {
        Some(status) => status::field_conflict(kind, name, &status),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use odc_api::http::FieldError;

    use super::*;

    const URL: &str = "https://odc";

    fn error(kind: ProblemType, status: Option<u16>, detail: &str) -> Error {
        let mut problem = Problem::new(kind);
        problem.status = status.unwrap_or(problem.status);
        problem.detail = Some(detail.to_owned());
        from_problem(URL, &problem)
    }

    #[test]
    fn every_type_has_a_kind_and_a_hint() {
        let kinds = [
            (ProblemType::InvalidRequest, Kind::Failed),
            (ProblemType::Unauthenticated, Kind::Denied),
            (ProblemType::Forbidden, Kind::Denied),
            (ProblemType::NotFound, Kind::NotFound),
            (ProblemType::MethodNotAllowed, Kind::Failed),
            (ProblemType::Timeout, Kind::Timeout),
            (ProblemType::Conflict, Kind::Conflict),
            (ProblemType::PreconditionFailed, Kind::Conflict),
            (ProblemType::TooLarge, Kind::Failed),
            (ProblemType::UnsupportedMediaType, Kind::Failed),
            (ProblemType::InvalidObject, Kind::Usage),
            (ProblemType::IdempotencyKeyReused, Kind::Failed),
            (ProblemType::RequestRejected, Kind::Usage),
            (ProblemType::RequestFailed, Kind::Failed),
            (ProblemType::UpgradeRequired, Kind::Failed),
            (ProblemType::RateLimited, Kind::Failed),
            (ProblemType::Internal, Kind::Failed),
            (ProblemType::NotImplemented, Kind::Failed),
            (ProblemType::Unavailable, Kind::Failed),
        ];
        assert_eq!(kinds.len(), ProblemType::ALL.len());
        for (problem, kind) in kinds {
            let error = error(problem, None, "no");
            assert_eq!(error.kind, kind, "{problem:?}");
            assert!(error.hint.is_some(), "{problem:?}");
        }
    }

    #[test]
    fn rejection_by_the_cluster_is_the_error_of_the_kubernetes_api() {
        let quota = r#"devservers.odc.dev "box" is forbidden: exceeded quota: odc"#;
        let denied = error(ProblemType::RequestRejected, Some(403), quota);
        assert_eq!(
            (denied.kind, &denied.message[..]),
            (Kind::Denied, r#"server "box" is forbidden: exceeded quota: odc"#)
        );
        let ended = r#"DevServer.odc.dev "box" is invalid: spec: Forbidden: the server has ended"#;
        let ended = error(ProblemType::RequestRejected, Some(422), ended);
        assert_eq!((ended.kind, &ended.message[..]), (Kind::Conflict, "spec: the server has ended"));
        let exists = error(ProblemType::RequestRejected, Some(409), r#"devservers.odc.dev "box" already exists"#);
        assert_eq!((exists.kind, &exists.message[..]), (Kind::Conflict, r#"server "box" already exists"#));
        let missing = error(ProblemType::RequestFailed, Some(404), r#"devservers.odc.dev "box" not found"#);
        assert_eq!((missing.kind, &missing.message[..]), (Kind::NotFound, r#"server "box" not found"#));
    }

    #[test]
    fn invalid_fields_are_listed_as_in_the_backend_kube() {
        let field = |field: &str| FieldError { field: field.to_owned(), message: "required".to_owned() };
        let problem = Problem { errors: vec![field("a"), field("b")], ..Problem::new(ProblemType::InvalidObject) };
        assert_eq!(from_problem(URL, &problem).message, "a: required; b: required");
    }

    #[test]
    fn response_of_a_proxy_names_the_status() {
        let error = to_error(URL, StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(error.message, "https://odc is unavailable (502 Bad Gateway)");
        let error = to_error(URL, StatusCode::NOT_FOUND, b"<html>");
        assert_eq!(
            (error.kind, &error.message[..]),
            (Kind::Failed, "unexpected response from https://odc: 404 Not Found")
        );
    }

    #[test]
    fn problem_of_a_newer_api_keeps_its_status() {
        let problem = Problem {
            type_uri: "https://odc.dev/problems/new".to_owned(),
            status: 403,
            detail: Some("no".to_owned()),
            ..Problem::new(ProblemType::Internal)
        };
        let error = from_problem(URL, &problem);
        assert_eq!((error.kind, &error.message[..]), (Kind::Denied, "no"));
    }
}
