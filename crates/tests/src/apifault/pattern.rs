//! Which requests a fault is about. Pure.

use serde::{Deserialize, Serialize};

use crate::apifault::call::{Call, Verb};

/// What is left out matches everything.
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
    /// Anywhere in the user agent.
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
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    #[must_use]
    pub fn prefixed(self, prefix: &str) -> Self {
        Self { name_prefix: Some(prefix.to_owned()), ..self }
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    #[must_use]
    pub fn from_agent(self, agent: &str) -> Self {
        Self { agent: Some(agent.to_owned()), ..self }
    }

    pub fn matches(&self, call: &Call) -> bool {
        let Self { verb, resource, namespace, name, name_prefix, agent } = self;
        verb.is_none_or(|verb| verb == call.verb)
            && resource.as_ref().is_none_or(|wanted| is_of(wanted, &call.resource))
            && namespace.as_ref().is_none_or(|namespace| *namespace == call.namespace)
            && name.as_ref().is_none_or(|name| *name == call.name)
            && name_prefix.as_ref().is_none_or(|prefix| call.name.starts_with(prefix))
            && agent.as_ref().is_none_or(|agent| call.agent.contains(agent))
    }

    /// Leases and Events count only for a pattern that names them, so that a number means the same in every run.
    pub fn matches_write(&self, call: &Call) -> bool {
        call.is_write() && self.matches(call) && (self.resource.is_some() || !call.is_routine())
    }
}

fn is_of(wanted: &str, resource: &str) -> bool {
    match wanted.strip_suffix("/*") {
        Some(whole) => resource.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        None => wanted == resource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: Verb, resource: &str, name: &str) -> Call {
        Call {
            verb,
            resource: resource.to_owned(),
            namespace: "dev-ada".to_owned(),
            name: name.to_owned(),
            agent: "odc-operator/0.1".to_owned(),
            dry_run: false,
        }
    }

    #[test]
    fn an_empty_pattern_matches_everything_but_counts_no_routine_writes() {
        let all = Pattern::default();
        assert!(all.matches(&call(Verb::Watch, "pods", "")));
        assert!(all.matches_write(&call(Verb::Patch, "pods/status", "one")));
        assert!(!all.matches_write(&call(Verb::Get, "pods", "one")));
        assert!(!all.matches_write(&call(Verb::Create, "events", "one")));
        assert!(!all.matches_write(&call(Verb::Update, "leases.coordination.k8s.io", "leader")));
        let leases = Pattern::resource("leases.coordination.k8s.io");
        assert!(leases.matches_write(&call(Verb::Update, "leases.coordination.k8s.io", "leader")));
    }

    #[test]
    fn every_field_narrows() {
        let pattern =
            Pattern::verb(Verb::Create, "pods").prefixed("ada-").in_namespace("dev-ada").from_agent("operator");
        assert!(pattern.matches(&call(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.matches(&call(Verb::Delete, "pods", "ada-1")));
        assert!(!pattern.matches(&call(Verb::Create, "configmaps", "ada-1")));
        assert!(!pattern.matches(&call(Verb::Create, "pods", "bob-1")));
        assert!(!pattern.clone().in_namespace("other").matches(&call(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.clone().from_agent("gateway").matches(&call(Verb::Create, "pods", "ada-1")));
        assert!(!pattern.named("ada-2").matches(&call(Verb::Create, "pods", "ada-1")));
    }

    #[test]
    fn a_subresource_is_meant_only_when_named() {
        let status = call(Verb::Patch, "pods/status", "one");
        assert!(!Pattern::resource("pods").matches(&status));
        assert!(Pattern::resource("pods/status").matches(&status));
        assert!(Pattern::resource("pods/*").matches(&status));
        assert!(Pattern::resource("pods/*").matches(&call(Verb::Patch, "pods", "one")));
        assert!(!Pattern::resource("pods/*").matches(&call(Verb::Patch, "podsecurity", "one")));
    }
}
