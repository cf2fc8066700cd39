//! What is asked, from the path; and how Kubernetes wants to be answered.

use http::{Method, StatusCode};
use odc_api::queue::{API_VERSION, GROUP, VERSION};
use serde::Serialize;
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Group,
    Resources,
    Queues,
    Queue(String),
    /// Of one namespace, or of all.
    Entries(Option<String>),
    Entry {
        namespace: String,
        name: String,
    },
    Availabilities(String),
    Availability {
        namespace: String,
        flavor: String,
    },
    DryRun(String),
}

pub fn read(method: &Method, path: &str) -> Result<Asked, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("there is nothing at {path}"));
    let rest = path.trim_matches('/').strip_prefix("apis/").ok_or_else(unknown)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let (Some((group, rest)), owned) = (parts.split_first(), |text: &&str| (*text).to_owned()) else {
        return Err(unknown());
    };
    if *group != GROUP {
        return Err(unknown());
    }
    let asked = match rest {
        [] => Asked::Group,
        [version, ..] if *version != VERSION => return Err(unknown()),
        [_] => Asked::Resources,
        [_, "queues"] => Asked::Queues,
        [_, "queues", name] => Asked::Queue(owned(name)),
        [_, "queueentries"] => Asked::Entries(None),
        [_, "namespaces", namespace, "queueentries"] => Asked::Entries(Some(owned(namespace))),
        [_, "namespaces", namespace, "queueentries", name] => {
            Asked::Entry { namespace: owned(namespace), name: owned(name) }
        }
        [_, "namespaces", namespace, "availabilities"] => Asked::Availabilities(owned(namespace)),
        [_, "namespaces", namespace, "availabilities", name] => {
            Asked::Availability { namespace: owned(namespace), flavor: owned(name) }
        }
        [_, "namespaces", namespace, "dryruns"] => Asked::DryRun(owned(namespace)),
        _ => return Err(unknown()),
    };
    let takes = if matches!(asked, Asked::DryRun(_)) { Method::POST } else { Method::GET };
    if *method == takes {
        Ok(asked)
    } else {
        Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} takes {takes} only")))
    }
}

/// A refusal as Kubernetes tells one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: StatusCode,
    pub message: String,
}

impl Problem {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn status(&self) -> Value {
        let reason = match self.code {
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            _ => "",
        };
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "code": self.code.as_u16(),
        })
    }
}

pub fn group() -> Value {
    let version = json!({"groupVersion": API_VERSION, "version": VERSION});
    json!({
        "apiVersion": "v1", "kind": "APIGroup", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

pub fn resources() -> Value {
    let resource = |name: &str, singular: &str, kind: &str, namespaced: bool, verbs: &[&str]| json!({"name": name, "singularName": singular, "kind": kind, "namespaced": namespaced, "verbs": verbs});
    json!({
        "apiVersion": "v1", "kind": "APIResourceList", "groupVersion": API_VERSION,
        "resources": [
            resource("queues", "queue", "Queue", false, &["get", "list"]),
            resource("queueentries", "queueentry", "QueueEntry", true, &["get", "list"]),
            resource("availabilities", "availability", "Availability", true, &["get", "list"]),
            resource("dryruns", "dryrun", "DryRun", true, &["create"]),
        ],
    })
}

/// An object with its kind.
pub fn object(kind: &str, object: &impl Serialize) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = API_VERSION.into();
    value["kind"] = kind.into();
    Ok(value)
}

pub fn list(kind: &str, items: &[impl Serialize]) -> serde_json::Result<Value> {
    let items: Vec<Value> = items.iter().map(|item| object(kind, item)).collect::<Result<_, _>>()?;
    Ok(json!({"apiVersion": API_VERSION, "kind": format!("{kind}List"), "metadata": {}, "items": items}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_is_asked() {
        let asked = |path: &str| read(&Method::GET, path);
        let v1 = "/apis/queue.odc.dev/v1alpha1";
        assert_eq!(asked("/apis/queue.odc.dev"), Ok(Asked::Group));
        assert_eq!(asked(v1), Ok(Asked::Resources));
        assert_eq!(asked(&format!("{v1}/queues")), Ok(Asked::Queues));
        assert_eq!(asked(&format!("{v1}/queues/gpu")), Ok(Asked::Queue("gpu".into())));
        assert_eq!(asked(&format!("{v1}/queueentries")), Ok(Asked::Entries(None)));
        let entry = Asked::Entry { namespace: "dev-ada".into(), name: "box".into() };
        assert_eq!(asked(&format!("{v1}/namespaces/dev-ada/queueentries/box")), Ok(entry));
        assert_eq!(
            asked(&format!("{v1}/namespaces/dev-ada/availabilities")),
            Ok(Asked::Availabilities("dev-ada".into()))
        );
        let dry_run = format!("{v1}/namespaces/dev-ada/dryruns");
        assert_eq!(read(&Method::POST, &dry_run), Ok(Asked::DryRun("dev-ada".into())));
        assert_eq!(read(&Method::GET, &dry_run).unwrap_err().code, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(read(&Method::DELETE, &format!("{v1}/queues")).unwrap_err().code, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[test]
    fn other_paths_are_not_found() {
        for path in [
            "",
            "/",
            "/apis",
            "/apis/odc.dev",
            "/apis/queue.odc.dev/v2/queues",
            "/openapi/v2",
            "/apis/queue.odc.dev/v1alpha1/x",
        ] {
            assert_eq!(read(&Method::GET, path).unwrap_err().code, StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn a_refusal_is_a_status() {
        let status = Problem::new(StatusCode::NOT_FOUND, "there is no queue x").status();
        assert_eq!(status["kind"], "Status");
        assert_eq!(status["reason"], "NotFound");
        assert_eq!(status["code"], 404);
    }
}
