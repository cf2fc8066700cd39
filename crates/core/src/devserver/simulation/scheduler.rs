//! The simulated scheduler for one server: admits it if nodes are ready, and revokes or releases the admission.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Admission;
use odc_api::v1alpha1::condition::Reason;

use super::api::{Answer, time};
use super::observer::Effect;
use super::{Cluster, Pod};
use crate::cluster::Readiness;
use crate::devserver::fixtures::settings;
use crate::devserver::{QueueIntent, QueueRequest, active_admission, queue_intent};

/// How long a pod may be unschedulable.
const UNSCHEDULABLE_TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Runs one scheduling cycle and reports whether it wrote anything.
    pub(super) fn schedule(&mut self) -> bool {
        let Some((effect, admission)) = self.scheduler_decision() else { return false };
        let flavor = self.request.check(|checked| checked.as_ref().ok().map(|valid| valid.flavor_name.clone()));
        // An interrupted cycle is repeated.
        let _ = self.write(|cluster| {
            let status = cluster.request.server.status.get_or_insert_default();
            let run = status.admission.as_ref().map_or(0, |admission| admission.run);
            assert!(admission.run >= run, "run {} after {run}", admission.run);
            status.admission = Some(admission);
            status.flavor = status.flavor.take().or(flavor);
            cluster.record(effect);
            cluster.touch();
            Answer::Done
        });
        true
    }

    fn scheduler_decision(&self) -> Option<(Effect, Admission)> {
        let server = self.server();
        let settings = settings();
        let is_owned = |pod: &Pod| pod.details().created_for == server.metadata.uid;
        let has_pods = self.pods.iter().any(is_owned);
        let (intent, _) = self
            .request
            .check(|checked| queue_intent(server, QueueRequest::new(checked), || has_pods, &settings, self.now));
        let old = server.status.as_ref().and_then(|status| status.admission.clone()).unwrap_or_default();
        if active_admission(server.status.as_ref()).is_some() {
            let released = Admission { nodes: vec![], admitted_at: None, preempt_at: None, ..old.clone() };
            if intent == QueueIntent::Stopped {
                return (!has_pods).then_some((Effect::Release, released));
            }
            let preempted = old.preempt_at.as_ref().is_some_and(|at| at.0 <= self.now) && !has_pods;
            let preempted = preempted.then(|| (Reason::Preempted, "Preempted.".to_owned()));
            let (reason, message) = self.revocation_cause(&old).or(preempted)?;
            let reason = Some(reason.into());
            return Some((Effect::Revoke, Admission { reason, message: Some(message.as_str().into()), ..released }));
        }
        if intent != QueueIntent::Run {
            return None;
        }
        let ready =
            self.machines.iter().filter(|machine| self.is_ready(&machine.name)).map(|machine| machine.name.clone());
        let nodes: Vec<String> = ready.take(server.spec.nodes as usize).collect();
        if nodes.len() < server.spec.nodes as usize {
            let (reason, message) = (Some(Reason::InsufficientCapacity.into()), Some("Insufficient nodes.".into()));
            let pending = Admission { reason, message, ..old.clone() };
            return (pending != old).then_some((Effect::UpdatePending, pending));
        }
        let admitted_at = Some(time(self));
        let run = old.run + 1;
        Some((Effect::Admit, Admission { run, nodes, admitted_at, reason: None, message: None, ..old }))
    }

    /// Preempts the server after a notice period.
    pub(super) fn preempt(&mut self, notice: Duration) {
        if active_admission(self.server().status.as_ref()).is_none() {
            return;
        }
        let at = odc_api::time::to_api_precision(self.now.saturating_add(notice).unwrap());
        let status = self.request.server.status.get_or_insert_default();
        let admission = status.admission.get_or_insert_default();
        admission.preempt_at.get_or_insert(at);
        (admission.reason, admission.message) =
            (Some(Reason::Preempted.into()), Some("Preempted by a server with higher priority.".into()));
        self.touch();
    }

    fn is_ready(&self, name: &str) -> bool {
        self.machine(name).node.as_ref().is_some_and(crate::cluster::Node::is_ready)
    }

    /// Returns why the admission must be revoked.
    fn revocation_cause(&self, admission: &Admission) -> Option<(Reason, String)> {
        let node_lost_timeout = settings().node_lost_timeout;
        for node in &admission.nodes {
            if self.observed_node(node).is_none_or(|node| node.is_lost(node_lost_timeout, self.now)) {
                return Some((Reason::NodeLost, format!("Node {node} is unreachable and considered lost.")));
            }
        }
        if admission.nodes.len() != self.server().spec.nodes as usize {
            return Some((Reason::Unschedulable, "Size mismatch.".to_owned()));
        }
        let rejected =
            self.pods.iter().map(|pod| &pod.object).filter(|pod| pod.deletion_timestamp.is_none()).find(|pod| {
                let of_run = pod.server.as_ref().is_some_and(|details| details.run == Some(admission.run));
                of_run && (pod.is_terminated() || rejected_at(pod).is_some_and(|at| at <= self.now))
            })?;
        Some((Reason::Unschedulable, format!("Pod {} was rejected.", rejected.name)))
    }

    /// Returns when the next scheduling cycle is due without a change.
    pub(super) fn scheduler_due(&self) -> Option<Timestamp> {
        let node_lost_timeout = settings().node_lost_timeout;
        let lost = self.machines.iter().filter_map(|machine| match self.observed_node(&machine.name)?.readiness {
            Readiness::Unready(since) => Some(since.saturating_add(node_lost_timeout).unwrap()),
            Readiness::Ready | Readiness::New => None,
        });
        let rejected = self.pods.iter().filter_map(|pod| rejected_at(&pod.object));
        let booked = self.server().spec.scheduling.not_before.as_ref().map(|at| at.0);
        // An expired server is not admitted.
        let expired = self.status().expires_at.map(|at| at.0.saturating_add(settings().expiry_grace).unwrap());
        let preempted = self.status().admission.and_then(|admission| admission.preempt_at).map(|at| at.0);
        lost.chain(rejected).chain(booked).chain(expired).chain(preempted).filter(|at| *at > self.now).min()
    }
}

fn rejected_at(pod: &crate::cluster::Pod) -> Option<Timestamp> {
    let since = pod.server.as_ref()?.unschedulable_since.filter(|_| pod.node.is_none())?;
    Some(since.saturating_add(UNSCHEDULABLE_TIMEOUT).unwrap())
}
