//! Volumes, and how many of each driver's a node can have attached. Counted as the kube-scheduler does it: of pods that
//! are bound and not over, each volume once on a node.
//!
//! What the kube-scheduler sees and this does not (volumes still being detached, claims that are bound with their first
//! pod) it refuses itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::amounts::Amounts;
use crate::seen::{AttachLimits, Attachment, Node, Pod};

/// More than anybody mounts, for nodes that do not limit a driver which others do.
const NO_LIMIT: i64 = 1 << 40;

/// What nodes can attach.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    nodes: BTreeMap<String, Amounts>,
    /// What a node has that limits nothing: no limit of each driver that is limited anywhere. Volumes of all others are
    /// not counted.
    none: Amounts,
}

/// What pods have attached.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    limits: Limits,
    /// By the uid of the pod. A volume that several pods of a node mount is one pod's only.
    pods: BTreeMap<String, Amounts>,
}

impl Limits {
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a AttachLimits>) -> Self {
        let nodes: Vec<&AttachLimits> = nodes.into_iter().collect();
        let drivers: BTreeSet<&str> =
            nodes.iter().flat_map(|node| &node.drivers).map(|(driver, _)| &**driver).collect();
        let none = drivers.into_iter().fold(Amounts::default(), |all, driver| all.with_volumes(driver, NO_LIMIT));
        let limited = |node: &&AttachLimits| {
            let drivers = node.drivers.iter();
            let amounts = drivers.fold(none.clone(), |all, (driver, most)| all.with_volumes(driver, *most));
            (node.node.clone(), amounts)
        };
        Self { nodes: nodes.iter().map(limited).collect(), none }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// What a server with these volumes takes wherever it starts.
    pub fn need<'a>(&self, volumes: impl IntoIterator<Item = &'a Attachment>) -> Amounts {
        let mut known = HashSet::new();
        let new = volumes.into_iter().filter(|volume| known.insert((&volume.driver, volume.handle)));
        new.filter_map(|volume| self.one(volume)).fold(Amounts::default(), |all, one| all.plus(&one))
    }

    fn one(&self, volume: &Attachment) -> Option<Amounts> {
        let one = Amounts::default().with_volumes(&volume.driver, 1);
        self.none.holds(&one).then_some(one)
    }

    fn of_node(&self, node: &str) -> &Amounts {
        self.nodes.get(node).unwrap_or(&self.none)
    }
}

impl Attached {
    /// `volume` finds what is behind a claim, by namespace and name.
    pub fn of<'a>(
        limits: Limits,
        pods: impl IntoIterator<Item = &'a Pod>,
        volume: impl Fn(&str, &str) -> Option<Attachment>,
    ) -> Self {
        if limits.is_empty() {
            return Self::default();
        }
        let there = pods.into_iter().filter(|pod| !pod.claims.is_empty() && pod.node.is_some() && !pod.is_over());
        let mut there: Vec<&Pod> = there.collect();
        // What somebody mounts who stays is not free when a server leaves.
        there.sort_by_key(|pod| (pod.server.is_some(), pod.deleting.is_some(), pod.uid.as_str()));
        let mut known = HashSet::new();
        let mut pods = BTreeMap::new();
        for pod in there {
            let volumes = pod.claims.iter().filter_map(|claim| volume(&pod.namespace, claim));
            let new: Vec<Attachment> = volumes
                .filter(|volume| known.insert((pod.node.as_deref(), volume.driver.clone(), volume.handle)))
                .collect();
            let taken = limits.need(&new);
            if taken != Amounts::default() {
                pods.insert(pod.uid.clone(), taken);
            }
        }
        Self { limits, pods }
    }

    /// What a node has, with the volumes it can attach.
    pub(super) fn capacity(&self, node: &Node) -> Amounts {
        node.allocatable.plus(self.limits.of_node(&node.name))
    }

    /// What a pod takes, with the volumes it has attached.
    pub(super) fn used<'p>(&self, pod: &'p Pod) -> Cow<'p, Amounts> {
        match self.pods.get(&pod.uid) {
            Some(volumes) => Cow::Owned(pod.requests.plus(volumes)),
            None => Cow::Borrowed(&pod.requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::Server;
    use crate::grants::fixtures::{DISKS, attach_limits, attachment, foreign, gpu_node, server_pod};
    use crate::seen::PodPhase;

    /// A pod that mounts claims, each of the volume it is called after.
    fn pod(name: &str, node: &str, claims: &[&str]) -> Pod {
        Pod { claims: claims.iter().map(|claim| (*claim).into()).collect(), ..foreign(name, node, 0) }
    }

    fn attached(pods: &[Pod]) -> Attached {
        Attached::of(Limits::of(&[attach_limits("n1", 2)]), pods, |_, claim| {
            let (driver, handle) = claim.split_once('/').unwrap_or((DISKS, claim));
            Some(attachment(driver, handle))
        })
    }

    fn volumes(amounts: &Amounts) -> i64 {
        amounts.volumes().map(|(_, amount)| amount).sum()
    }

    #[test]
    fn a_volume_counts_once_on_a_node() {
        let pods = [
            pod("a", "n1", &["one", "two"]),
            pod("b", "n1", &["two", "three", "three"]),
            pod("c", "n2", &["two"]),
            pod("d", "n1", &["files.example.org/one"]),
        ];
        let attached = attached(&pods);
        let used: Vec<i64> = pods.iter().map(|pod| volumes(&attached.used(pod))).collect();
        assert_eq!(used, [2, 1, 1, 0]);
    }

    #[test]
    fn pods_that_are_over_or_nowhere_have_nothing_attached() {
        let mut pods = [pod("a", "n1", &["one"]), pod("b", "n1", &["one"])];
        pods[0].phase = PodPhase::Succeeded;
        pods[1].node = None;
        let attached = attached(&pods);
        assert!(pods.iter().all(|pod| volumes(&attached.used(pod)) == 0));
    }

    #[test]
    fn a_volume_of_several_is_with_whoever_stays() {
        let mut server = server_pod(&Server::test("a", 0), 0, 1);
        (server.node, server.claims) = (Some("n1".into()), ["one".into()].into());
        let pods = [server, pod("b", "n1", &["one"])];
        let attached = attached(&pods);
        assert_eq!((volumes(&attached.used(&pods[0])), volumes(&attached.used(&pods[1]))), (0, 1));
    }

    #[test]
    fn a_node_that_limits_nothing_takes_any_number() {
        let attached = attached(&[]);
        let need = |many: usize| {
            let volumes: Vec<Attachment> = (0..many).map(|at| attachment(DISKS, &at.to_string())).collect();
            attached.limits.need(&volumes)
        };
        let (limited, free) = (attached.capacity(&gpu_node("n1", 1)), attached.capacity(&gpu_node("n2", 1)));
        assert!(limited.holds(&need(2)) && !limited.holds(&need(3)) && free.holds(&need(1_000)));
        let other = [attachment("files.example.org", "one")];
        assert_eq!(attached.limits.need(&other), Amounts::default());
        assert_eq!(attached.limits.need([&attachment(DISKS, "one"), &attachment(DISKS, "one")]), need(1));
    }

    #[test]
    fn a_node_may_take_none() {
        let attached = Attached::of(Limits::of(&[attach_limits("n1", 0)]), [], |_, _| None);
        let need = attached.limits.need(&[attachment(DISKS, "one")]);
        assert!(!attached.capacity(&gpu_node("n1", 1)).holds(&need));
    }
}
