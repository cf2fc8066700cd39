//! The objects of a server, one file each. They are made from what was checked, never from the raw request.

pub mod container;
mod env;
mod gang;
mod pod;
#[cfg(test)]
mod pod_security;
mod secret;
mod security;
mod service;
pub mod size;
mod volume;

pub use pod::{Placement, pod};
pub use secret::{Keys, allowed_keys, secret};
pub use service::service;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use odc_api::{annotation, label};

use super::validate::Valid;

/// The init container that brings the agent into the pod.
pub const AGENT: &str = "odc-agent";
/// The init container that writes the user's entries.
const PREPARE: &str = "odc-accounts";
/// The server itself.
const MAIN: &str = "dev";
/// Where the agent lies in every container of the server.
const AGENT_PATH: &str = "/odc/bin/odc-agent";

pub fn is_agent(container: &str) -> bool {
    container == AGENT
}

/// The Secret of a server.
pub fn secret_name(server: &str) -> String {
    format!("{server}-keys")
}

/// What everything made for a server is labelled with.
fn labels(valid: &Valid<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (label::SERVER, valid.name.as_str()),
        (label::OWNER, valid.owner.as_str()),
        (label::FLAVOR, valid.flavor_name.as_str()),
        (label::NAME, "devserver"),
        (label::INSTANCE, valid.name.as_str()),
        (label::COMPONENT, "devserver"),
        (label::PART_OF, "odc"),
        (label::MANAGED_BY, "odc-operator"),
    ]);
    if let Some(team) = &valid.server.spec.team {
        labels.insert(label::TEAM, team.as_str());
    }
    labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn metadata(valid: &Valid<'_>, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: Some(valid.namespace.to_owned()),
        labels: Some(labels(valid)),
        annotations: Some(BTreeMap::from([(annotation::SERVER_UID.to_owned(), valid.uid.to_owned())])),
        owner_references: Some(vec![owner_reference(valid.name.as_str(), valid.uid)]),
        ..ObjectMeta::default()
    }
}

/// Text as Kubernetes gives it to a container: it reads `$(X)` as a variable and `$$` as a dollar sign.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Makes an object go with its server.
pub fn owner_reference(server: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "odc.dev/v1alpha1".into(),
        kind: "DevServer".into(),
        name: server.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
