//! Nodes that refused a server for a reason that cannot be seen from here. Such a pair is not tried again until the node
//! is another one, or some time has passed.
//!
//! This is a memory, not a fact that anything rests on: whoever forgets it tries once more.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Sentence;

use super::room::Room;
use super::{Facts, Policy, due};
use crate::seen::{Effect, Node, Readiness};

/// A node refused a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of the server.
    pub uid: String,
    pub node: String,
    /// How the node was when it refused.
    pub fingerprint: Fingerprint,
    pub at: Timestamp,
    /// The words of Kubernetes.
    pub why: Sentence,
}

/// Refusals by server and node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(BTreeMap<String, BTreeMap<String, Refusal>>);

/// Everything about a node that can decide whether it takes a pod, in one number. What is free on it is no part of it:
/// that is known here, and changes all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    pub fn of(node: &Node) -> Self {
        let mut hasher = DefaultHasher::new();
        let amounts = &node.allocatable;
        (&node.uid, &node.labels, node.cordoned).hash(&mut hasher);
        (amounts.cpu, amounts.memory, amounts.storage, amounts.pods).hash(&mut hasher);
        amounts.devices().collect::<Vec<_>>().hash(&mut hasher);
        let mut taints: Vec<_> =
            node.taints.iter().map(|taint| (&taint.key, &taint.value, effect(taint.effect))).collect();
        taints.sort_unstable();
        taints.hash(&mut hasher);
        // Since when a node is not ready says nothing about what it would take.
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

impl Refusal {
    /// Whether it still counts.
    fn holds(&self, room: &Room<'_>, policy: &Policy, now: Timestamp) -> bool {
        let same = room.on(&self.node).is_some_and(|place| Fingerprint::of(place.node) == self.fingerprint);
        same && due::left(self.at, policy.retry_after, now).is_some()
    }
}

impl Refusals {
    pub fn of_server(&self, uid: &str) -> impl Iterator<Item = &Refusal> {
        self.0.get(uid).into_iter().flat_map(BTreeMap::values)
    }

    /// Those that count. A node that changed and changed back has changed, so what is void now is dropped for good.
    pub(super) fn holding(world: &Facts<'_>, room: &Room<'_>, policy: &Policy, now: Timestamp) -> Self {
        let of_servers = world.servers.iter().flat_map(|server| world.unfit.of_server(&server.uid));
        of_servers.filter(|refusal| refusal.holds(room, policy, now)).cloned().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Refusal> {
        self.0.values().flat_map(BTreeMap::values)
    }
}

impl Extend<Refusal> for Refusals {
    fn extend<I: IntoIterator<Item = Refusal>>(&mut self, refusals: I) {
        for refusal in refusals {
            match self.0.entry(refusal.uid.clone()).or_default().entry(refusal.node.clone()) {
                Entry::Vacant(entry) => drop(entry.insert(refusal)),
                // The later one; that of two at once does not depend on which came first.
                Entry::Occupied(mut entry) => {
                    let known = entry.get();
                    if (known.at, &known.fingerprint.0) <= (refusal.at, &refusal.fingerprint.0) {
                        entry.insert(refusal);
                    }
                }
            }
        }
    }
}

impl FromIterator<Refusal> for Refusals {
    fn from_iter<I: IntoIterator<Item = Refusal>>(refusals: I) -> Self {
        let mut all = Self::default();
        all.extend(refusals);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::fixtures::{gpu_node, taint, time};

    /// Whether a change of the node voids what it refused before.
    fn check(change: impl FnOnce(&mut Node), voids: bool) {
        let before = gpu_node("n1", 8);
        let mut after = before.clone();
        change(&mut after);
        assert_eq!(Fingerprint::of(&before) != Fingerprint::of(&after), voids, "{after:?}");
    }

    #[test]
    fn whatever_may_change_a_nodes_mind_voids_its_refusals() {
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
    fn the_order_of_taints_and_the_time_of_silence_say_nothing() {
        let with = |taints: &[&str], since| {
            let mut node = gpu_node("n1", 8);
            node.taints = taints.iter().map(|text| taint(text)).collect();
            node.readiness = Readiness::Unready(time(since));
            Fingerprint::of(&node)
        };
        assert_eq!(with(&["a:NoSchedule", "b:NoSchedule"], 0), with(&["b:NoSchedule", "a:NoSchedule"], 9));
    }
}
