//! A pod of a server. It is created once and never patched.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodSpec, Toleration,
};
use odc_api::annotation;
use odc_api::v1alpha1::{self, Privilege};

use super::{container, env, metadata, security, volume};
use crate::devserver::validate::Valid;
use crate::devserver::{Settings, parts};
use crate::object::{Kind, Object};

/// Where and for which run a pod is made.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    pub ordinal: usize,
    pub run: i64,
    pub node: &'a str,
    /// The node can give the pod users of its own.
    pub user_namespaces: bool,
}

pub const PRIORITY_CLASS: &str = "odc-devserver";

pub fn pod(
    valid: &Valid<'_>,
    place: Placement<'_>,
    host_key: &str,
    entrypoint: &[String],
    settings: &Settings,
    authorities: &[String],
) -> Object {
    let server = valid.name.as_str();
    let name = parts::name(server, place.ordinal);
    let mut metadata = metadata(valid, name.clone());
    metadata.annotations.get_or_insert_default().extend(annotations(place.run, host_key));
    let privilege = valid.flavor.privilege;
    let mut init = vec![container::install(valid, &settings.agent_image)];
    if volume::needs_accounts(valid) {
        init.push(container::prepare(valid));
    }
    let mut main = container::main(valid, place.ordinal, entrypoint, authorities);
    main.env.get_or_insert_default().extend(settings.banner.as_deref().map(|text| env::plain("ODC_BANNER", text)));
    let spec = PodSpec {
        affinity: Some(pinned_to(place.node)),
        automount_service_account_token: Some(false),
        containers: vec![main],
        enable_service_links: Some(false),
        host_users: (privilege == Privilege::Sudo && place.user_namespaces).then_some(false),
        hostname: Some(name),
        image_pull_secrets: Some(pull_secrets(valid)).filter(|all| !all.is_empty()),
        init_containers: Some(init),
        priority_class_name: Some(PRIORITY_CLASS.into()),
        restart_policy: Some("Always".into()),
        runtime_class_name: valid.flavor.runtime_class.as_ref().map(|class| class.as_str().to_owned()),
        security_context: Some(security::pod(privilege)),
        subdomain: (valid.nodes > 1).then(|| server.to_owned()),
        termination_grace_period_seconds: Some(container::GRACE_SECONDS.into()),
        tolerations: Some(tolerations(&valid.flavor.tolerations)),
        volumes: Some(volume::volumes(valid)),
        ..PodSpec::default()
    };
    Object::new(Kind::Pod, &Pod { metadata, spec: Some(spec), status: None })
}

fn annotations(run: i64, host_key: &str) -> BTreeMap<String, String> {
    [
        (annotation::RUN, run.to_string()),
        (annotation::HOST_KEY, host_key.to_owned()),
        (annotation::SAFE_TO_EVICT, "false".into()),
        (annotation::DO_NOT_DISRUPT, "true".into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The queue chose the node; the kube-scheduler still has to agree, so taints and devices are always respected.
fn pinned_to(node: &str) -> Affinity {
    let this_node = NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![this_node]), match_expressions: None };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector { node_selector_terms: vec![term] }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn pull_secrets(valid: &Valid<'_>) -> Vec<LocalObjectReference> {
    let own = valid.server.spec.image.as_ref().and_then(|image| image.pull_secret.as_ref());
    let all = own.into_iter().chain(&valid.flavor.pull_secret);
    all.map(|name| LocalObjectReference { name: name.as_str().to_owned() }).collect()
}

/// A node that falls silent keeps its pods: only the operator declares it lost.
fn tolerations(flavor: &[v1alpha1::Toleration]) -> Vec<Toleration> {
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    let theirs = flavor.iter().map(|toleration| Toleration {
        key: toleration.key.clone(),
        operator: Some(text(&toleration.operator)),
        value: toleration.value.clone(),
        effect: toleration.effect.as_ref().map(|effect| text(effect)),
        toleration_seconds: None,
    });
    let silent = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"].map(|key| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    });
    theirs.chain(silent).collect()
}

#[cfg(test)]
mod tests;
