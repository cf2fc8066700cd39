//! How the pods of a server go, and what is known of the nodes they are on.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::agents::{self, Say};
use super::decide::Decision;
use super::tell::Work;
use super::{describe, left, parts};
use crate::plan::{Again, Write};
use crate::seen::{Pod, Readiness};

/// How long after its time to stop a pod may be kept by a finalizer before people are told. Most do their work at once.
const HELD: Duration = Duration::from_secs(10);
/// The same for one of which its node does not say that it is gone.
const OVERDUE: Duration = Duration::from_secs(60);

impl<'a> Decision<'a> {
    /// Deletes every pod that is not already on its way; one on a lost node at once, unless it may still write to a
    /// disk somewhere. All others have their agents make everything fit for it first, all at the same time.
    pub(super) fn stop_pods(&self) -> Work {
        let mut work = Work::default();
        for pod in self.parts.all() {
            let lost = self.lost_node(pod).is_some();
            // What only a finalizer keeps is not gone by being deleted once more.
            let kept = pod.deleting.is_some() && is_held(pod);
            let forced = lost && !kept && (pod.is_over() || !self.has_disk());
            if let Some(wait) = self.quiesces(pod).filter(|_| !lost) {
                work.calls.extend(agents::call(pod, Say::Quiesce(wait)));
                work.again = work.again.or(Again::After(wait));
            } else if forced || pod.deleting.is_none() {
                work.writes.push(Write::Delete(parts::target(pod, forced.then_some(0))));
            }
        }
        work
    }

    /// Whether its pods share something with whatever is started after them. Without the flavor nobody knows what it
    /// mounted, so the worst is assumed.
    pub(super) fn has_disk(&self) -> bool {
        let volumes = self.checked.as_ref().map_or(true, |valid| !valid.volumes.is_empty());
        volumes || !matches!(self.server.spec.home, odc_api::v1alpha1::Home::Ephemeral(_))
    }

    /// Whether its nodes are of a kind that the provider takes back at any time.
    pub(super) fn is_spot(&self) -> bool {
        self.checked.as_ref().is_ok_and(|valid| valid.flavor.spot)
    }

    fn lost_node(&self, pod: &'a Pod) -> Option<&'a str> {
        parts::lost_node(pod, &self.seen.nodes, self.settings.lost_after, self.now)
    }

    /// Whether a granted node is lost. One that is not there and has nothing of ours cannot bring anything back.
    pub(super) fn is_lost(&self, node: &str) -> bool {
        match self.seen.nodes.get(node) {
            Some(seen) => parts::is_lost(seen, self.settings.lost_after, self.now),
            None => self.parts.all().all(|pod| pod.node.as_deref() != Some(node)),
        }
    }

    /// Nodes that took pods of ours with them. A pod that was over before has nothing left to lose.
    pub(super) fn lost_nodes(&self) -> impl Iterator<Item = &'a str> {
        self.parts.all().filter(|pod| !pod.is_over()).filter_map(|pod| self.lost_node(pod))
    }

    /// When the next of our pods' nodes would count as lost, or the next pod should be gone.
    pub(super) fn pod_watch(&self) -> Again {
        let nodes = self.parts.all().filter_map(|pod| self.seen.nodes.get(pod.node.as_deref()?));
        let lefts = nodes.filter_map(|node| match node.readiness {
            Readiness::Unready(since) => left(self.settings.lost_after, since, self.now),
            Readiness::Ready | Readiness::New => None,
        });
        let held = self.leaving().filter(|(pod, _)| is_held(pod)).filter_map(|(_, since)| left(HELD, since, self.now));
        let overdue = self.leaving().filter_map(|(_, since)| left(OVERDUE, since, self.now));
        lefts.chain(held).chain(overdue).min().map_or(Again::OnChange, Again::After)
    }

    /// Pods on their way out that stand where ours should, and until when they had time to stop.
    fn leaving(&self) -> impl Iterator<Item = (&'a Pod, Timestamp)> {
        let all = self.parts.leaving.iter().chain(&self.parts.foreign).copied();
        all.filter_map(|pod| Some((pod, pod.deleting?)))
    }

    /// What to say of a pod that is gone but for somebody's finalizer.
    pub(super) fn held(&self) -> Option<String> {
        let mut held = self.leaving().filter(|(pod, since)| is_held(pod) && left(HELD, *since, self.now).is_none());
        held.find_map(|(pod, _)| Some(describe::pod_held(&pod.name, &pod.server.as_ref()?.held_by)))
    }

    /// What to say of one that its node should have stopped.
    pub(super) fn overdue(&self) -> Option<String> {
        let mut overdue = self.leaving().filter(|(_, since)| left(OVERDUE, *since, self.now).is_none());
        overdue.find_map(|(pod, _)| {
            let node = pod.node.as_deref()?;
            let answers = self.seen.nodes.get(node).is_some_and(|node| node.is_ready());
            Some(describe::pod_overdue(&pod.name, node, answers))
        })
    }

    /// What keeps it from being over, if anything does.
    pub(super) fn stopping_message(&self, plain: &str) -> String {
        let lost = || Some(describe::node_lost(self.lost_nodes().next()?, self.has_disk(), self.is_spot()));
        self.held().or_else(lost).or_else(|| self.overdue()).unwrap_or_else(|| plain.to_owned())
    }
}

fn is_held(pod: &Pod) -> bool {
    pod.server.as_ref().is_some_and(|details| !details.held_by.is_empty())
}
