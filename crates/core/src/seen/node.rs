//! Nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::amounts::Amounts;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// A node that was removed and came back under its name is another one.
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub cordoned: bool,
    pub readiness: Readiness,
    pub allocatable: Amounts,
    /// Whether its container runtime can give pods users of their own.
    pub user_namespaces: bool,
}

/// What the node's kubelet says, or that it says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Not ready, or silent, since then.
    Unready(Timestamp),
    /// It never said anything.
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
    pub fn of(node: &k8s::Node) -> Self {
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
                Some(ready) => {
                    Readiness::Unready(super::at(ready.last_transition_time.as_ref()).unwrap_or(Timestamp::UNIX_EPOCH))
                }
                None => Readiness::New,
            },
            allocatable: status.and_then(|status| status.allocatable.as_ref()).map(Amounts::of).unwrap_or_default(),
            user_namespaces: handlers.into_iter().flatten().any(default_with_user_namespaces),
        }
    }

    /// One that pods are on and that is not there, first noticed then. It may be known again at any moment: our copy may be
    /// old, and a kubelet registers anew. So it counts as silent from then on, and until then it takes nothing.
    pub fn missing(name: &str, since: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            labels: BTreeMap::new(),
            taints: vec![],
            cordoned: true,
            readiness: Readiness::Unready(since),
            allocatable: Amounts::default(),
            user_namespaces: false,
        }
    }

    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::Ready
    }
}

/// The handler of pods that name no runtime class.
fn default_with_user_namespaces(handler: &k8s::NodeRuntimeHandler) -> bool {
    let supported = handler.features.as_ref().and_then(|features| features.user_namespaces);
    handler.name.as_deref().unwrap_or_default().is_empty() && supported == Some(true)
}

/// An effect we do not know keeps pods away: better to wait than to be refused.
fn taint(taint: &k8s::Taint) -> Taint {
    let effect = match taint.effect.as_str() {
        "PreferNoSchedule" => Effect::PreferNoSchedule,
        "NoExecute" => Effect::NoExecute,
        _ => Effect::NoSchedule,
    };
    Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect }
}
