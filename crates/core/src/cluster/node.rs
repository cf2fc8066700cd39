//! Nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::resources::Resources;
use crate::time::remaining;

/// Taints that all pods of servers tolerate: the operator decides when a node is lost.
pub const UNREACHABLE_NODE_TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// Identifies the node if it is deleted and registered again under the same name.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub cordoned: bool,
    pub readiness: Readiness,
    pub allocatable: Resources,
    /// Whether its container runtime supports user namespaces.
    pub user_namespaces: bool,
}

/// The condition Ready of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Not ready or unreachable, since then.
    Unready(Timestamp),
    /// The kubelet has not reported yet.
    New,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Node {
    pub fn from_api(node: &k8s::Node) -> Self {
        let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
        let taints = spec.and_then(|spec| spec.taints.as_ref());
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let handlers = status.and_then(|status| status.runtime_handlers.as_ref());
        let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.into_iter().flatten().map(taint).collect(),
            cordoned: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            readiness: match ready {
                Some(ready) if ready.status == "True" => Readiness::Ready,
                Some(ready) => Readiness::Unready(
                    super::timestamp(ready.last_transition_time.as_ref()).unwrap_or(Timestamp::UNIX_EPOCH),
                ),
                None => Readiness::New,
            },
            allocatable: status
                .and_then(|status| status.allocatable.as_ref())
                .map(Resources::from_list)
                .unwrap_or_default(),
            user_namespaces: handlers.into_iter().flatten().any(default_with_user_namespaces),
        }
    }

    /// Returns a placeholder for a node that pods are bound to but that does not exist, first observed at `since`. The
    /// cache may be stale, or the kubelet may register again, so the node counts as unready and unschedulable.
    pub fn missing(name: &str, since: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            labels: BTreeMap::new(),
            taints: vec![],
            cordoned: true,
            readiness: Readiness::Unready(since),
            allocatable: Resources::default(),
            user_namespaces: false,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }

    /// Reports whether the node has not been ready for `node_lost_timeout`, so that its pods are not expected to recover. A node
    /// that has not reported yet is not lost.
    pub fn is_lost(&self, node_lost_timeout: Duration, now: Timestamp) -> bool {
        matches!(self.readiness, Readiness::Unready(since) if remaining(node_lost_timeout, since, now).is_none())
    }

    /// Returns how long until an unready node is lost, or `None` if it is ready or lost.
    pub fn until_lost(&self, node_lost_timeout: Duration, now: Timestamp) -> Option<Duration> {
        match self.readiness {
            Readiness::Unready(since) => remaining(node_lost_timeout, since, now),
            Readiness::Ready | Readiness::New => None,
        }
    }
}

/// Reports whether this is the handler of pods without a runtime class, and supports user namespaces.
fn default_with_user_namespaces(handler: &k8s::NodeRuntimeHandler) -> bool {
    let supported = handler.features.as_ref().and_then(|features| features.user_namespaces);
    handler.name.as_deref().unwrap_or_default().is_empty() && supported == Some(true)
}

/// Unknown effects are treated as `NoSchedule`.
fn taint(taint: &k8s::Taint) -> Taint {
    let effect = match taint.effect.as_str() {
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        _ => Effect::NoSchedule,
    };
    Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect }
}
