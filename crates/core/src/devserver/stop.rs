//! How the pods of a server go, and what is known of the nodes they are on.

use super::agents::{self, Say};
use super::decide::Decision;
use super::tell::Work;
use super::{describe, left, parts};
use crate::plan::{Again, Write};
use crate::seen::{Pod, Readiness};

impl<'a> Decision<'a> {
    /// Deletes every pod that is not already on its way; one on a lost node at once, unless it may still write to a
    /// disk somewhere. All others have their agents make everything fit for it first, all at the same time.
    pub(super) fn stop_pods(&self) -> Work {
        let mut work = Work::default();
        for pod in self.parts.all() {
            let lost = self.lost_node(pod).is_some();
            let forced = lost && (pod.is_over() || !self.has_disk());
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

    /// When the next of our pods' nodes would count as lost.
    pub(super) fn node_watch(&self) -> Again {
        let nodes = self.parts.all().filter_map(|pod| self.seen.nodes.get(pod.node.as_deref()?));
        let lefts = nodes.filter_map(|node| match node.readiness {
            Readiness::Unready(since) => left(self.settings.lost_after, since, self.now),
            Readiness::Ready | Readiness::New => None,
        });
        lefts.min().map_or(Again::OnChange, Again::After)
    }

    pub(super) fn stopping_message(&self, plain: &str) -> String {
        let lost = self.lost_nodes().next();
        lost.map_or_else(|| plain.to_owned(), |node| describe::node_lost(node, self.has_disk(), self.is_spot()))
    }
}
