//! What a request asks for, read from its method, path, query and body. Pure.

use http::Method;
use serde::{Deserialize, Serialize};

use crate::apifault::object::Identity;

/// The words Kubernetes has for what is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    Get,
    List,
    Watch,
}

/// One request in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// With group and subresource, as in `pods/status` or `devservers.odc.dev`. A path that is no resource stands here
    /// as it is, as in `/version`.
    pub resource: String,
    /// Empty for what is in no namespace.
    pub namespace: String,
    /// Empty where many are meant, or where the API server is to choose.
    pub name: String,
    pub agent: String,
    /// Only tried: the API server stores nothing.
    pub dry_run: bool,
}

/// Creating one of these stores nothing: it asks a question or opens a connection.
const NEVER_STORED: [&str; 5] = ["token", "exec", "attach", "portforward", "proxy"];

impl Call {
    pub fn read(method: &Method, path: &str, query: &str, agent: &str, stated: &Identity) -> Self {
        let place = Place::read(path);
        let mut name = place.name.to_owned();
        let many = name.is_empty();
        let watched = parameter(query, "watch").is_some_and(|value| matches!(value, "true" | "1"));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if many => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ if watched => Verb::Watch,
            _ if many && place.is_resource() => Verb::List,
            _ => Verb::Get,
        };
        if many && verb == Verb::Create {
            name = stated.name.clone().unwrap_or_default();
        } else if many {
            name = selected_name(query).unwrap_or_default();
        }
        Self {
            verb,
            resource: place.full_resource(path),
            namespace: place.namespace.to_owned(),
            name,
            agent: agent.to_owned(),
            dry_run: parameter(query, "dryRun").is_some(),
        }
    }

    /// Whether the API server stores something when it agrees.
    pub fn is_write(&self) -> bool {
        let mutates = !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch);
        let (resource, sub) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let review = resource.ends_with(".authorization.k8s.io") || resource.ends_with(".authentication.k8s.io");
        mutates && !self.dry_run && !review && !NEVER_STORED.contains(&sub)
    }

    /// Leases and Events are written all the time, by the clock and not by what is to be done.
    pub fn is_routine(&self) -> bool {
        matches!(self.resource.as_str(), "leases.coordination.k8s.io" | "events" | "events.events.k8s.io")
    }

    /// The answer has no end, or none worth waiting for.
    pub fn is_stream(&self) -> bool {
        self.verb == Verb::Watch || self.resource.ends_with("/log") || self.resource.ends_with("/proxy")
    }
}

/// The parts of a path.
#[derive(Default)]
struct Place<'a> {
    group: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    sub: &'a str,
}

impl<'a> Place<'a> {
    fn read(path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return Self::default(),
        };
        let (namespace, rest) = match rest {
            // A namespace is a resource itself, and has these two of its own.
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                return Self { group, namespace: name, resource: "namespaces", name, sub };
            }
            ["namespaces", name] => return Self { group, namespace: name, resource: "namespaces", name, sub: "" },
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let at = |index: usize| rest.get(index).copied().unwrap_or_default();
        Self { group, namespace, resource: at(0), name: at(1), sub: at(2) }
    }

    fn is_resource(&self) -> bool {
        !self.resource.is_empty()
    }

    fn full_resource(&self, path: &str) -> String {
        let Self { group, resource, sub, .. } = self;
        match (group.is_empty(), sub.is_empty()) {
            _ if !self.is_resource() => path.to_owned(),
            (true, true) => (*resource).to_owned(),
            (true, false) => format!("{resource}/{sub}"),
            (false, true) => format!("{resource}.{group}"),
            (false, false) => format!("{resource}.{group}/{sub}"),
        }
    }
}

/// The first value of a parameter, as it was sent.
pub fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find_map(|(key, value)| (key == name).then_some(value))
}

/// A list or watch of one object by its name is about this object.
fn selected_name(query: &str) -> Option<String> {
    let selector = parameter(query, "fieldSelector")?.replace("%3D", "=").replace("%3d", "=");
    selector.strip_prefix("metadata.name=").map(|name| name.trim_start_matches('=').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, uri: &str) -> Call {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let stated = Identity { name: Some("from-body".to_owned()), ..Identity::default() };
        Call::read(&method.parse().unwrap(), path, query, "operator", &stated)
    }

    fn check(method: &str, uri: &str, expect: (Verb, &str, &str, &str)) {
        let call = call(method, uri);
        let found = (call.verb, call.resource.as_str(), call.namespace.as_str(), call.name.as_str());
        assert_eq!(found, expect, "{method} {uri}");
    }

    #[test]
    fn paths_are_read_as_the_api_server_reads_them() {
        let maps = "/api/v1/namespaces/dev-ada/configmaps";
        check("POST", maps, (Verb::Create, "configmaps", "dev-ada", "from-body"));
        check("DELETE", maps, (Verb::DeleteCollection, "configmaps", "dev-ada", ""));
        check("GET", maps, (Verb::List, "configmaps", "dev-ada", ""));
        check("GET", "/api/v1/configmaps?limit=500", (Verb::List, "configmaps", "", ""));
        check("GET", "/api/v1/pods?watch=true&resourceVersion=7", (Verb::Watch, "pods", "", ""));
        check("GET", "/api/v1/pods?&watch=true", (Verb::Watch, "pods", "", ""));
        let one = "/api/v1/namespaces/dev-ada/configmaps/one";
        check("PUT", one, (Verb::Update, "configmaps", "dev-ada", "one"));
        check("DELETE", one, (Verb::Delete, "configmaps", "dev-ada", "one"));
        check("GET", one, (Verb::Get, "configmaps", "dev-ada", "one"));
        let server = "/apis/odc.dev/v1alpha1/namespaces/dev-ada/devservers/one/status";
        check("PATCH", server, (Verb::Patch, "devservers.odc.dev/status", "dev-ada", "one"));
        check("GET", "/apis/odc.dev/v1alpha1/flavors/h100", (Verb::Get, "flavors.odc.dev", "", "h100"));
    }

    #[test]
    fn a_namespace_is_a_resource_too() {
        check("GET", "/api/v1/namespaces", (Verb::List, "namespaces", "", ""));
        check("DELETE", "/api/v1/namespaces/dev-ada", (Verb::Delete, "namespaces", "dev-ada", "dev-ada"));
        check("PUT", "/api/v1/namespaces/a/finalize", (Verb::Update, "namespaces/finalize", "a", "a"));
    }

    #[test]
    fn what_is_no_resource_keeps_its_path() {
        check("GET", "/version", (Verb::Get, "/version", "", ""));
        check("GET", "/apis/odc.dev/v1alpha1", (Verb::Get, "/apis/odc.dev/v1alpha1", "", ""));
    }

    #[test]
    fn a_watch_of_one_name_is_about_it() {
        let uri = "/api/v1/namespaces/a/pods?watch=true&fieldSelector=metadata.name%3Done";
        check("GET", uri, (Verb::Watch, "pods", "a", "one"));
    }

    #[test]
    fn only_what_is_stored_is_a_write() {
        assert!(call("PATCH", "/api/v1/namespaces/a/pods/one/status").is_write());
        assert!(call("POST", "/api/v1/namespaces/a/pods/one/eviction").is_write());
        for (method, uri) in [
            ("GET", "/api/v1/pods"),
            ("POST", "/api/v1/namespaces/a/pods?dryRun=All"),
            ("POST", "/api/v1/namespaces/a/pods/one/exec"),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/one/token"),
            ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ] {
            assert!(!call(method, uri).is_write(), "{method} {uri}");
        }
    }
}
