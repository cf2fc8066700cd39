//! Attachable volumes per node and driver. Counted as in the kube-scheduler (`NodeVolumeLimits`): of pods that are bound and
//! not terminated, each volume once per node.
//!
//! Volumes that are still being detached, and claims that are bound with their first pod, are not observed here; the
//! kube-scheduler rejects such pods.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::cluster::{CsiVolume, Node, NodeVolumeLimits, Pod};
use crate::resources::Resources;

/// The amount on nodes that do not limit a driver which other nodes limit.
const UNLIMITED_ATTACHMENTS: i64 = 1 << 40;

#[derive(Clone, Debug, Default)]
pub struct VolumeLimits {
    nodes: BTreeMap<String, Resources>,
    /// The limits of all other nodes: [`UNLIMITED_ATTACHMENTS`] for each driver that any node limits. Volumes of other drivers are not
    /// counted.
    unlimited: Resources,
}

/// Volumes attached by pods.
#[derive(Clone, Debug, Default)]
pub struct AttachedVolumes {
    limits: VolumeLimits,
    /// By the uid of the pod. A volume that several pods of a node mount is counted for one of them.
    pods: BTreeMap<String, Resources>,
}

impl VolumeLimits {
    pub fn new<'a>(nodes: impl IntoIterator<Item = &'a NodeVolumeLimits>) -> Self {
        let nodes: Vec<&NodeVolumeLimits> = nodes.into_iter().collect();
        let drivers: BTreeSet<&str> =
            nodes.iter().flat_map(|node| &node.drivers).map(|(driver, _)| &**driver).collect();
        let unlimited = drivers
            .into_iter()
            .fold(Resources::default(), |all, driver| all.with_volumes(driver, UNLIMITED_ATTACHMENTS));
        let limits = |node: &&NodeVolumeLimits| {
            let drivers = node.drivers.iter();
            let limits = drivers.fold(unlimited.clone(), |all, (driver, limit)| all.with_volumes(driver, *limit));
            (node.node.clone(), limits)
        };
        Self { nodes: nodes.iter().map(limits).collect(), unlimited }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the request of a pod with these volumes.
    pub fn request<'a>(&self, volumes: impl IntoIterator<Item = &'a CsiVolume>) -> Resources {
        let mut counted = HashSet::new();
        let distinct = volumes.into_iter().filter(|volume| counted.insert((&volume.driver, volume.handle)));
        distinct
            .filter_map(|volume| self.request_one(volume))
            .fold(Resources::default(), |all, one| all.saturating_add(&one))
    }

    fn request_one(&self, volume: &CsiVolume) -> Option<Resources> {
        let one = Resources::default().with_volumes(&volume.driver, 1);
        self.unlimited.fits(&one).then_some(one)
    }

    fn node(&self, node: &str) -> &Resources {
        self.nodes.get(node).unwrap_or(&self.unlimited)
    }
}

impl AttachedVolumes {
    /// `volume` returns the volume of a claim, by namespace and name.
    pub fn new<'a>(
        limits: VolumeLimits,
        pods: impl IntoIterator<Item = &'a Pod>,
        volume: impl Fn(&str, &str) -> Option<CsiVolume>,
    ) -> Self {
        if limits.is_empty() {
            return Self::default();
        }
        let bound = pods.into_iter().filter(|pod| !pod.claims.is_empty() && pod.node.is_some() && !pod.is_terminated());
        let mut bound: Vec<&Pod> = bound.collect();
        // A volume that is shared with a foreign pod stays attached when the server leaves, so foreign pods count first.
        bound.sort_by_key(|pod| (pod.server.is_some(), pod.deletion_timestamp.is_some(), pod.uid.as_str()));
        let mut counted = HashSet::new();
        let mut pods = BTreeMap::new();
        for pod in bound {
            let volumes = pod.claims.iter().filter_map(|claim| volume(&pod.namespace, claim));
            let new: Vec<CsiVolume> = volumes
                .filter(|volume| counted.insert((pod.node.as_deref(), volume.driver.clone(), volume.handle)))
                .collect();
            let used = limits.request(&new);
            if used != Resources::default() {
                pods.insert(pod.uid.clone(), used);
            }
        }
        Self { limits, pods }
    }

    /// Returns the allocatable resources of a node with the volumes it can attach.
    pub(super) fn node_capacity(&self, node: &Node) -> Resources {
        node.allocatable.saturating_add(self.limits.node(&node.name))
    }

    /// Returns the requests of a pod with the volumes it has attached.
    pub(super) fn pod_usage<'p>(&self, pod: &'p Pod) -> Cow<'p, Resources> {
        match self.pods.get(&pod.uid) {
            Some(volumes) => Cow::Owned(pod.requests.saturating_add(volumes)),
            None => Cow::Borrowed(&pod.requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Server;
    use crate::admission::fixtures::{DISKS, attach_limits, attachment, foreign, gpu_node, server_pod};
    use crate::cluster::PodPhase;

    /// Returns a pod that mounts claims; each is named after its volume.
    fn pod(name: &str, node: &str, claims: &[&str]) -> Pod {
        Pod { claims: claims.iter().map(|claim| (*claim).into()).collect(), ..foreign(name, node, 0) }
    }

    fn attached(pods: &[Pod]) -> AttachedVolumes {
        AttachedVolumes::new(VolumeLimits::new(&[attach_limits("n1", 2)]), pods, |_, claim| {
            let (driver, handle) = claim.split_once('/').unwrap_or((DISKS, claim));
            Some(attachment(driver, handle))
        })
    }

    fn volumes(amounts: &Resources) -> i64 {
        amounts.volumes().map(|(_, amount)| amount).sum()
    }

    #[test]
    fn volume_counts_once_per_node() {
        let pods = [
            pod("a", "n1", &["one", "two"]),
            pod("b", "n1", &["two", "three", "three"]),
            pod("c", "n2", &["two"]),
            pod("d", "n1", &["files.example.org/one"]),
        ];
        let attached = attached(&pods);
        let used: Vec<i64> = pods.iter().map(|pod| volumes(&attached.pod_usage(pod))).collect();
        assert_eq!(used, [2, 1, 1, 0]);
    }

    #[test]
    fn terminated_and_unbound_pods_have_no_volumes_attached() {
        let mut pods = [pod("a", "n1", &["one"]), pod("b", "n1", &["one"])];
        pods[0].phase = PodPhase::Succeeded;
        pods[1].node = None;
        let attached = attached(&pods);
        assert!(pods.iter().all(|pod| volumes(&attached.pod_usage(pod)) == 0));
    }

    #[test]
    fn shared_volume_counts_for_foreign_pod() {
        let mut server = server_pod(&Server::test("a", 0), 0, 1);
        (server.node, server.claims) = (Some("n1".into()), ["one".into()].into());
        let pods = [server, pod("b", "n1", &["one"])];
        let attached = attached(&pods);
        assert_eq!((volumes(&attached.pod_usage(&pods[0])), volumes(&attached.pod_usage(&pods[1]))), (0, 1));
    }

    #[test]
    fn node_without_limit_attaches_any_number() {
        let attached = attached(&[]);
        let request = |count: usize| {
            let volumes: Vec<CsiVolume> = (0..count).map(|number| attachment(DISKS, &number.to_string())).collect();
            attached.limits.request(&volumes)
        };
        let limited = attached.node_capacity(&gpu_node("n1", 1));
        let unlimited = attached.node_capacity(&gpu_node("n2", 1));
        assert!(limited.fits(&request(2)) && !limited.fits(&request(3)) && unlimited.fits(&request(1_000)));
        let other = [attachment("files.example.org", "one")];
        assert_eq!(attached.limits.request(&other), Resources::default());
        assert_eq!(attached.limits.request([&attachment(DISKS, "one"), &attachment(DISKS, "one")]), request(1));
    }

    #[test]
    fn node_with_limit_zero_attaches_none() {
        let attached = AttachedVolumes::new(VolumeLimits::new(&[attach_limits("n1", 0)]), [], |_, _| None);
        let request = attached.limits.request(&[attachment(DISKS, "one")]);
        assert!(!attached.node_capacity(&gpu_node("n1", 1)).fits(&request));
    }
}
