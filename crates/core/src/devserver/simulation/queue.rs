//! The queue, as far as one server can see it: grants where there is room, takes back what is not kept or not needed.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Admission;
use odc_api::v1alpha1::condition::Reason;

use super::api::{Answer, time};
use super::observer::Did;
use super::{Cluster, Pod};
use crate::devserver::fixtures::settings;
use crate::devserver::{Wish, granted, parts, wish};
use crate::seen::Readiness;

/// How long the kube-scheduler may find no place for a pod.
const REFUSED_AFTER: Duration = Duration::from_secs(60);

impl Cluster {
    /// One pass; whether it wrote anything.
    pub(super) fn queue(&mut self) -> bool {
        let Some((did, admission)) = self.queue_decides() else { return false };
        let flavor = self.request.check(|checked| checked.as_ref().ok().map(|valid| valid.flavor_name.clone()));
        // A pass that was interrupted is simply made again.
        let _ = self.write(|cluster| {
            let status = cluster.request.server.status.get_or_insert_default();
            let run = status.admission.as_ref().map_or(0, |admission| admission.run);
            assert!(admission.run >= run, "run {} after {run}", admission.run);
            status.admission = Some(admission);
            status.flavor = status.flavor.take().or(flavor);
            cluster.did(did);
            cluster.touch();
            Answer::Done
        });
        true
    }

    fn queue_decides(&self) -> Option<(Did, Admission)> {
        let server = self.server();
        let settings = settings();
        let is_ours = |pod: &Pod| pod.details().made_for == server.metadata.uid;
        let pods_left = self.pods.iter().any(is_ours);
        let wish = self.request.check(|checked| wish(server, checked, pods_left, &settings, self.now));
        let old = server.status.as_ref().and_then(|status| status.admission.clone()).unwrap_or_default();
        if granted(server.status.as_ref()).is_some() {
            let taken = Admission { nodes: vec![], granted_at: None, gives_way_at: None, ..old.clone() };
            if wish == Wish::Rest {
                return (!pods_left).then_some((Did::Release, taken));
            }
            let gave_way = old.gives_way_at.as_ref().is_some_and(|at| at.0 <= self.now) && !pods_left;
            let gave_way = gave_way.then(|| (Reason::Preempted, "It gave way.".to_owned()));
            let (reason, message) = self.broken(&old).or(gave_way)?;
            let reason = Some(reason.into());
            return Some((Did::Revoke, Admission { reason, message: Some(message.as_str().into()), ..taken }));
        }
        if wish != Wish::Run {
            return None;
        }
        let open =
            self.machines.iter().filter(|machine| self.is_ready(&machine.name)).map(|machine| machine.name.clone());
        let nodes: Vec<String> = open.take(server.spec.nodes as usize).collect();
        if nodes.len() < server.spec.nodes as usize {
            let (reason, message) = (Some(Reason::InsufficientCapacity.into()), Some("Too few nodes are free.".into()));
            let waits = Admission { reason, message, ..old.clone() };
            return (waits != old).then_some((Did::Explain, waits));
        }
        let granted_at = Some(time(self));
        let run = old.run + 1;
        Some((Did::Grant, Admission { run, nodes, granted_at, reason: None, message: None, ..old }))
    }

    /// Somebody with a better right asks for its place, and it has so long to leave.
    pub(super) fn asked_away(&mut self, within: Duration) {
        if granted(self.server().status.as_ref()).is_none() {
            return;
        }
        let at = odc_api::time::stored(self.now.saturating_add(within).unwrap());
        let status = self.request.server.status.get_or_insert_default();
        let admission = status.admission.get_or_insert_default();
        admission.gives_way_at.get_or_insert(at);
        (admission.reason, admission.message) =
            (Some(Reason::Preempted.into()), Some("Somebody needs its place.".into()));
        self.touch();
    }

    fn is_ready(&self, name: &str) -> bool {
        self.machine(name).node.as_ref().is_some_and(crate::seen::Node::is_ready)
    }

    /// Why a grant cannot be kept.
    fn broken(&self, admission: &Admission) -> Option<(Reason, String)> {
        let lost_after = settings().lost_after;
        for node in &admission.nodes {
            if self.seen_node(node).is_none_or(|seen| parts::is_lost(&seen, lost_after, self.now)) {
                return Some((Reason::NodeLost, format!("Node {node} does not answer any more and counts as lost.")));
            }
        }
        if admission.nodes.len() != self.server().spec.nodes as usize {
            return Some((Reason::Unschedulable, "Its grant is not of its size.".to_owned()));
        }
        let refused = self.pods.iter().map(|pod| &pod.seen).filter(|pod| pod.deleting.is_none()).find(|pod| {
            let of_run = pod.server.as_ref().is_some_and(|details| details.run == Some(admission.run));
            of_run && (pod.is_over() || refused_at(pod).is_some_and(|at| at <= self.now))
        })?;
        Some((Reason::Unschedulable, format!("Pod {} was refused.", refused.name)))
    }

    /// When the queue has something to do although nothing changes.
    pub(super) fn queue_due(&self) -> Option<Timestamp> {
        let lost_after = settings().lost_after;
        let lost = self.machines.iter().filter_map(|machine| match self.seen_node(&machine.name)?.readiness {
            Readiness::Unready(since) => Some(since.saturating_add(lost_after).unwrap()),
            Readiness::Ready | Readiness::New => None,
        });
        let refused = self.pods.iter().filter_map(|pod| refused_at(&pod.seen));
        let booked = self.server().spec.scheduling.not_before.as_ref().map(|at| at.0);
        // A lifetime that is over is nothing to run for.
        let over = self.status().expires_at.map(|at| at.0.saturating_add(settings().expiry_grace).unwrap());
        let gives_way = self.status().admission.and_then(|admission| admission.gives_way_at).map(|at| at.0);
        lost.chain(refused).chain(booked).chain(over).chain(gives_way).filter(|at| *at > self.now).min()
    }
}

fn refused_at(pod: &crate::seen::Pod) -> Option<Timestamp> {
    let since = pod.server.as_ref()?.unschedulable.filter(|_| pod.node.is_none())?;
    Some(since.saturating_add(REFUSED_AFTER).unwrap())
}
