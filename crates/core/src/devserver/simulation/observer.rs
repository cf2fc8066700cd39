//! What must hold at every step, by reasons of its own: nothing here asks the code under test.

use std::collections::BTreeMap;
use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{Desired, DevServerStatus, HibernationCause, Phase};

use super::{Cluster, Pod, Process};
use crate::devserver::fixtures::settings;
use crate::object::Kind;
use crate::plan::Target;
use crate::seen::Readiness;

/// A write of ours that changed something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Did {
    Create(Kind, String),
    Delete(Kind, String),
    Change(Kind, String),
    Grant,
    Release,
    Revoke,
    /// The queue says what is missing.
    Explain,
    Status(Phase),
}

#[derive(Clone, Default)]
pub(super) struct Observer {
    pub log: Vec<Did>,
    /// That its end is near.
    pub warnings: Vec<String>,
    /// How long the server has been Running.
    pub ran: Duration,
    pub secret_made: bool,
    /// Whether anything in this run may end a server as Failed.
    pub may_fail: bool,
}

impl Observer {
    /// How often each object was made and removed, and the queue decided.
    pub fn counts(&self) -> BTreeMap<Did, usize> {
        let mut counts = BTreeMap::new();
        for did in self.log.iter().filter(|did| !matches!(did, Did::Status(_) | Did::Explain)) {
            *counts.entry(did.clone()).or_default() += 1;
        }
        counts
    }
}

impl Cluster {
    pub(super) fn did(&mut self, did: Did) {
        self.observer.secret_made |= matches!(did, Did::Create(Kind::Secret, _));
        self.observer.log.push(did);
        self.changed();
    }

    /// Phases follow the published graph, ends are final, and time is not taken from anybody.
    pub(super) fn check_status(&self, new: &DevServerStatus) {
        let (old, new_phase) = (self.status(), new.phase.unwrap());
        self.check_idle(&old, new);
        match old.phase {
            Some(old) if old == new_phase => {}
            Some(old) => assert!(new_phase.may_follow(old), "{new_phase} after {old}"),
            None => assert!(new_phase != Phase::Expired, "{new_phase} at first"),
        }
        assert!(!old.phase.is_some_and(Phase::terminal), "an ended server changes: {old:?} to {new:?}");
        assert!(new_phase != Phase::Failed || self.observer.may_fail, "failed: {:?}", new.last_failure);
        assert_eq!((&old.admission, &old.flavor), (&new.admission, &new.flavor), "the queue's part is the queue's");
        assert!(new.observed_generation >= old.observed_generation);
        assert_eq!(new.finished_at.is_some(), new_phase.terminal());
        assert_eq!(new.running_since.is_some(), new_phase == Phase::Running);
        assert!(new.timeline.len() <= 20);
        if used_up(new) && !used_up(&old) {
            let granted = new.lifetime.unwrap().granted.as_std();
            assert!(self.observer.ran >= granted, "stopped after {:?} of {granted:?}", self.observer.ran);
        }
        if new_phase == Phase::Cancelled && is_ready_for(new, Reason::QueuedTooLong) {
            let run = old.admission.map_or(0, |admission| admission.run);
            assert_eq!((run, &old.started_at), (0, &None), "it ran before");
            let waited = self.now.duration_since(old.waiting_since.unwrap().0);
            assert!(waited.unsigned_abs() >= settings().queue_limit.unwrap(), "cancelled after {waited:#}");
        }
        if new_phase.terminal() {
            assert!(self.pods.is_empty() || new_phase == Phase::Failed, "{new_phase} with pods left");
        }
    }

    /// Ended servers get no pods, and nothing is started beside something that may still write to the same disk.
    pub(super) fn check_new_pod(&self, pod: &Pod) {
        let status = self.status();
        let admission = status.admission.unwrap_or_default();
        assert!(!status.phase.is_some_and(Phase::terminal), "a pod for an ended server");
        assert_eq!(pod.details().run, Some(admission.run));
        assert!(admission.nodes.contains(&pod.pinned), "{} on {}, not granted", pod.seen.name, pod.pinned);
        assert!(self.observer.secret_made, "a pod before its Secret");
        if self.has_disk() {
            let other = self.processes.iter().find(|process| process.pod_name == pod.seen.name);
            assert!(other.is_none(), "{} is made while {other:?} may still write", pod.seen.name);
            let other = self.request.neighbours.first();
            assert!(other.is_none(), "{} is made beside {other:?}", pod.seen.name);
        }
    }

    pub(super) fn check_process(&self, new: &Process, at: usize) {
        let pod = &self.pods[at];
        let other = self.processes.iter().find(|process| process.pod_name == new.pod_name);
        assert!(other.is_none() || !self.has_disk(), "{new:?} beside {other:?}");
        // It comes up with the key that people were told.
        let key = self.secret.as_ref().map(|secret| &secret.key);
        assert_eq!(key, Some(&pod.key), "pod {} has another key than its Secret", pod.seen.name);
    }

    /// No pod is deleted without a reason that the owner would accept, at the time it was decided.
    pub(super) fn check_stop(&self, target: &Target) {
        self.decided_on.as_deref().unwrap_or(self).check_reason_to_stop(target);
    }

    fn check_reason_to_stop(&self, target: &Target) {
        let (status, spec) = (self.status(), &self.server().spec);
        let pod = self.pods.iter().find(|pod| pod.seen.uid == target.uid).unwrap();
        let asleep = status
            .hibernation
            .as_ref()
            .is_some_and(|hibernation| hibernation.by != HibernationCause::User && hibernation.wake_seen == spec.wake);
        let deleted = self.server().metadata.deletion_timestamp.is_some();
        let stopping = deleted || status.phase.is_some_and(|phase| phase == Phase::Stopping || phase.terminal());
        let admission = status.admission.clone().unwrap_or_default();
        let of_run = !admission.nodes.is_empty() && pod.details().run == Some(admission.run);
        let mut nodes = self.pods.iter().filter_map(|pod| pod.seen.node.as_ref()).chain(&admission.nodes);
        let lost = nodes.any(|node| self.is_lost(node));
        let keyless = self.secret.is_none();
        self.check_asked(target, lost);
        let gives_way = admission.gives_way_at.as_ref().is_some_and(|at| at.0 <= self.now);
        let misfit = admission.nodes.len() != spec.nodes as usize;
        let fine =
            spec.desired != Desired::Running || asleep || stopping || !of_run || lost || keyless || gives_way || misfit;
        assert!(fine, "{} is stopped for no reason: {status:#?}", target.name);
        if target.grace == Some(0) {
            let gone = pod.seen.node.as_ref().is_some_and(|node| self.is_lost(node));
            assert!(gone && (pod.seen.is_over() || !self.has_disk()), "{} is not waited for", target.name);
        }
    }

    fn is_lost(&self, name: &str) -> bool {
        let long = |since| self.now.duration_since(since).as_secs() >= settings().lost_after.as_secs().cast_signed();
        let machine = self.machine(name);
        match machine.node.as_ref().map(|node| node.readiness) {
            None => machine.missing.is_none_or(long),
            Some(Readiness::Unready(since)) => long(since),
            Some(Readiness::Ready | Readiness::New) => false,
        }
    }

    /// While all is well nobody runs longer than they may.
    pub(super) fn check_time(&self) {
        // What is held back for a moment is not stored yet.
        let runs = self.phase() == Some(Phase::Running) && self.operator.held.is_none();
        if let Some(expires) = self.status().expires_at.filter(|_| runs) {
            let end = expires.0.saturating_add(settings().expiry_grace).unwrap();
            assert!(self.now < end, "it is {} and the server runs until {end}", self.now);
        }
    }
}

/// Whether the condition Ready has this reason.
fn is_ready_for(status: &DevServerStatus, reason: Reason) -> bool {
    condition::find(&status.conditions, Type::Ready).is_some_and(|condition| condition.reason == reason.as_str())
}

fn used_up(status: &DevServerStatus) -> bool {
    let expiring = condition::find(&status.conditions, Type::Expiring);
    status.phase == Some(Phase::Stopping)
        && expiring.is_some_and(|condition| condition.reason == Reason::LifetimeUsedUp.as_str())
}
