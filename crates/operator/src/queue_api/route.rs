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
    WhatIf,
}

impl Asked {
    /// Whether anything has to be known of the queue to answer.
    pub const fn is_about_the_queue(&self) -> bool {
        !matches!(self, Self::Group | Self::Resources)
    }
}

pub fn read(method: &Method, path: &str, query: Option<&str>) -> Result<Asked, Problem> {
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
        [_, "whatifs"] => Asked::WhatIf,
        _ => return Err(unknown()),
    };
    let takes = if matches!(asked, Asked::DryRun(_) | Asked::WhatIf) { Method::POST } else { Method::GET };
    if *method != takes {
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} takes {takes} only")));
    }
    if wants_to_watch(query) {
        // Whoever watches would wait for ever for what comes after a list.
        let words = "the queue cannot be watched: its places change with every request; ask again instead";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, words));
    }
    Ok(asked)
}

/// As Kubernetes reads it: the name alone means yes.
fn wants_to_watch(query: Option<&str>) -> bool {
    let mut parameters = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    parameters.any(|(name, value)| name == "watch" && !matches!(value, "0" | "false"))
}

/// A refusal as Kubernetes tells one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: StatusCode,
    pub message: String,
    /// What is not there.
    missing: Option<(&'static str, String)>,
    /// In how many seconds to ask again.
    pub retry_after: Option<u32>,
}

impl Problem {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), missing: None, retry_after: None }
    }

    pub fn missing(resource: &'static str, name: &str) -> Self {
        let message = format!("{resource}.{GROUP} \"{name}\" not found");
        Self { missing: Some((resource, name.to_owned())), ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// It would be answered a little later.
    pub fn not_now(code: StatusCode, message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(code, message) }
    }

    pub fn status(&self) -> Value {
        let reason = match self.code {
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
            StatusCode::REQUEST_TIMEOUT => "Timeout",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::INTERNAL_SERVER_ERROR => "InternalError",
            _ => "",
        };
        let mut details = serde_json::Map::new();
        if let Some((resource, name)) = &self.missing {
            details.extend(
                [("group", GROUP), ("kind", resource), ("name", name)].map(|(key, text)| (key.to_owned(), text.into())),
            );
        }
        details.extend(self.retry_after.map(|seconds| ("retryAfterSeconds".to_owned(), seconds.into())));
        json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "details": details, "code": self.code.as_u16(),
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
            resource("whatifs", "whatif", "WhatIf", false, &["create"]),
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
        let asked = |path: &str| read(&Method::GET, path, None);
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
        assert_eq!(read(&Method::POST, &dry_run, None), Ok(Asked::DryRun("dev-ada".into())));
        assert_eq!(read(&Method::POST, &format!("{v1}/whatifs"), None), Ok(Asked::WhatIf));
        assert_eq!(read(&Method::GET, &dry_run, None).unwrap_err().code, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(
            read(&Method::DELETE, &format!("{v1}/queues"), None).unwrap_err().code,
            StatusCode::METHOD_NOT_ALLOWED
        );
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
            assert_eq!(read(&Method::GET, path, None).unwrap_err().code, StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn a_watch_is_refused_and_no_list_is_taken_for_one() {
        let queues = "/apis/queue.odc.dev/v1alpha1/queues";
        for query in ["watch=true", "watch=1", "watch", "limit=5&watch=true"] {
            let refused = read(&Method::GET, queues, Some(query)).unwrap_err();
            assert_eq!(refused.code, StatusCode::METHOD_NOT_ALLOWED, "{query}");
        }
        for query in ["watch=false", "watch=0", "limit=500", "watchers=1", ""] {
            assert_eq!(read(&Method::GET, queues, Some(query)), Ok(Asked::Queues), "{query}");
        }
    }

    #[test]
    fn a_refusal_is_a_status() {
        let status = Problem::missing("queues", "x").status();
        assert_eq!(status["kind"], "Status");
        assert_eq!((&status["reason"], &status["code"]), (&json!("NotFound"), &json!(404)));
        assert_eq!(status["message"], "queues.queue.odc.dev \"x\" not found");
        assert_eq!(status["details"], json!({"group": "queue.odc.dev", "kind": "queues", "name": "x"}));
        let status = Problem::not_now(StatusCode::SERVICE_UNAVAILABLE, "not yet").status();
        assert_eq!(
            (&status["reason"], &status["details"]["retryAfterSeconds"]),
            (&json!("ServiceUnavailable"), &json!(1))
        );
    }
}
