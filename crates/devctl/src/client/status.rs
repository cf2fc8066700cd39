//! Conversion of statuses of the Kubernetes API, which both backends receive.

use ::kube::core::Status;
use ::kube::core::response::StatusCause;

use crate::client::{ObjectKind, Target};
use crate::error::{Error, Kind};

/// Returns the innermost source, which names the cause; the outer errors only say that a request failed.
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

/// Reports whether a quota rejected an object because Kubernetes has not counted its kind in the namespace yet.
pub fn is_uncounted(status: &Status) -> bool {
    status.code == 403 && status.message.contains("status unknown for quota")
}

/// Converts a status of the Kubernetes API, received directly or through the HTTP API of ODC.
pub fn from_status(target: &Target, status: &Status) -> Error {
    let message = forbidden_message(&status.message).unwrap_or_else(|| humanize(&status.message));
    match (status.code, status.reason.as_str()) {
        (401, _) => Error::denied(format!("authentication to context {} failed (401 Unauthorized)", target.context))
            .with_hint("your credentials may have expired, or the kubeconfig belongs to another cluster"),
        (403, _) if target.owner.is_none() => Error::denied(message).with_hint(format!(
            "{} is not a user namespace such as dev-ada; choose yours with `--namespace`",
            target.namespace
        )),
        (403, _) if is_uncounted(status) => {
            Error::failed(message).with_hint("your namespace is not set up yet; try again in a minute")
        }
        // A user with access to a server of another namespace.
        (403, _) if message.starts_with("permission denied: cannot get servers") => Error::denied(message).with_hint(
            "only the owner reaches a server through the Kubernetes API, other users need network access to the pod; \
             run `devctl config contexts` to find your own namespace",
        ),
        (403, _) => Error::denied(message)
            .with_hint("ask your administrator, or choose another context (`devctl config contexts`)"),
        (404, _) if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => Error::not_found(format!(
            "ODC is not installed on context {}, or serves an incompatible API version",
            target.context
        ))
        .with_hint("check the context with `devctl config contexts`, or ask your administrator"),
        (404, _) => Error::not_found(message).with_hint("run `devctl list` to see your servers"),
        (409, _) => Error::conflict(message).with_hint("the object was changed concurrently; try again"),
        (422, _) => invalid(status, message),
        (429 | 503, _) => Error::failed(format!("context {} is overloaded: {message}", target.context))
            .with_hint("try again in a minute"),
        (504, _) => Error::timeout(message).with_hint("try again"),
        _ => Error::failed(message).with_hint("try again, or ask your administrator"),
    }
}

/// Converts a validation error. A change that the state of the server forbids is a conflict, not invalid usage.
fn invalid(status: &Status, message: String) -> Error {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    // These fields are forbidden in some states; all others are invalid in every state.
    let depends_on_state =
        |field: &str| matches!(field.trim_matches('.'), "spec" | "spec.desired" | "spec.lifetime" | "status.phase");
    let is_conflict = |cause: &StatusCause| cause.reason == "FieldValueForbidden" && depends_on_state(&cause.field);
    let messages: Vec<String> = causes.iter().map(|cause| cause_message(&cause.field, &cause.message)).collect();
    let message = if messages.is_empty() { message } else { messages.join("; ") };
    if causes.iter().any(is_conflict) {
        Error::conflict(message).with_hint("run `devctl show` to see the state, or `devctl create` for a new server")
    } else {
        Error::usage(message).with_hint("correct the value; see `--help` for the accepted formats")
    }
}

/// `Invalid value: "object": text` → `field: text`. The value is what the user typed.
fn cause_message(field: &str, message: &str) -> String {
    let text = match message.strip_prefix("Invalid value: ").or_else(|| message.strip_prefix("Forbidden: ")) {
        Some(rest) => rest.split_once(": ").map_or(rest, |(_, text)| text),
        None => message,
    };
    let field = field.trim_matches('.');
    if field.is_empty() { text.to_owned() } else { format!("{field}: {text}") }
}

/// `… User "x" cannot list resource "devservers" in API group "odc.dev" in the namespace "dev-bob"` → `permission
/// denied: cannot list servers in namespace dev-bob`.
fn forbidden_message(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let resource = match resource {
        "devservers" => "servers",
        "devserverflavors" => "flavors",
        "devserverusers" => "users",
        "diskoperations" => "disk operations",
        other => other,
    };
    let namespace = rest.split_once("namespace \"").and_then(|(_, rest)| rest.split_once('"'));
    let scope =
        namespace.map_or_else(|| "in this cluster".to_owned(), |(namespace, _)| format!("in namespace {namespace}"));
    Some(format!("permission denied: cannot {verb} {resource} {scope}"))
}

/// `devservers.odc.dev "box" is forbidden: …` → `server "box" is forbidden: …`.
fn humanize(message: &str) -> String {
    let kinds = [
        ("devservers.odc.dev", "server"),
        ("devserverflavors.odc.dev", "flavor"),
        ("devserverusers.odc.dev", "user"),
        ("teams.odc.dev", "team"),
        ("diskoperations.odc.dev", "disk operation"),
        ("disks.odc.dev", "disk"),
    ];
    kinds.iter().fold(message.to_owned(), |text, (kind, word)| text.replace(kind, word))
}

/// Names the object in a not-found error.
pub fn with_object(error: Error, object: &str) -> Error {
    if error.kind == Kind::NotFound { Error { message: format!("{object} not found"), ..error } } else { error }
}

/// Converts a server-side apply conflict. Each cause has the form `conflict with "kubectl" using odc.dev/v1alpha1`, with
/// a field such as `.spec.limits.total`.
pub fn field_conflict(kind: ObjectKind, name: &str, status: &Status) -> Error {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let field = |cause: &StatusCause| {
        let manager = cause.message.split('"').nth(1).unwrap_or("another field manager");
        format!("{} is owned by {manager}", cause.field.trim_matches('.'))
    };
    let fields: Vec<String> = causes.iter().map(field).collect();
    let fields = if fields.is_empty() { status.message.clone() } else { fields.join(", ") };
    Error::conflict(format!("{} {name} has fields owned by other field managers: {fields}", kind.noun()))
        .with_hint("remove these fields from the manifest, or pass `--force` to take ownership")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(namespace: &str) -> Target {
        Target {
            context: "work".into(),
            is_named: true,
            address: "https://api".into(),
            namespace: namespace.into(),
            owner: odc_api::namespace::owner(namespace).map(String::from),
        }
    }

    fn status(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> Error {
        let causes: Vec<_> = causes
            .iter()
            .map(|(reason, field, message)| serde_json::json!({"reason": reason, "field": field, "message": message}))
            .collect();
        let status =
            serde_json::json!({"code": code, "message": message, "details": {"name": "box", "causes": causes}});
        from_status(&target("dev-ada"), &serde_json::from_value(status).unwrap())
    }

    #[test]
    fn status_codes_map_to_kinds() {
        for (code, kind) in [
            (401, Kind::Denied),
            (403, Kind::Denied),
            (404, Kind::NotFound),
            (409, Kind::Conflict),
            (422, Kind::Usage),
            (500, Kind::Failed),
            (503, Kind::Failed),
            (504, Kind::Timeout),
        ] {
            assert_eq!(status(code, "no", &[]).kind, kind, "{code}");
            assert!(status(code, "no", &[]).hint.is_some(), "{code}");
        }
    }

    #[test]
    fn validation_error_omits_the_value() {
        let cause = ("FieldValueInvalid", "spec.lifetime", "Invalid value: \"string\": must be greater than zero");
        let error = status(422, "long", &[cause]);
        assert_eq!((error.kind, &error.message[..]), (Kind::Usage, "spec.lifetime: must be greater than zero"));
    }

    #[test]
    fn change_of_a_finished_server_is_a_conflict() {
        let cause = ("FieldValueForbidden", "spec", "Forbidden: the server has finished");
        assert_eq!(status(422, "long", &[cause]).kind, Kind::Conflict);
        let cause = ("FieldValueForbidden", "spec.env[0].name", "Forbidden: the prefix ODC_ is reserved");
        assert_eq!(status(422, "long", &[cause]).kind, Kind::Usage);
    }

    #[test]
    fn forbidden_request_names_verb_and_scope() {
        let message = "devservers.odc.dev is forbidden: User \"system:x\" cannot list resource \"devservers\" in API group \"odc.dev\" in the namespace \"dev-bob\"";
        assert_eq!(status(403, message, &[]).message, "permission denied: cannot list servers in namespace dev-bob");
        let message =
            "x is forbidden: User \"u\" cannot list resource \"teams\" in API group \"odc.dev\" at the cluster scope";
        assert_eq!(status(403, message, &[]).message, "permission denied: cannot list teams in this cluster");
    }

    #[test]
    fn quota_that_is_not_counted_yet_is_no_permission_error() {
        let message =
            "disks.odc.dev \"home\" is forbidden: status unknown for quota: odc, resources: count/disks.odc.dev";
        let error = status(403, message, &[]);
        assert_eq!(error.kind, Kind::Failed);
        assert!(error.hint.unwrap().contains("try again in a minute"));
        assert_eq!(status(403, "disks.odc.dev \"home\" is forbidden: exceeded quota: odc", &[]).kind, Kind::Denied);
    }

    #[test]
    fn forbidden_in_another_namespace_suggests_the_flag() {
        let status = serde_json::json!({"code": 403, "message": "devservers.odc.dev is forbidden"});
        let error = from_status(&target("default"), &serde_json::from_value(status).unwrap());
        assert_eq!(error.message, "server is forbidden");
        assert!(error.hint.unwrap().contains("--namespace"));
    }
}
