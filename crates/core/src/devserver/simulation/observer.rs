//! Invariants that must hold at each step. They do not use the code under test.

use std::collections::BTreeMap;
use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Desired, DevServerStatus, HibernationCause, Phase, StopCause};

use super::{Cluster, Pod, Process};
use crate::cluster::Readiness;
use crate::devserver::fixtures::settings;
use crate::manifest::Kind;
use crate::plan::Target;

/// An effective write of the operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    Create(Kind, String),
    Delete(Kind, String),
    Change(Kind, String),
    Admit,
    Release,
    Revoke,
    /// The scheduler updates the reason of a pending server.
    UpdatePending,
    Status(Phase),
}

#[derive(Clone, Default)]
pub(super) struct Observer {
    pub log: Vec<Effect>,
    /// Events that the server expires soon.
    pub warnings: Vec<String>,
    /// How long the server has been Running.
    pub ran: Duration,
    pub secret_created: bool,
    /// Whether the server may end as Failed in this run.
    pub may_fail: bool,
}

impl Observer {
    /// Returns the number of writes by kind, without status updates.
    pub fn counts(&self) -> BTreeMap<Effect, usize> {
        let mut counts = BTreeMap::new();
        for effect in self.log.iter().filter(|effect| !matches!(effect, Effect::Status(_) | Effect::UpdatePending)) {
            *counts.entry(effect.clone()).or_default() += 1;
        }
        counts
    }
}

impl Cluster {
    pub(super) fn record(&mut self, effect: Effect) {
        self.observer.secret_created |= matches!(effect, Effect::Create(Kind::Secret, _));
        self.observer.log.push(effect);
        self.changed();
    }

    /// Checks that phases follow the documented graph, terminal phases are final, and no server runs shorter than granted.
    pub(super) fn check_status(&self, new: &DevServerStatus) {
        let (old, new_phase) = (self.status(), new.phase.unwrap());
        self.check_idle(&old, new);
        match old.phase {
            Some(old) if old == new_phase => {}
            Some(old) => assert!(new_phase.may_follow(old), "{new_phase} after {old}"),
            None => assert!(new_phase != Phase::Expired, "initial phase {new_phase}"),
        }
        assert!(
            !old.phase.is_some_and(Phase::is_terminal),
            "the status of an ended server changes: {old:?} to {new:?}"
        );
        assert!(new_phase != Phase::Failed || self.observer.may_fail, "failed: {:?}", new.last_failure);
        assert_eq!(
            (&old.admission, &old.flavor),
            (&new.admission, &new.flavor),
            "the controller changes fields of the scheduler"
        );
        assert!(new.observed_generation >= old.observed_generation);
        assert_eq!(new.finished_at.is_some(), new_phase.is_terminal());
        assert_eq!(new.running_since.is_some(), new_phase == Phase::Running);
        assert!(new.timeline.len() <= 20);
        assert_eq!(
            new.stopping.is_some(),
            new_phase == Phase::Stopping,
            "status.stopping without phase Stopping, or vice versa"
        );
        if let (Some(before), Some(after)) = (&old.stopping, &new.stopping) {
            assert_eq!(before, after, "status.stopping changes");
        }
        if let Some(stopping) = &old.stopping {
            let expired = stopping.cause == StopCause::Expired;
            assert!(
                !new_phase.is_terminal() || expired == (new_phase == Phase::Expired),
                "{new_phase} after {stopping:?}"
            );
        }
        if is_expiring(new) && !is_expiring(&old) {
            let granted = new.lifetime.unwrap().granted.as_std();
            assert!(self.observer.ran >= granted, "stopped after {:?} of {granted:?}", self.observer.ran);
        }
        if new_phase == Phase::Cancelled && has_ready_reason(new, Reason::QueueTimeout) {
            let run = old.admission.map_or(0, |admission| admission.run);
            assert_eq!((run, &old.started_at), (0, &None), "the server ran before");
            let waited = self.now.duration_since(old.waiting_since.unwrap().0);
            assert!(waited.unsigned_abs() >= settings().queue_timeout.unwrap(), "cancelled after {waited:#}");
        }
        if new_phase.is_terminal() {
            assert!(self.pods.is_empty() || new_phase == Phase::Failed, "{new_phase} with pods");
        }
    }

    /// Checks that no pod is created for an ended server, or while another pod may still write to the volume.
    pub(super) fn check_new_pod(&self, pod: &Pod) {
        let status = self.status();
        let admission = status.admission.unwrap_or_default();
        assert!(!status.phase.is_some_and(Phase::is_terminal), "pod created for an ended server");
        assert_eq!(pod.details().run, Some(admission.run));
        assert!(admission.nodes.contains(&pod.pinned), "{} on {}, which is not assigned", pod.object.name, pod.pinned);
        assert!(self.observer.secret_created, "pod created before its Secret");
        if self.has_volume() {
            let other = self.processes.iter().find(|process| process.pod_name == pod.object.name);
            assert!(other.is_none(), "{} is created while {other:?} may still write", pod.object.name);
            let other = self.request.neighbours.first();
            assert!(other.is_none(), "{} is created besides {other:?}", pod.object.name);
        }
    }

    pub(super) fn check_process(&self, new: &Process, index: usize) {
        let pod = &self.pods[index];
        let other = self.processes.iter().find(|process| process.pod_name == new.pod_name);
        assert!(other.is_none() || !self.has_volume(), "{new:?} besides {other:?}");
        // It starts with the key in the status.
        let key = self.secret.as_ref().map(|secret| &secret.key);
        assert_eq!(key, Some(&pod.key), "the key of pod {} differs from its Secret", pod.object.name);
    }

    /// Checks that pods are deleted only for a valid reason at the time of the plan.
    pub(super) fn check_deletion(&self, target: &Target) {
        self.planned_on.as_deref().unwrap_or(self).check_reason_to_delete(target);
    }

    fn check_reason_to_delete(&self, target: &Target) {
        let (status, spec) = (self.status(), &self.server().spec);
        let pod = self.pods.iter().find(|pod| pod.object.uid == target.uid).unwrap();
        let hibernated = status.hibernation.as_ref().is_some_and(|hibernation| {
            hibernation.cause != HibernationCause::User && hibernation.observed_wake == spec.wake
        });
        let deleted = self.server().metadata.deletion_timestamp.is_some();
        let stopping = deleted || status.phase.is_some_and(|phase| phase == Phase::Stopping || phase.is_terminal());
        let admission = status.admission.clone().unwrap_or_default();
        let of_run = !admission.nodes.is_empty() && pod.details().run == Some(admission.run);
        let mut nodes = self.pods.iter().filter_map(|pod| pod.object.node.as_ref()).chain(&admission.nodes);
        let lost = nodes.any(|node| self.is_lost(node));
        let without_secret = self.secret.is_none();
        // A pod whose Secret was deleted is replaced without a stop of the server. Its agent runs preStop when it is
        // terminated.
        self.check_quiesced(target, lost || without_secret);
        let preempted = admission.preempt_at.as_ref().is_some_and(|at| at.0 <= self.now);
        let size_mismatch = admission.nodes.len() != spec.nodes as usize;
        let allowed = spec.desired != Desired::Running
            || hibernated
            || stopping
            || !of_run
            || lost
            || without_secret
            || preempted
            || size_mismatch;
        assert!(allowed, "{} is deleted without a reason: {status:#?}", target.name);
        if target.grace == Some(0) {
            let node_lost = pod.object.node.as_ref().is_some_and(|node| self.is_lost(node));
            assert!(
                node_lost && (pod.object.is_terminated() || !self.has_volume()),
                "{} is force-deleted",
                target.name
            );
        }
    }

    fn is_lost(&self, name: &str) -> bool {
        let is_overdue =
            |since| self.now.duration_since(since).as_secs() >= settings().node_lost_timeout.as_secs().cast_signed();
        let machine = self.machine(name);
        match machine.node.as_ref().map(|node| node.readiness) {
            None => machine.missing.is_none_or(is_overdue),
            Some(Readiness::Unready(since)) => is_overdue(since),
            Some(Readiness::Ready | Readiness::New) => false,
        }
    }

    /// Checks that no server runs longer than its lifetime.
    pub(super) fn check_lifetime(&self) {
        // A deferred phase is not stored yet.
        let is_running = self.phase() == Some(Phase::Running) && self.operator.deferred_phase.is_none();
        if let Some(expires) = self.status().expires_at.filter(|_| is_running) {
            let end = expires.0.saturating_add(settings().expiry_grace).unwrap();
            assert!(self.now < end, "still running at {}, expired at {end}", self.now);
        }
    }
}

/// Reports whether the condition Ready has this reason.
fn has_ready_reason(status: &DevServerStatus, reason: Reason) -> bool {
    condition::find(&status.conditions, Type::Ready).is_some_and(|condition| condition.reason == reason.as_str())
}

fn is_expiring(status: &DevServerStatus) -> bool {
    status.stopping.as_ref().is_some_and(|stopping| stopping.cause == StopCause::Expired)
}
