//! What the API server said, in words for people.

use ::kube::core::Status;
use ::kube::core::response::StatusCause;
use ::kube::runtime::watcher;

use crate::backend::Place;
use crate::failure::{Failure, Kind, chain};

/// What a refused or broken request means.
pub fn failure(place: &Place, error: ::kube::Error) -> Failure {
    use ::kube::Error;
    match error {
        Error::Api(status) => refused(place, &status),
        Error::Auth(error) => Failure::denied(format!("logging in to {} failed: {}", place.context, chain(&error)))
            .advise("Renew your login (the kubeconfig names the program that does), then try again."),
        Error::SerdeError(error) => Failure::failed(format!("the cluster's answer cannot be understood: {error}"))
            .advise("Is this devctl older than the cluster? `devctl version` says which it is."),
        Error::UpgradeConnection(error) => {
            Failure::failed(format!("no tunnel through {}: {}", place.address, chain(&error)))
                .advise("A proxy in between may not let WebSockets through; see the kubeconfig's proxy-url.")
        }
        error @ (Error::HyperError(_) | Error::Service(_) | Error::ReadEvents(_)) => {
            Failure::failed(format!("{} cannot be reached: {}", place.address, cause(&error)))
                .advise(format!("Check the network, and that context {} is the one you mean.", place.context))
        }
        error => Failure::failed(chain(&error)).advise("Check the kubeconfig, then try again."),
    }
}

/// The innermost cause says what happened; what wraps it only says that something did.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

/// What a watch that cannot go on means; nothing for those that a new connection mends.
pub fn lost_watch(place: &Place, error: watcher::Error) -> Result<String, Failure> {
    use watcher::Error;
    let text = cause(&error);
    match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) => match failure(place, error) {
            failure if matches!(failure.kind, Kind::Denied | Kind::NotFound | Kind::Usage) => Err(failure),
            failure => Ok(failure.message),
        },
        Error::WatchError(_) | Error::WatchFailed(_) | Error::NoResourceVersion => Ok(text),
    }
}

fn refused(place: &Place, status: &Status) -> Failure {
    let message = forbidden(&status.message).unwrap_or_else(|| plain(&status.message));
    match (status.code, status.reason.as_str()) {
        (401, _) => Failure::denied(format!("{} does not know you", place.context))
            .advise("Your login has run out, or the kubeconfig is another cluster's: get a new one."),
        (403, _) if place.owner.is_none() => Failure::denied(message).advise(format!(
            "Servers live in a namespace like dev-ada, and this is {}: name yours with --namespace.",
            place.namespace
        )),
        // What somebody gets who was let into a server and tries to reach it.
        (403, _) if message.starts_with("you may not get servers") => Failure::denied(message).advise(
            "Through the Kubernetes API only their owner reaches servers; others who were let in need another way to \
             them. Your own are in your own namespace: devctl config contexts.",
        ),
        (403, _) => {
            Failure::denied(message).advise("Ask your administrator, or use another context: devctl config contexts.")
        }
        (404, _) if status.details.as_ref().is_none_or(|details| details.name.is_empty()) => {
            Failure::not_found(format!("{} has no ODC, or a newer one", place.context))
                .advise("Is it the cluster you mean? devctl config contexts; to install ODC there: docs/operate.md.")
        }
        (404, _) => Failure::not_found(message).advise("devctl list shows what there is."),
        (409, _) => Failure::conflict(message).advise("Somebody else changed it at the same time: try again."),
        (422, _) => invalid(status, message),
        (429 | 503, _) => {
            Failure::failed(format!("{} is overloaded: {message}", place.context)).advise("Try again in a minute.")
        }
        (504, _) => Failure::timeout(message).advise("Try again."),
        _ => Failure::failed(message).advise("Try again; if it stays so, ask your administrator."),
    }
}

/// A request that the rules of its kind forbid. What has ended cannot be changed: that is the state of things, not a
/// mistake in what was typed.
fn invalid(status: &Status, message: String) -> Failure {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    // These are forbidden by what a server is at, the others whatever it is at.
    let of_state =
        |field: &str| matches!(field.trim_matches('.'), "spec" | "spec.desired" | "spec.lifetime" | "status.phase");
    let ended = |cause: &StatusCause| cause.reason == "FieldValueForbidden" && of_state(&cause.field);
    let said: Vec<String> = causes.iter().map(|cause| rule(&cause.field, &cause.message)).collect();
    let message = if said.is_empty() { message } else { said.join("; ") };
    if causes.iter().any(ended) {
        Failure::conflict(message).advise("devctl show says how it is; devctl create makes a new one.")
    } else {
        Failure::usage(message).advise("Say it otherwise and try again; --help shows what can be said.")
    }
}

/// `Invalid value: "object": words` → `field: words`: what was sent is known to whoever sent it.
fn rule(field: &str, message: &str) -> String {
    let words = match message.strip_prefix("Invalid value: ").or_else(|| message.strip_prefix("Forbidden: ")) {
        Some(rest) => rest.split_once(": ").map_or(rest, |(_, words)| words),
        None => message,
    };
    let field = field.trim_matches('.');
    if field.is_empty() { words.to_owned() } else { format!("{field}: {words}") }
}

/// `… User "x" cannot list resource "devservers" in API group "odc.dev" in the namespace "dev-bob"` → `you may not list
/// servers in dev-bob`: who one is one knows, and groups are for machines.
fn forbidden(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let resource = match resource {
        "devservers" => "servers",
        "devserverflavors" => "flavors",
        "devserverusers" => "users",
        other => other,
    };
    let place = rest.split_once("namespace \"").and_then(|(_, rest)| rest.split_once('"'));
    let place = place.map_or_else(|| "in this cluster".to_owned(), |(namespace, _)| format!("in {namespace}"));
    Some(format!("you may not {verb} {resource} {place}"))
}

/// `devservers.odc.dev "box" is forbidden: …` → `server "box" is forbidden: …`.
fn plain(message: &str) -> String {
    let kinds = [
        ("devservers.odc.dev", "server"),
        ("devserverflavors.odc.dev", "flavor"),
        ("devserverusers.odc.dev", "user"),
        ("teams.odc.dev", "team"),
    ];
    kinds.iter().fold(message.to_owned(), |text, (kind, word)| text.replace(kind, word))
}

/// A failure about one thing, when it is not there.
pub fn said_about(failure: Failure, thing: &str) -> Failure {
    if failure.kind == Kind::NotFound {
        Failure { message: format!("there is no {thing}"), ..failure }
    } else {
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: &str) -> Place {
        Place {
            context: "work".into(),
            address: "https://api".into(),
            namespace: namespace.into(),
            owner: odc_api::namespace::owner(namespace).map(String::from),
        }
    }

    fn status(code: u16, message: &str, causes: &[(&str, &str, &str)]) -> Failure {
        let causes: Vec<_> = causes
            .iter()
            .map(|(reason, field, message)| serde_json::json!({"reason": reason, "field": field, "message": message}))
            .collect();
        let status =
            serde_json::json!({"code": code, "message": message, "details": {"name": "box", "causes": causes}});
        failure(&place("dev-ada"), ::kube::Error::Api(Box::new(serde_json::from_value(status).unwrap())))
    }

    #[test]
    fn codes_become_kinds() {
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
            assert!(status(code, "no", &[]).advice.is_some(), "{code}");
        }
    }

    #[test]
    fn a_broken_rule_is_said_without_what_was_sent() {
        let cause = ("FieldValueInvalid", "spec.lifetime", "Invalid value: \"string\": give a lifetime above zero");
        let failure = status(422, "long", &[cause]);
        assert_eq!((failure.kind, &failure.message[..]), (Kind::Usage, "spec.lifetime: give a lifetime above zero"));
    }

    #[test]
    fn what_has_ended_is_a_conflict() {
        let cause = ("FieldValueForbidden", "spec", "Forbidden: this server has ended");
        assert_eq!(status(422, "long", &[cause]).kind, Kind::Conflict);
        let cause = ("FieldValueForbidden", "spec.env[0].name", "Forbidden: names that begin with ODC_ are taken");
        assert_eq!(status(422, "long", &[cause]).kind, Kind::Usage);
    }

    #[test]
    fn who_may_not_is_told_what() {
        let message = "devservers.odc.dev is forbidden: User \"system:x\" cannot list resource \"devservers\" in API group \"odc.dev\" in the namespace \"dev-bob\"";
        assert_eq!(status(403, message, &[]).message, "you may not list servers in dev-bob");
        let message =
            "x is forbidden: User \"u\" cannot list resource \"teams\" in API group \"odc.dev\" at the cluster scope";
        assert_eq!(status(403, message, &[]).message, "you may not list teams in this cluster");
    }

    #[test]
    fn a_namespace_that_is_nobodys_is_named() {
        let refused = serde_json::json!({"code": 403, "message": "devservers.odc.dev is forbidden"});
        let error = ::kube::Error::Api(Box::new(serde_json::from_value(refused).unwrap()));
        let failure = failure(&place("default"), error);
        assert_eq!(failure.message, "server is forbidden");
        assert!(failure.advice.unwrap().contains("--namespace"));
    }
}
