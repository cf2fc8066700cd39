//! What an answer of the API server means for a request. Without I/O.

use std::time::Duration;

use kube::core::Status;
use odc_store::queue::FinishResult;

use super::decision::{fail, without_nul};

/// The result of an attempt to execute a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Finished(FinishResult),
    /// It can succeed later.
    Retry {
        after: Option<Duration>,
        message: String,
    },
}

/// What was asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read, or a change of the object in any state.
    Unconditional,
    /// A change of the object in the state that the request names, or of fields that others may own.
    Conditional,
}

/// Returns the outcome of a failed call. The message of the API server is not changed, because it says what the user can do.
pub fn classify(error: &kube::Error, call: Call) -> Outcome {
    match error {
        kube::Error::Api(status) => classify_status(status, call),
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => {
            Outcome::Finished(fail("InvalidRequest", &format!("The request cannot be sent: {}.", root_cause(error))))
        }
        // The connection failed, possibly after the API server has executed the call. It is repeated safely.
        error => retry(format!("The API server is unavailable: {}.", root_cause(error))),
    }
}

/// Returns the outcome of a call that was not answered in time.
pub fn timed_out() -> Outcome {
    retry("The API server did not answer in time.".to_owned())
}

fn classify_status(status: &Status, call: Call) -> Outcome {
    match status.code {
        // Kubernetes has not counted the objects of a new namespace yet.
        403 if status.message.contains("status unknown for quota") => retry_status(status),
        // Two writes to the same object at the same time, or to the quota of the namespace.
        409 if status.reason == "Conflict" && call == Call::Unconditional => retry_status(status),
        403 | 409 | 422 => reject(status),
        400 | 404 | 405 | 406 | 410 | 413 | 415 => Outcome::Finished(fail(reason(status), &status.message)),
        // 401 concerns the credentials of the worker, not the request.
        _ => retry_status(status),
    }
}

fn reject(status: &Status) -> Outcome {
    let message = without_nul(&status.message);
    Outcome::Finished(FinishResult::Rejected { status_code: status.code, message })
}

fn reason(status: &Status) -> &str {
    match (status.reason.as_str(), status.code) {
        ("", 404) => "NotFound",
        ("", _) => "BadRequest",
        (reason, _) => reason,
    }
}

fn retry_status(status: &Status) -> Outcome {
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds).unwrap_or_default();
    let after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
    Outcome::Retry { after, message: status.message.clone() }
}

fn retry(message: String) -> Outcome {
    Outcome::Retry { after: None, message }
}

/// Returns the innermost source, which names the cause; the outer errors only say that a request failed.
fn root_cause(error: &kube::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

/// Returns the message of the API server.
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => root_cause(error),
    }
}

/// Reports whether the object to create exists.
pub fn is_already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// Reports whether the object was changed since it was read.
pub fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "Conflict")
}

/// Reports whether the namespace of the object to create does not exist.
pub fn is_namespace_missing(error: &kube::Error) -> bool {
    let is_namespace = |status: &Status| status.details.as_ref().is_some_and(|details| details.kind == "namespaces");
    matches!(error, kube::Error::Api(status) if status.code == 404 && is_namespace(status))
}

/// Reports whether the object does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(code: u16, reason: &str, message: &str, retry_after: u32) -> kube::Error {
        let status = json!({"code": code, "reason": reason, "message": message,
            "details": {"retryAfterSeconds": retry_after}});
        kube::Error::Api(serde_json::from_value(status).unwrap())
    }

    fn is_retry(outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Retry { .. })
    }

    #[test]
    fn rejection_keeps_code_and_message_of_the_api_server() {
        for (code, reason) in [(403, "Forbidden"), (409, "AlreadyExists"), (422, "Invalid")] {
            let message = "devservers.odc.dev \"box\" is forbidden: exceeded quota";
            let outcome = classify(&error(code, reason, message, 0), Call::Unconditional);
            let expect = FinishResult::Rejected { status_code: code, message: message.to_owned() };
            assert_eq!(outcome, Outcome::Finished(expect), "{code}");
        }
    }

    #[test]
    fn invalid_calls_fail_with_the_reason_of_the_api_server() {
        for (code, reason, expect) in [
            (400, "BadRequest", "BadRequest"),
            (404, "NotFound", "NotFound"),
            (404, "", "NotFound"),
            (410, "Expired", "Expired"),
            (413, "RequestEntityTooLarge", "RequestEntityTooLarge"),
        ] {
            let outcome = classify(&error(code, reason, "no", 0), Call::Unconditional);
            assert_eq!(outcome, Outcome::Finished(fail(expect, "no")), "{code}");
        }
    }

    #[test]
    fn overload_and_outages_are_temporary() {
        for code in [401, 408, 429, 500, 502, 503, 504] {
            assert!(is_retry(&classify(&error(code, "", "later", 0), Call::Unconditional)), "{code}");
        }
        assert!(is_retry(&classify(&kube::Error::Service("connection refused".into()), Call::Conditional)));
        assert!(is_retry(&timed_out()));
    }

    #[test]
    fn retry_after_of_the_api_server_is_kept() {
        let outcome = classify(&error(429, "TooManyRequests", "later", 7), Call::Unconditional);
        assert_eq!(outcome, Outcome::Retry { after: Some(Duration::from_secs(7)), message: "later".to_owned() });
    }

    #[test]
    fn conflict_is_temporary_unless_the_request_names_a_state() {
        let message = "Operation cannot be fulfilled on resourcequotas \"odc\": the object has been modified";
        let conflict = error(409, "Conflict", message, 0);
        assert!(is_retry(&classify(&conflict, Call::Unconditional)));
        assert!(!is_retry(&classify(&conflict, Call::Conditional)));
        assert!(is_conflict(&conflict) && !is_already_exists(&conflict));
    }

    #[test]
    fn missing_namespace_differs_from_a_missing_object() {
        let not_found = |kind: &str| {
            let status = json!({"code": 404, "reason": "NotFound", "message": "no", "details": {"kind": kind}});
            is_namespace_missing(&kube::Error::Api(serde_json::from_value(status).unwrap()))
        };
        assert!(not_found("namespaces"));
        assert!(!not_found("disks"));
    }

    #[test]
    fn quota_that_is_not_counted_yet_is_temporary() {
        let message = "disks.odc.dev \"home\" is forbidden: status unknown for quota: odc";
        assert!(is_retry(&classify(&error(403, "Forbidden", message, 0), Call::Unconditional)));
    }
}
