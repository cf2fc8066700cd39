//! Nodes whose kubelet, or for which the kube-scheduler, rejected the pod of a server for a reason that the scheduler cannot
//! see. Such a node is not tried again for that server until the node changes or the rejection expires.
//!
//! Kept in memory only: losing it costs one more attempt.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Message;

use super::Snapshot;
use super::capacity::FreeCapacity;
use crate::cluster::{Effect, Node, Readiness};
use crate::time::remaining;

/// A node that rejected a server is retried after this time even if it did not change: some causes, such as volumes that are
/// still being detached, are not observed here.
pub const REJECTION_TTL: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRejection {
    /// The uid of the server.
    pub uid: String,
    pub node: String,
    /// Of the node when it rejected the server.
    pub fingerprint: Fingerprint,
    pub at: Timestamp,
    /// The message of Kubernetes.
    pub message: Message,
}

/// Rejections by server and node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRejections(BTreeMap<String, BTreeMap<String, NodeRejection>>);

/// A hash of everything about a node that can decide whether it accepts a pod, except its usage, which is observed here and
/// changes all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    pub fn new(node: &Node) -> Self {
        let mut hasher = DefaultHasher::new();
        let allocatable = &node.allocatable;
        (&node.uid, &node.labels, node.cordoned).hash(&mut hasher);
        (allocatable.cpu, allocatable.memory, allocatable.storage, allocatable.pods).hash(&mut hasher);
        allocatable.devices().collect::<Vec<_>>().hash(&mut hasher);
        let mut taints: Vec<_> =
            node.taints.iter().map(|taint| (&taint.key, &taint.value, effect(taint.effect))).collect();
        taints.sort_unstable();
        taints.hash(&mut hasher);
        // Since when a node is unready does not matter.
        match node.readiness {
            Readiness::Ready => 0_u8,
            Readiness::Unready(_) => 1,
            Readiness::New => 2,
        }
        .hash(&mut hasher);
        Self(hasher.finish())
    }
}

fn effect(effect: Effect) -> u8 {
    match effect {
        Effect::NoSchedule => 0,
        Effect::PreferNoSchedule => 1,
        Effect::NoExecute => 2,
    }
}

impl NodeRejection {
    fn is_valid(&self, capacity: &FreeCapacity<'_>, now: Timestamp) -> bool {
        let node = capacity.node(&self.node);
        let is_unchanged = node.is_some_and(|capacity| Fingerprint::new(capacity.node) == self.fingerprint);
        is_unchanged && remaining(REJECTION_TTL, self.at, now).is_some()
    }
}

impl NodeRejections {
    pub fn for_server(&self, uid: &str) -> impl Iterator<Item = &NodeRejection> {
        self.0.get(uid).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the valid rejections of a snapshot. The others are dropped for good, even if their node changes back.
    pub(super) fn unexpired(snapshot: &Snapshot<'_>, capacity: &FreeCapacity<'_>, now: Timestamp) -> Self {
        let servers = snapshot.servers.iter();
        let rejections = servers.flat_map(|server| snapshot.node_rejections.for_server(&server.uid));
        rejections.filter(|rejection| rejection.is_valid(capacity, now)).cloned().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeRejection> {
        self.0.values().flat_map(BTreeMap::values)
    }
}

impl Extend<NodeRejection> for NodeRejections {
    fn extend<I: IntoIterator<Item = NodeRejection>>(&mut self, rejections: I) {
        for rejection in rejections {
            match self.0.entry(rejection.uid.clone()).or_default().entry(rejection.node.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(rejection)),
                // The latest one; ties are broken by the fingerprint, so that the order of insertion does not matter.
                Entry::Occupied(mut entry) => {
                    let known = entry.get();
                    if (known.at, &known.fingerprint.0) <= (rejection.at, &rejection.fingerprint.0) {
                        entry.insert(rejection);
                    }
                }
            }
        }
    }
}

impl FromIterator<NodeRejection> for NodeRejections {
    fn from_iter<I: IntoIterator<Item = NodeRejection>>(rejections: I) -> Self {
        let mut all = Self::default();
        all.extend(rejections);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::fixtures::{gpu_node, taint, time};

    fn check(change: impl FnOnce(&mut Node), changes_fingerprint: bool) {
        let before = gpu_node("n1", 8);
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(Fingerprint::new(&before) != Fingerprint::new(&after), changes_fingerprint, "{after:?}");
    }

    #[test]
    fn relevant_change_of_node_changes_fingerprint() {
        check(|node| node.uid = "uid-again".into(), true);
        check(|node| node.allocatable.cpu += 1, true);
        check(|node| node.allocatable = node.allocatable.clone().with_device("nvidia.com/gpu", 7), true);
        check(|node| node.taints = vec![taint("a:NoSchedule")], true);
        check(|node| drop(node.labels.insert("a".into(), "b".into())), true);
        check(|node| node.cordoned = true, true);
        check(|node| node.readiness = Readiness::Unready(time(0)), true);
        check(|_| {}, false);
    }

    #[test]
    fn fingerprint_ignores_order_of_taints_and_time_of_unreadiness() {
        let with = |taints: &[&str], since| {
            let mut node = gpu_node("n1", 8);
            node.taints = taints.iter().map(|text| taint(text)).collect();
            node.readiness = Readiness::Unready(time(since));
            Fingerprint::new(&node)
        };
        assert_eq!(with(&["a:NoSchedule", "b:NoSchedule"], 0), with(&["b:NoSchedule", "a:NoSchedule"], 9));
    }
}
