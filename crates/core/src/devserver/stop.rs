//! Stopping the pods of a server.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::agent_requests::{self, AgentRequest};
use super::reconcile::Reconcile;
use super::status::Actions;
use super::{messages, pods};
use crate::cluster::Pod;
use crate::plan::{Requeue, Write};
use crate::time::remaining;

/// How long after its grace period a pod may be blocked by a finalizer before it is reported.
const BLOCKED_REPORT_DELAY: Duration = Duration::from_secs(10);
/// How long after its grace period a pod may still exist before it is reported.
const OVERDUE_REPORT_DELAY: Duration = Duration::from_secs(60);

impl<'a> Reconcile<'a> {
    /// Quiesces the agents of all pods, then deletes the pods. Pods on lost nodes are force-deleted, unless they may
    /// still write to a persistent volume.
    pub(super) fn stop_pods(&self) -> Actions {
        let mut actions = Actions::default();
        for pod in self.pods.all() {
            let lost = self.lost_node(pod).is_some();
            // Deleting a pod again does not remove its finalizers.
            let blocked = pod.deletion_timestamp.is_some() && is_blocked(pod);
            let force = lost && !blocked && (pod.is_terminated() || !self.has_volume());
            if let Some(timeout) = self.quiesce_timeout(pod).filter(|_| !lost) {
                actions.calls.extend(agent_requests::call(pod, AgentRequest::Quiesce(timeout)));
                actions.requeue = actions.requeue.earlier(Requeue::After(timeout));
            } else if force || pod.deletion_timestamp.is_none() {
                actions.writes.push(Write::Delete(pods::target(pod, force.then_some(0))));
            }
        }
        actions
    }

    /// Reports whether pods of the server share a volume with their successors. Without the flavor its volumes are
    /// unknown, so the answer is yes.
    pub(super) fn has_volume(&self) -> bool {
        let volumes = self.checked.as_ref().map_or(true, |valid| !valid.volumes.is_empty());
        volumes || !matches!(self.server.spec.home, odc_api::v1alpha1::Home::Ephemeral(_))
    }

    /// Reports whether the server runs on spot capacity.
    pub(super) fn is_spot(&self) -> bool {
        self.checked.as_ref().is_ok_and(|valid| valid.flavor.spot)
    }

    fn lost_node(&self, pod: &'a Pod) -> Option<&'a str> {
        pods::lost_node(pod, &self.observed.nodes, self.settings.node_lost_timeout, self.now)
    }

    /// Reports whether an assigned node is lost. A deleted node counts as lost once no pod of the server is on it.
    pub(super) fn is_node_lost(&self, name: &str) -> bool {
        match self.observed.nodes.get(name) {
            Some(node) => node.is_lost(self.settings.node_lost_timeout, self.now),
            None => self.pods.all().all(|pod| pod.node.as_deref() != Some(name)),
        }
    }

    /// Returns the lost nodes of pods that had not terminated.
    pub(super) fn lost_nodes(&self) -> impl Iterator<Item = &'a str> {
        self.pods.all().filter(|pod| !pod.is_terminated()).filter_map(|pod| self.lost_node(pod))
    }

    /// Returns when the next node of a pod counts as lost, or the next termination must be reported.
    pub(super) fn next_pod_check(&self) -> Requeue {
        let nodes = self.pods.all().filter_map(|pod| self.observed.nodes.get(pod.node.as_deref()?));
        let lost = nodes.filter_map(|node| node.until_lost(self.settings.node_lost_timeout, self.now));
        let blocked = self
            .terminating()
            .filter(|(pod, _)| is_blocked(pod))
            .filter_map(|(_, deadline)| remaining(BLOCKED_REPORT_DELAY, deadline, self.now));
        let overdue =
            self.terminating().filter_map(|(_, deadline)| remaining(OVERDUE_REPORT_DELAY, deadline, self.now));
        lost.chain(blocked).chain(overdue).min().map_or(Requeue::AwaitChange, Requeue::After)
    }

    /// Returns terminating pods that occupy names of the server, with the end of their grace period.
    fn terminating(&self) -> impl Iterator<Item = (&'a Pod, Timestamp)> {
        let all = self.pods.terminating.iter().chain(&self.pods.foreign).copied();
        all.filter_map(|pod| Some((pod, pod.deletion_timestamp?)))
    }

    /// Returns a message if the termination of a pod is blocked by a finalizer.
    pub(super) fn blocked_termination(&self) -> Option<String> {
        let mut blocked = self.terminating().filter(|(pod, deadline)| {
            is_blocked(pod) && remaining(BLOCKED_REPORT_DELAY, *deadline, self.now).is_none()
        });
        blocked.find_map(|(pod, _)| {
            let finalizers = &pod.server.as_ref()?.blocking_finalizers;
            Some(messages::pod_termination_blocked(&pod.name, finalizers))
        })
    }

    /// Returns a message if the node of a pod did not terminate it in time.
    pub(super) fn overdue_termination(&self) -> Option<String> {
        let mut overdue =
            self.terminating().filter(|(_, deadline)| remaining(OVERDUE_REPORT_DELAY, *deadline, self.now).is_none());
        overdue.find_map(|(pod, _)| {
            let node = pod.node.as_deref()?;
            let ready = self.observed.nodes.get(node).is_some_and(|node| node.is_ready());
            Some(messages::pod_termination_overdue(&pod.name, node, ready))
        })
    }

    /// Returns what delays the stop, or `default`.
    pub(super) fn stopping_message(&self, default: &str) -> String {
        let lost = || Some(messages::node_lost(self.lost_nodes().next()?, self.has_volume(), self.is_spot()));
        self.blocked_termination()
            .or_else(lost)
            .or_else(|| self.overdue_termination())
            .unwrap_or_else(|| default.to_owned())
    }
}

fn is_blocked(pod: &Pod) -> bool {
    pod.server.as_ref().is_some_and(|details| !details.blocking_finalizers.is_empty())
}
