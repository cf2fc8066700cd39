//! Claims, and where the volumes behind them can be reached from.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1::StorageClass;
use serde::{Deserialize, Serialize};

use super::Attachment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub phase: ClaimPhase,
    pub deleting: bool,
    /// The volume it is bound to.
    pub volume: Option<String>,
    pub class: Option<String>,
    /// Whether more than one node may mount it at once.
    pub shared: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPhase {
    Pending,
    Bound,
    Lost,
}

/// A storage class, as far as placing is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: String,
    pub is_default: bool,
    /// Claims are bound when their first pod is placed, and not before.
    pub waits_for_consumer: bool,
}

/// A volume and the nodes it can be mounted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSeen {
    pub name: String,
    pub reach: Reach,
    /// What a CSI driver attaches for it.
    pub attachment: Option<Attachment>,
}

/// Nodes by their labels: any of the terms, of which all requirements hold. No term means every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach(Vec<Vec<Requirement>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Claim {
    pub fn of(claim: &k8s::PersistentVolumeClaim) -> Self {
        let (meta, spec) = (&claim.metadata, claim.spec.as_ref());
        let phase = match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Bound") => ClaimPhase::Bound,
            Some("Lost") => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        };
        let modes = spec.and_then(|spec| spec.access_modes.as_ref());
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            phase,
            deleting: meta.deletion_timestamp.is_some(),
            volume: spec.and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty()),
            class: spec.and_then(|spec| spec.storage_class_name.clone()),
            shared: modes.is_some_and(|modes| modes.iter().any(|mode| mode.ends_with("Many"))),
        }
    }
}

impl Class {
    pub fn of(class: &StorageClass) -> Self {
        let noted = class.metadata.annotations.as_ref().and_then(|all| all.get(DEFAULT_CLASS));
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            is_default: noted.is_some_and(|value| value == "true"),
            waits_for_consumer: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
        }
    }
}

const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

impl VolumeSeen {
    pub fn of(volume: &k8s::PersistentVolume) -> Self {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
        let terms = affinity.and_then(|affinity| affinity.required.as_ref());
        let requirements = |term: &k8s::NodeSelectorTerm| {
            let all = term.match_expressions.iter().flatten();
            all.map(|expression| Requirement {
                key: expression.key.clone(),
                operator: expression.operator.clone(),
                values: expression.values.clone().unwrap_or_default(),
            })
            .collect()
        };
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        Self {
            name: volume.metadata.name.clone().unwrap_or_default(),
            attachment: source.map(Attachment::of),
            reach: Reach(terms.iter().flat_map(|terms| &terms.node_selector_terms).map(requirements).collect()),
        }
    }
}

impl Reach {
    pub fn includes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.is_empty() || self.0.iter().any(|term| term.iter().all(|requirement| requirement.holds(labels)))
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // Gt and Lt compare numbers; volumes do not use them.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_reaches_the_nodes_of_any_of_its_terms() {
        let term = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
        let volume = |terms: serde_json::Value| {
            let volume = json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
            VolumeSeen::of(&serde_json::from_value(volume).unwrap()).reach
        };
        let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        let reach = volume(json!([term("In", &["a"]), term("NotIn", &["a", "b"])]));
        assert!(reach.includes(&zone("a")) && !reach.includes(&zone("b")) && reach.includes(&zone("c")));
        assert!(Reach::default().includes(&BTreeMap::new()));
        assert!(!volume(json!([term("Exists", &[])])).includes(&BTreeMap::new()));
    }
}
