//! Persistent volume claims, their volumes and storage classes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as k8s;
use k8s_openapi::api::storage::v1 as storage;
use odc_api::quantity::Quantity;
use odc_api::{annotation, label};
use serde::{Deserialize, Serialize};

use super::CsiVolume;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
    pub phase: ClaimPhase,
    pub is_deleting: bool,
    /// The name of the bound volume.
    pub volume: Option<String>,
    pub class: Option<String>,
    /// Whether several nodes may mount it at the same time.
    pub shared: bool,
    /// Whether it is a block device without a file system.
    pub is_block: bool,
    pub uid: String,
    /// The uid of the `Disk` it belongs to.
    pub disk_uid: Option<String>,
    /// The name of that disk.
    pub disk: Option<String>,
    /// The uid of the `DiskOperation` it is deleted with, if it is temporary.
    pub operation_uid: Option<String>,
    /// The requested size.
    pub size: Option<Quantity>,
    /// The size of the bound volume.
    pub capacity: Option<Quantity>,
    /// The snapshot it is created from.
    pub snapshot: Option<String>,
    /// The affinity of the volume that its data is copied from.
    pub source_affinity: VolumeAffinity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimPhase {
    Pending,
    Bound,
    Lost,
}

/// The scheduling-related fields of a storage class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageClass {
    pub name: String,
    pub is_default: bool,
    /// Claims are bound when their first pod is scheduled.
    pub waits_for_consumer: bool,
    /// Claims can be expanded.
    pub allows_expansion: bool,
    pub provisioner: String,
}

/// A persistent volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    pub affinity: VolumeAffinity,
    /// The CSI volume, if it has a CSI driver.
    pub csi: Option<CsiVolume>,
    pub uid: String,
    /// The namespace and the uid of the claim it is bound to.
    pub claim_namespace: Option<String>,
    pub claim_uid: Option<String>,
    /// Whether it is kept when its claim is deleted.
    pub is_retained: bool,
}

/// The node affinity of a volume: a node matches if all requirements of one of the terms hold. Without terms, all nodes
/// match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeAffinity(Vec<Vec<Requirement>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Claim {
    pub fn from_api(claim: &k8s::PersistentVolumeClaim) -> Self {
        let (meta, spec) = (&claim.metadata, claim.spec.as_ref());
        let phase = match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Bound") => ClaimPhase::Bound,
            Some("Lost") => ClaimPhase::Lost,
            _ => ClaimPhase::Pending,
        };
        let modes = spec.and_then(|spec| spec.access_modes.as_ref());
        let label_of = |name: &str| meta.labels.as_ref().and_then(|labels| labels.get(name).cloned());
        let annotation_of = |name: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(name));
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            phase,
            is_deleting: meta.deletion_timestamp.is_some(),
            volume: spec.and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty()),
            class: spec.and_then(|spec| spec.storage_class_name.clone()),
            shared: modes.is_some_and(|modes| modes.iter().any(|mode| mode.ends_with("Many"))),
            uid: meta.uid.clone().unwrap_or_default(),
            is_block: spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block"),
            disk_uid: label_of(label::DISK_UID),
            disk: label_of(label::DISK),
            operation_uid: label_of(label::OPERATION_UID),
            size: spec.and_then(requested_size),
            capacity: claim.status.as_ref().and_then(capacity),
            snapshot: spec.and_then(source_snapshot),
            source_affinity: annotation_of(annotation::VOLUME_AFFINITY)
                .map(|text| VolumeAffinity::from_annotation(text))
                .unwrap_or_default(),
        }
    }
}

fn requested_size(spec: &k8s::PersistentVolumeClaimSpec) -> Option<Quantity> {
    spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.try_into().ok()
}

fn capacity(status: &k8s::PersistentVolumeClaimStatus) -> Option<Quantity> {
    status.capacity.as_ref()?.get("storage")?.try_into().ok()
}

fn source_snapshot(spec: &k8s::PersistentVolumeClaimSpec) -> Option<String> {
    let source = spec.data_source.as_ref()?;
    (source.kind == "VolumeSnapshot").then(|| source.name.clone())
}

impl StorageClass {
    pub fn from_api(class: &storage::StorageClass) -> Self {
        let default = class.metadata.annotations.as_ref().and_then(|all| all.get(DEFAULT_CLASS_ANNOTATION));
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            is_default: default.is_some_and(|value| value == "true"),
            waits_for_consumer: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            allows_expansion: class.allow_volume_expansion == Some(true),
            provisioner: class.provisioner.clone(),
        }
    }

    /// Reports whether claims can have the access mode `ReadWriteOncePod`, which only CSI drivers support.
    pub fn supports_single_pod(&self) -> bool {
        !self.provisioner.starts_with(IN_TREE_PROVISIONERS)
    }
}

const IN_TREE_PROVISIONERS: &str = "kubernetes.io/";
const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

impl Volume {
    pub fn from_api(volume: &k8s::PersistentVolume) -> Self {
        let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
        let nodes = affinity.and_then(|affinity| affinity.required.as_ref());
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        Self {
            name: volume.metadata.name.clone().unwrap_or_default(),
            csi: source.map(CsiVolume::from_api),
            uid: volume.metadata.uid.clone().unwrap_or_default(),
            claim_namespace: claim.and_then(|claim| claim.namespace.clone()),
            claim_uid: claim.and_then(|claim| claim.uid.clone()),
            is_retained: policy == Some("Retain"),
            affinity: nodes.map(VolumeAffinity::from_api).unwrap_or_default(),
        }
    }
}

/// The maximum length of the annotation. The affinity of a volume has a few terms.
const MAX_AFFINITY_LENGTH: usize = 8 << 10;

impl VolumeAffinity {
    fn from_api(selector: &k8s::NodeSelector) -> Self {
        let requirement = |expression: &k8s::NodeSelectorRequirement| Requirement {
            key: expression.key.clone(),
            operator: expression.operator.clone(),
            values: expression.values.clone().unwrap_or_default(),
        };
        let term =
            |term: &k8s::NodeSelectorTerm| term.match_expressions.iter().flatten().map(requirement).collect::<Vec<_>>();
        Self(selector.node_selector_terms.iter().map(term).collect())
    }

    /// Reads the annotation [`annotation::VOLUME_AFFINITY`]. All nodes match if it is not valid, as without it.
    pub fn from_annotation(text: &str) -> Self {
        let selector = (text.len() <= MAX_AFFINITY_LENGTH).then(|| serde_json::from_str(text).ok()).flatten();
        selector.as_ref().map(Self::from_api).unwrap_or_default()
    }

    /// Returns the value of the annotation [`annotation::VOLUME_AFFINITY`], or `None` if all nodes match.
    pub fn to_annotation(&self) -> Option<String> {
        serde_json::to_string(&self.node_selector()?).ok().filter(|text| text.len() <= MAX_AFFINITY_LENGTH)
    }

    pub fn matches_all_nodes(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the terms for a pod, or `None` if all nodes match.
    pub fn node_selector(&self) -> Option<k8s::NodeSelector> {
        let expression = |requirement: &Requirement| k8s::NodeSelectorRequirement {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            values: Some(requirement.values.clone()).filter(|values| !values.is_empty()),
        };
        let term = |requirements: &Vec<Requirement>| k8s::NodeSelectorTerm {
            match_expressions: Some(requirements.iter().map(expression).collect()),
            match_fields: None,
        };
        let terms: Vec<_> = self.0.iter().filter(|term| !term.is_empty()).map(term).collect();
        (!terms.is_empty()).then_some(k8s::NodeSelector { node_selector_terms: terms })
    }

    /// Returns the topology as text, such as `csi.odc.dev/pool=main`, or `None` if all nodes match.
    pub fn describe(&self) -> Option<String> {
        let requirement = |requirement: &Requirement| format!("{}={}", requirement.key, requirement.values.join("|"));
        let term = |term: &Vec<Requirement>| term.iter().map(requirement).collect::<Vec<_>>().join(",");
        let terms: Vec<String> = self.0.iter().map(term).collect();
        (!terms.is_empty()).then(|| terms.join(" or "))
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.is_empty() || self.0.iter().any(|term| term.iter().all(|requirement| requirement.matches(labels)))
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // Gt and Lt are not used by volumes.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volume_affinity_matches_any_term() {
        let term = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
        let volume = |terms: serde_json::Value| {
            let volume = json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
            Volume::from_api(&serde_json::from_value(volume).unwrap()).affinity
        };
        let zone = |zone: &str| BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
        let affinity = volume(json!([term("In", &["a"]), term("NotIn", &["a", "b"])]));
        assert!(affinity.matches(&zone("a")) && !affinity.matches(&zone("b")) && affinity.matches(&zone("c")));
        assert!(VolumeAffinity::default().matches(&BTreeMap::new()));
        assert!(!volume(json!([term("Exists", &[])])).matches(&BTreeMap::new()));
    }
}
