//! The objects of a server, one file each. They are built from the validated request only.

pub mod container;
pub(crate) mod env;
mod gang_discovery;
mod headless_service;
pub(crate) mod pod;
mod secret;
pub(crate) mod security;
pub mod size;
pub(crate) mod volume;

pub use headless_service::service;
pub use pod::{PRIORITY_CLASS, PodAssignment, pod};
pub(crate) use secret::{HOST_KEY, authorized_keys, operation_keys};
pub use secret::{HOST_PUBLIC_KEY, allowed_keys, key_names, secret};

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use odc_api::{annotation, label};

use super::validate::Valid;

/// The init container that installs the agent into the pod.
pub const AGENT: &str = "odc-agent";
/// The init container that writes the user's passwd and group entries.
const PREPARE: &str = "odc-accounts";
/// The main container.
pub(crate) const MAIN: &str = "dev";
/// The path of the agent in all containers of the server.
const AGENT_PATH: &str = "/odc/bin/odc-agent";

pub fn is_agent(container: &str) -> bool {
    container == AGENT
}

/// Returns the name of the server's Secret. It has a part of the uid, because the Secret of an earlier server of the same
/// name exists until it is garbage collected.
pub fn secret_name(server: &str, uid: &str) -> String {
    format!("{server}-keys-{}", uid.get(..8).unwrap_or(uid))
}

/// Labels of all objects of a server.
fn labels(valid: &Valid<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (label::SERVER, valid.name.as_str()),
        (label::OWNER, valid.owner.as_str()),
        (label::FLAVOR, valid.flavor_name.as_str()),
        (label::NAME, "devserver"),
        (label::INSTANCE, valid.name.as_str()),
        (label::COMPONENT, "devserver"),
        (label::PART_OF, "odc"),
        (label::MANAGED_BY, label::OPERATOR),
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

/// Escapes text for `command` and `env` fields, where Kubernetes expands `$(X)` and replaces `$$` by `$`.
pub(crate) fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Returns the owner reference by which objects are garbage collected with their server.
pub fn owner_reference(server: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: odc_api::API_VERSION.into(),
        kind: "DevServer".into(),
        name: server.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
