//! Limits on the number of CSI volumes that can be attached to a node.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::CSIPersistentVolumeSource;
use k8s_openapi::api::storage::v1::CSINode;

/// The volume limits of a node, from its `CSINode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVolumeLimits {
    pub node: String,
    /// The limit of each driver. Other drivers are unlimited.
    pub drivers: Vec<(Box<str>, i64)>,
}

/// A volume as identified by its CSI driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiVolume {
    pub driver: Box<str>,
    /// Hash of the volume handle. Several claims may share one volume, which is attached once.
    pub handle: u64,
}

impl NodeVolumeLimits {
    /// Returns `None` if no driver is limited.
    pub fn from_api(node: &CSINode) -> Option<Self> {
        let limited = node.spec.drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((driver.name.as_str().into(), i64::from(count)))
        });
        let mut drivers: Vec<_> = limited.collect();
        drivers.shrink_to_fit();
        let node = node.metadata.name.clone().unwrap_or_default();
        (!drivers.is_empty()).then_some(Self { node, drivers })
    }
}

impl CsiVolume {
    pub fn from_api(source: &CSIPersistentVolumeSource) -> Self {
        let mut hasher = DefaultHasher::new();
        source.volume_handle.hash(&mut hasher);
        Self { driver: source.driver.as_str().into(), handle: hasher.finish() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_limited_drivers_are_kept() {
        let limits = |drivers: serde_json::Value| {
            let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}});
            NodeVolumeLimits::from_api(&serde_json::from_value(node).unwrap())
        };
        let unlimited = json!({"name": "files.example.org", "nodeID": "n1"});
        let entry = json!({"name": "disks.example.org", "nodeID": "n1", "allocatable": {"count": 25}});
        assert_eq!(limits(json!([unlimited])), None);
        let limited = limits(json!([unlimited, entry])).unwrap();
        assert_eq!((limited.node.as_str(), limited.drivers), ("n1", vec![("disks.example.org".into(), 25)]));
    }

    #[test]
    fn volume_is_identified_by_handle() {
        let volume = |handle: &str| {
            let source = json!({"driver": "disks.example.org", "volumeHandle": handle});
            CsiVolume::from_api(&serde_json::from_value(source).unwrap())
        };
        assert_eq!(volume("vol-1"), volume("vol-1"));
        assert_ne!(volume("vol-1"), volume("vol-2"));
    }
}
