//! How many volumes of a driver a node can have attached, and which volumes count.

use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::CSIPersistentVolumeSource;
use k8s_openapi::api::storage::v1::CSINode;

/// The limits of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachLimits {
    pub node: String,
    /// How many of each driver's volumes it can have; a driver that is not here is not limited.
    pub drivers: Vec<(Box<str>, i64)>,
}

/// A volume as drivers know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub driver: Box<str>,
    /// The driver's name for it, in one number: several claims may be of one volume, which is attached once.
    pub handle: u64,
}

impl AttachLimits {
    /// Nothing where nothing is limited.
    pub fn of(node: &CSINode) -> Option<Self> {
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

impl Attachment {
    pub fn of(source: &CSIPersistentVolumeSource) -> Self {
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
    fn only_drivers_that_count_are_kept() {
        let limits = |drivers: serde_json::Value| {
            let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}});
            AttachLimits::of(&serde_json::from_value(node).unwrap())
        };
        let unlimited = json!({"name": "files.example.org", "nodeID": "n1"});
        let limited = json!({"name": "disks.example.org", "nodeID": "n1", "allocatable": {"count": 25}});
        assert_eq!(limits(json!([unlimited])), None);
        let seen = limits(json!([unlimited, limited])).unwrap();
        assert_eq!((seen.node.as_str(), seen.drivers), ("n1", vec![("disks.example.org".into(), 25)]));
    }

    #[test]
    fn a_volume_is_known_by_its_handle() {
        let volume = |handle: &str| {
            let source = json!({"driver": "disks.example.org", "volumeHandle": handle});
            Attachment::of(&serde_json::from_value(source).unwrap())
        };
        assert_eq!(volume("vol-1"), volume("vol-1"));
        assert_ne!(volume("vol-1"), volume("vol-2"));
    }
}
