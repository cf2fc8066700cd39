//! Selection of the requests that a fault counts.

use serde::{Deserialize, Serialize};

use crate::apifault::request::{ApiRequest, Verb};

/// Matches requests. An omitted field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pattern {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<Verb>,
    /// As in `configmaps`, `devservers.odc.dev` or `pods/status`; `pods/*` is the resource with all its subresources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_prefix: Option<String>,
    /// Substring of the user agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Pattern {
    pub fn resource(resource: &str) -> Self {
        Self { resource: Some(resource.to_owned()), ..Self::default() }
    }

    pub fn verb(verb: Verb, resource: &str) -> Self {
        Self { verb: Some(verb), ..Self::resource(resource) }
    }

    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    #[must_use]
    pub fn with_name_prefix(self, prefix: &str) -> Self {
        Self { name_prefix: Some(prefix.to_owned()), ..self }
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    #[must_use]
    pub fn with_agent(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }

    pub fn matches(&self, request: &ApiRequest) -> bool {
        let Self { verb, resource, namespace, name, name_prefix, agent } = self;
        verb.is_none_or(|verb| verb == request.verb)
            && resource.as_ref().is_none_or(|pattern| matches_resource(pattern, &request.resource))
            && namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && name.as_ref().is_none_or(|name| *name == request.name)
            && name_prefix.as_ref().is_none_or(|prefix| request.name.starts_with(prefix))
            && agent.as_ref().is_none_or(|agent| request.agent.contains(agent))
    }

    /// Like [`Self::matches`], for writes. Leases and Events count only if the pattern names the resource, so that numbers are
    /// the same in every run.
    pub fn matches_write(&self, request: &ApiRequest) -> bool {
        request.is_write() && self.matches(request) && (self.resource.is_some() || !request.is_periodic())
    }
}

fn matches_resource(pattern: &str, resource: &str) -> bool {
    match pattern.strip_suffix("/*") {
        Some(whole) => resource.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        None => pattern == resource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: Verb, resource: &str, name: &str) -> ApiRequest {
        ApiRequest {
            verb,
            resource: resource.to_owned(),
            namespace: "dev-ada".to_owned(),
            name: name.to_owned(),
            agent: "odc-operator/0.1".to_owned(),
            dry_run: false,
        }
    }

    #[test]
    fn empty_pattern_matches_all_requests_but_no_periodic_writes() {
        let all = Pattern::default();
        assert!(all.matches(&request(Verb::Watch, "pods", "")));
        assert!(all.matches_write(&request(Verb::Patch, "pods/status", "one")));
        assert!(!all.matches_write(&request(Verb::Get, "pods", "one")));
        assert!(!all.matches_write(&request(Verb::Create, "events", "one")));
        assert!(!all.matches_write(&request(Verb::Update, "leases.coordination.k8s.io", "leader")));
        let leases = Pattern::resource("leases.coordination.k8s.io");
        assert!(leases.matches_write(&request(Verb::Update, "leases.coordination.k8s.io", "leader")));
    }

    #[test]
    fn every_field_restricts_the_pattern() {
        let pattern =
            Pattern::verb(Verb::Create, "pods").with_name_prefix("ada-").in_namespace("dev-ada").with_agent("operator");
        assert!(pattern.matches(&request(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.matches(&request(Verb::Delete, "pods", "ada-1")));
        assert!(!pattern.matches(&request(Verb::Create, "configmaps", "ada-1")));
        assert!(!pattern.matches(&request(Verb::Create, "pods", "bob-1")));
        assert!(!pattern.clone().in_namespace("other").matches(&request(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.clone().with_agent("gateway").matches(&request(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.with_name("ada-2").matches(&request(Verb::Create, "pods", "ada-1")));
    }

    #[test]
    fn subresource_matches_only_if_the_pattern_names_it() {
        let status = request(Verb::Patch, "pods/status", "one");
        assert!(!Pattern::resource("pods").matches(&status));
        assert!(Pattern::resource("pods/status").matches(&status));
        assert!(Pattern::resource("pods/*").matches(&status));
        assert!(Pattern::resource("pods/*").matches(&request(Verb::Patch, "pods", "one")));
        assert!(!Pattern::resource("pods/*").matches(&request(Verb::Patch, "podsecurity", "one")));
    }
}
