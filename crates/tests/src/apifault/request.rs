//! Verb, resource and object of a Kubernetes API request, parsed from method, path, query and body.

use http::Method;
use serde::{Deserialize, Serialize};

use crate::apifault::body::Identity;

/// Verbs of the Kubernetes API.
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

/// One request as the API server interprets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    pub verb: Verb,
    /// With group and subresource, as in `pods/status` or `devservers.odc.dev`. The path of a non-resource request, as in
    /// `/version`.
    pub resource: String,
    /// Empty for cluster-scoped requests.
    pub namespace: String,
    /// Empty for collections and generated names.
    pub name: String,
    pub agent: String,
    /// The API server stores nothing.
    pub dry_run: bool,
}

/// Subresources whose creation stores nothing.
const VIRTUAL_SUBRESOURCES: [&str; 5] = ["token", "exec", "attach", "portforward", "proxy"];

impl ApiRequest {
    pub fn parse(method: &Method, path: &str, query: &str, agent: &str, body: &Identity) -> Self {
        let target = ResourcePath::parse(path);
        let mut name = target.name.to_owned();
        let collection = name.is_empty();
        let watch = parameter(query, "watch").is_some_and(|value| matches!(value, "true" | "1"));
        let verb = match *method {
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if collection => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ if watch => Verb::Watch,
            _ if collection && target.is_resource() => Verb::List,
            _ => Verb::Get,
        };
        if collection && verb == Verb::Create {
            name = body.name.clone().unwrap_or_default();
        } else if collection {
            name = selected_name(query).unwrap_or_default();
        }
        Self {
            verb,
            resource: target.full_resource(path),
            namespace: target.namespace.to_owned(),
            name,
            agent: agent.to_owned(),
            dry_run: parameter(query, "dryRun").is_some(),
        }
    }

    /// Reports whether the request stores something if it succeeds.
    pub fn is_write(&self) -> bool {
        let mutates = !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch);
        let (resource, sub) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        let review = resource.ends_with(".authorization.k8s.io") || resource.ends_with(".authentication.k8s.io");
        mutates && !self.dry_run && !review && !VIRTUAL_SUBRESOURCES.contains(&sub)
    }

    /// Reports whether the request concerns Leases or Events, which are written periodically and independently of the work.
    pub fn is_periodic(&self) -> bool {
        matches!(self.resource.as_str(), "leases.coordination.k8s.io" | "events" | "events.events.k8s.io")
    }

    /// Reports whether the response is unbounded.
    pub fn is_stream(&self) -> bool {
        self.verb == Verb::Watch || self.resource.ends_with("/log") || self.resource.ends_with("/proxy")
    }
}

/// Components of the path of an API request.
#[derive(Default)]
struct ResourcePath<'a> {
    group: &'a str,
    namespace: &'a str,
    resource: &'a str,
    name: &'a str,
    sub: &'a str,
}

impl<'a> ResourcePath<'a> {
    fn parse(path: &'a str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] => ("", rest),
            ["apis", group, _version, rest @ ..] => (*group, rest),
            _ => return Self::default(),
        };
        let (namespace, rest) = match rest {
            // The namespace resource itself, with its own subresources.
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                return Self { group, namespace: name, resource: "namespaces", name, sub };
            }
            ["namespaces", name] => return Self { group, namespace: name, resource: "namespaces", name, sub: "" },
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |index: usize| rest.get(index).copied().unwrap_or_default();
        Self { group, namespace, resource: part(0), name: part(1), sub: part(2) }
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

/// Returns the first value of a query parameter, not decoded.
pub fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').filter_map(|pair| pair.split_once('=')).find_map(|(key, value)| (key == name).then_some(value))
}

/// Returns the name in the field selector of a list or watch of one object.
fn selected_name(query: &str) -> Option<String> {
    let selector = parameter(query, "fieldSelector")?.replace("%3D", "=").replace("%3d", "=");
    selector.strip_prefix("metadata.name=").map(|name| name.trim_start_matches('=').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> ApiRequest {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let body = Identity { name: Some("from-body".to_owned()), ..Identity::default() };
        ApiRequest::parse(&method.parse().unwrap(), path, query, "operator", &body)
    }

    fn check(method: &str, uri: &str, expected: (Verb, &str, &str, &str)) {
        let request = request(method, uri);
        let found = (request.verb, request.resource.as_str(), request.namespace.as_str(), request.name.as_str());
        assert_eq!(found, expected, "{method} {uri}");
    }

    #[test]
    fn path_parses_into_verb_resource_namespace_and_name() {
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
    fn namespace_path_is_a_resource() {
        check("GET", "/api/v1/namespaces", (Verb::List, "namespaces", "", ""));
        check("DELETE", "/api/v1/namespaces/dev-ada", (Verb::Delete, "namespaces", "dev-ada", "dev-ada"));
        check("PUT", "/api/v1/namespaces/a/finalize", (Verb::Update, "namespaces/finalize", "a", "a"));
    }

    #[test]
    fn non_resource_request_keeps_its_path() {
        check("GET", "/version", (Verb::Get, "/version", "", ""));
        check("GET", "/apis/odc.dev/v1alpha1", (Verb::Get, "/apis/odc.dev/v1alpha1", "", ""));
    }

    #[test]
    fn watch_with_a_name_selector_has_the_name() {
        let uri = "/api/v1/namespaces/a/pods?watch=true&fieldSelector=metadata.name%3Done";
        check("GET", uri, (Verb::Watch, "pods", "a", "one"));
    }

    #[test]
    fn only_requests_that_store_are_writes() {
        assert!(request("PATCH", "/api/v1/namespaces/a/pods/one/status").is_write());
        assert!(request("POST", "/api/v1/namespaces/a/pods/one/eviction").is_write());
        for (method, uri) in [
            ("GET", "/api/v1/pods"),
            ("POST", "/api/v1/namespaces/a/pods?dryRun=All"),
            ("POST", "/api/v1/namespaces/a/pods/one/exec"),
            ("POST", "/api/v1/namespaces/a/serviceaccounts/one/token"),
            ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
        ] {
            assert!(!request(method, uri).is_write(), "{method} {uri}");
        }
    }
}
