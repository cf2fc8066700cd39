//! Pods of a server. They are created once and never patched.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, LocalObjectReference, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod,
    PodSpec, Toleration,
};
use odc_api::annotation;
use odc_api::v1alpha1::{self, Privilege};

use super::{container, env, metadata, security, size, volume};
use crate::cluster::{TERMINATION_GRACE_PERIOD, UNREACHABLE_NODE_TAINTS};
use crate::devserver::validate::Valid;
use crate::devserver::{Settings, pods};
use crate::manifest::{Kind, Object};

/// The node and the run that a pod is created for.
#[derive(Clone, Copy, Debug)]
pub struct PodAssignment<'a> {
    pub ordinal: usize,
    pub run: i64,
    pub node: &'a str,
    /// The node supports user namespaces.
    pub user_namespaces: bool,
}

pub const PRIORITY_CLASS: &str = "odc-devserver";

pub fn pod(
    valid: &Valid<'_>,
    assignment: PodAssignment<'_>,
    host_key: &str,
    entrypoint: &[String],
    settings: &Settings,
    control_cas: &[String],
) -> Object {
    let server = valid.name.as_str();
    let name = pods::pod_name(server, assignment.ordinal);
    let mut metadata = metadata(valid, name.clone());
    metadata.annotations.get_or_insert_default().extend(annotations(assignment.run, host_key));
    let privilege = valid.flavor.privilege;
    let mut init = vec![container::install(&settings.agent_image, size::init(valid))];
    if volume::needs_accounts(valid) {
        init.push(container::prepare(valid.image, valid.user, size::init(valid)));
    }
    let mut main = container::main(valid, assignment.ordinal, entrypoint, control_cas);
    main.env.get_or_insert_default().extend(settings.banner.as_deref().map(|text| env::plain("ODC_BANNER", text)));
    let spec = PodSpec {
        affinity: Some(pinned_to(assignment.node)),
        automount_service_account_token: Some(false),
        containers: vec![main],
        enable_service_links: Some(false),
        host_users: (privilege == Privilege::Sudo && assignment.user_namespaces).then_some(false),
        hostname: Some(name),
        image_pull_secrets: Some(pull_secrets(valid)).filter(|all| !all.is_empty()),
        init_containers: Some(init),
        priority_class_name: Some(PRIORITY_CLASS.into()),
        restart_policy: Some("Always".into()),
        runtime_class_name: valid.flavor.runtime_class.as_ref().map(|class| class.as_str().to_owned()),
        security_context: Some(security::pod(privilege)),
        subdomain: (valid.nodes > 1).then(|| server.to_owned()),
        termination_grace_period_seconds: Some(TERMINATION_GRACE_PERIOD.as_secs().cast_signed()),
        tolerations: Some(tolerations(&valid.flavor.tolerations)),
        volumes: Some(volume::volumes(valid, assignment.ordinal)),
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

/// The scheduler selected the node. The kube-scheduler still binds the pod, so taints and devices are respected.
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
    valid.pull_secrets().map(|name| LocalObjectReference { name: name.to_owned() }).collect()
}

/// Pods on unreachable nodes are not evicted by Kubernetes. Only the operator considers a node lost.
fn tolerations(flavor: &[v1alpha1::Toleration]) -> Vec<Toleration> {
    let unreachable = UNREACHABLE_NODE_TAINTS.map(|key| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        ..Toleration::default()
    });
    flavor.iter().map(toleration).chain(unreachable).collect()
}

/// Returns a toleration of a flavor as that of a pod.
pub fn toleration(toleration: &v1alpha1::Toleration) -> Toleration {
    let text = |value: &dyn std::fmt::Debug| format!("{value:?}");
    Toleration {
        key: toleration.key.clone(),
        operator: Some(text(&toleration.operator)),
        value: toleration.value.clone(),
        effect: toleration.effect.as_ref().map(|effect| text(effect)),
        toleration_seconds: None,
    }
}

#[cfg(test)]
mod tests;
