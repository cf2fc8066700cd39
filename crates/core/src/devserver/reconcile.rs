//! The reconcile state machine: dispatches on the desired state and returns the next plan.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::text::Text;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{
    Admission, DevServer, DevServerStatus, HibernationCause, IdleAction, Phase, ServerPod, StopCause,
};

use super::desired_state::{DesiredState, desired, queue_deadline};
use super::idle::Idleness;
use super::pod_failure::{self, PodFailure};
use super::pods::{self, ServerPods};
use super::status::{Actions, Outcome};
use super::validate::{Valid, Violation};
use super::{Observed, Plan, Settings, SoftState, active_admission, limits, messages};
use crate::cluster::{Pod, blocking_finalizers};
use crate::manifest::Kind;
use crate::plan::{Requeue, Target, Write};
use crate::scheduler;
use crate::time::{remaining, until};

/// The input of a reconciliation.
pub(super) struct Reconcile<'a> {
    pub server: &'a DevServer,
    pub checked: &'a Result<Valid<'a>, Vec<Violation>>,
    pub observed: &'a Observed<'a>,
    pub soft_state: &'a SoftState,
    pub settings: &'a Settings,
    pub now: Timestamp,
    pub pods: ServerPods<'a>,
}

impl<'a> Reconcile<'a> {
    pub(super) fn new(
        server: &'a DevServer,
        checked: &'a Result<Valid<'a>, Vec<Violation>>,
        observed: &'a Observed<'a>,
        soft_state: &'a SoftState,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let name = server.metadata.name.as_deref().unwrap_or_default();
        let uid = server.metadata.uid.as_deref().unwrap_or_default();
        let nodes = server.spec.nodes as usize;
        let admission = active_admission(server.status.as_ref()).filter(|admission| admission.nodes.len() == nodes);
        let pods = pods::classify(&observed.pods, name, uid, nodes, admission.map(|admission| admission.run));
        Self { server, checked, observed, soft_state, settings, now, pods }
    }

    pub(super) fn plan(&self) -> Plan {
        if self.server.metadata.deletion_timestamp.is_some() {
            return self.deleted();
        }
        if let Some(phase) = self.stored_phase().filter(|phase| phase.is_terminal()) {
            return self.finished(phase);
        }
        let idle = (self.is_running() && self.pods.all_ready()).then(|| self.evaluate_idle());
        let action = idle.as_ref().filter(|idle| idle.expired).map(|_| self.server.spec.idle.action);
        let hibernate = action.filter(|action| *action == IdleAction::Hibernate).map(|_| HibernationCause::Idle);
        let hibernate = self.soft_state.hibernate.or(hibernate);
        match desired(self.server, hibernate, limits(self.checked), self.settings, self.now) {
            DesiredState::Run if action == Some(IdleAction::End) => self.stop(StopCause::Idle),
            DesiredState::End(cause) => self.stop(cause),
            DesiredState::Hibernate(cause) => self.hibernate(cause),
            DesiredState::Run => match (self.checked, self.admission()) {
                (Err(violations), None) => self.reject(violations, self.stop_pods()),
                (_, admission) => self.run(admission, idle),
            },
        }
    }

    pub(super) fn stored(&self) -> Option<&'a DevServerStatus> {
        self.server.status.as_ref()
    }

    pub(super) fn stored_phase(&self) -> Option<Phase> {
        self.stored().and_then(|status| status.phase)
    }

    /// Agents are configured and polled only in this phase.
    pub(super) fn is_running(&self) -> bool {
        self.stored_phase() == Some(Phase::Running)
    }

    fn admission(&self) -> Option<&'a Admission> {
        active_admission(self.stored())
    }

    /// ODC sets no finalizer, so a deleted server is only observed while other finalizers block its deletion.
    fn deleted(&self) -> Plan {
        let actions = self.stop_pods();
        let finalizers = blocking_finalizers(self.server.metadata.finalizers.as_deref());
        if self.stored_phase().is_some_and(Phase::is_terminal) || finalizers.is_empty() {
            return actions.into_plan(self.next_pod_check());
        }
        let message = messages::deletion_blocked(self.server.metadata.name.as_deref().unwrap_or_default(), &finalizers);
        let outcome = Outcome::new(Phase::Stopping, Reason::Stopping, message).deletion_blocked();
        self.plan_with_status(&outcome, actions, self.next_pod_check())
    }

    /// Deletes remaining pods, and the server itself after its TTL. Terminal phases are final.
    fn finished(&self, phase: Phase) -> Plan {
        let plan = Plan { phase: Some(phase), ..Plan::empty() };
        if !self.pods.is_empty() {
            return Plan { phase: Some(phase), ..self.stop_pods().into_plan(self.next_pod_check()) };
        }
        let Some(finished) = self.stored().and_then(|status| status.finished_at.as_ref()) else { return plan };
        match remaining(self.settings.ttl_after_finished, finished.0, self.now) {
            Some(remaining) => Plan { requeue: Requeue::After(remaining), ..plan },
            None => Plan { writes: vec![Write::Delete(self.server_target())], ..plan },
        }
    }

    fn server_target(&self) -> Target {
        Target::from_metadata(Kind::DevServer, &self.server.metadata)
    }

    /// Ends the server: the cause is stored, the pods are stopped, the scheduler releases the nodes, and the terminal
    /// phase is stored.
    fn stop(&self, cause: StopCause) -> Plan {
        let (phase, reason, message) = match cause {
            StopCause::Expired => (Phase::Expired, Reason::LifetimeExceeded, messages::EXPIRED.to_owned()),
            StopCause::User => (Phase::Cancelled, Reason::Ended, messages::CANCELLED.to_owned()),
            StopCause::Idle => (Phase::Cancelled, Reason::Idle, messages::ENDED_BY_IDLENESS.to_owned()),
            StopCause::QueueTimeout => {
                let timeout = self.settings.queue_timeout.unwrap_or_default();
                (Phase::Cancelled, Reason::QueueTimeout, messages::queue_timeout(timeout))
            }
        };
        let outcome = |phase, message: String| Outcome::new(phase, reason, message).stopping(cause);
        if matches!(cause, StopCause::Expired | StopCause::Idle) && self.stored_phase() != Some(Phase::Stopping) {
            // Stored before any pod is stopped: until this write the owner can extend the server, afterwards not. The
            // other causes are in the spec, or apply to servers without pods.
            let outcome = outcome(Phase::Stopping, self.stopping_message(messages::STOPPING));
            return self.plan_with_status(&outcome, vec![], Requeue::After(Duration::ZERO));
        }
        if !self.pods.is_empty() {
            let outcome = outcome(Phase::Stopping, self.stopping_message(messages::STOPPING));
            return self.plan_with_status(&outcome, self.stop_pods(), self.next_pod_check());
        }
        if self.admission().is_some() {
            return Plan { phase: Some(Phase::Stopping), ..Plan::empty() };
        }
        let requeue = Requeue::After(self.settings.ttl_after_finished);
        self.plan_with_status(&outcome(phase, message), vec![], requeue)
    }

    /// Hibernates the server in the same order as [`Self::stop`]. A cause that is not in the spec is stored first.
    fn hibernate(&self, cause: HibernationCause) -> Plan {
        let reason = match cause {
            HibernationCause::User => Reason::HibernatedByUser,
            HibernationCause::Idle => Reason::HibernatedByIdleness,
            HibernationCause::Drain => Reason::HibernatedByDrain,
        };
        let stored = self.stored().is_some_and(|status| status.hibernation.is_some());
        let hibernating = Outcome::new(Phase::Hibernating, reason, self.stopping_message(messages::HIBERNATING));
        if cause != HibernationCause::User && !stored {
            return self.plan_with_status(&hibernating.hibernating(cause), vec![], Requeue::After(Duration::ZERO));
        }
        if !self.pods.is_empty() {
            let outcome = if stored { hibernating.hibernating(cause) } else { hibernating };
            return self.plan_with_status(&outcome, self.stop_pods(), self.next_pod_check());
        }
        if self.admission().is_some() {
            return Plan { phase: Some(Phase::Hibernating), ..Plan::empty() };
        }
        let outcome = Outcome::new(Phase::Hibernated, reason, messages::hibernated(cause).into()).hibernating(cause);
        self.plan_with_status(&outcome, vec![], Requeue::AwaitChange)
    }

    /// Waits until the request, or what it refers to, is corrected.
    pub(super) fn reject(&self, violations: &[Violation], actions: impl Into<Actions>) -> Plan {
        let reason = violations.first().map_or(Reason::Invalid, |violation| violation.reason);
        let message = violations.iter().map(|violation| violation.message.as_str()).collect::<Vec<_>>().join(" ");
        let outcome = Outcome::new(self.unqueued_phase(), reason, message).rejected();
        self.plan_with_status(&outcome, actions, self.next_pod_check())
    }

    /// Returns the phase of a server that cannot be queued. A server never returns to Pending.
    fn unqueued_phase(&self) -> Phase {
        match self.stored_phase() {
            None | Some(Phase::Pending) => Phase::Pending,
            Some(_) => Phase::Queued,
        }
    }

    fn run(&self, admission: Option<&Admission>, idle: Option<Idleness>) -> Plan {
        if let Some(plan) = self.node_lost(admission) {
            return plan;
        }
        let Some(admission) = admission else { return self.pending() };
        match self.until_preemption() {
            None => self.continue_run(admission, idle),
            Some(Duration::ZERO) => self.preempt(),
            Some(remaining) => {
                let plan = self.continue_run(admission, idle);
                Plan { requeue: plan.requeue.earlier(Requeue::After(remaining)), ..plan }
            }
        }
    }

    fn continue_run(&self, admission: &Admission, idle: Option<Idleness>) -> Plan {
        if admission.nodes.len() != self.server.spec.nodes as usize {
            return self.size_mismatch(admission);
        }
        if let Some(pod) = self.pods.terminated.first() {
            return self.requeue_evicted(pod);
        }
        if self.pods.all_ready() {
            return self.running(idle);
        }
        let failures: Vec<PodFailure> =
            self.pods.live().filter_map(|pod| pod_failure::find(pod, self.pull_secret())).collect();
        let running = self.stored().is_some_and(|status| status.running_since.is_some());
        if let Some(fatal) = failures.iter().find(|failure| failure.fatal && !running) {
            return self.fail(fatal);
        }
        let were_ready = self.pods.current.iter().all(|pod| pod.is_some_and(|pod| self.was_ready(pod)));
        if running && were_ready && !self.needs_secret() {
            return self.restarting(&failures);
        }
        self.start(admission, failures.first())
    }

    /// The admission has the wrong number of nodes, so it was not written by ODC. The scheduler revokes it.
    fn size_mismatch(&self, admission: &Admission) -> Plan {
        let message = messages::size_mismatch(admission.nodes.len(), self.server.spec.nodes);
        let outcome = Outcome::new(Phase::Queued, Reason::Unschedulable, message.clone());
        let outcome = outcome.failure(Reason::Unschedulable, message, None);
        self.plan_status_first(&outcome, self.stop_pods(), self.next_pod_check())
    }

    fn pull_secret(&self) -> Option<&str> {
        Some(self.server.spec.image.as_ref()?.pull_secret.as_ref()?.as_str())
    }

    /// Reports whether this pod was ready before, as opposed to a replacement of such a pod, which has the same name. A
    /// pod created before the server became ready was ready then; otherwise the stored address identifies it.
    fn was_ready(&self, pod: &Pod) -> bool {
        let (Some(status), Some(details)) = (self.stored(), &pod.server) else { return false };
        let is_same = |stored: &ServerPod| {
            let ip = stored.ip.as_ref().map(Text::as_str);
            stored.name == pod.name && Some(stored.run) == details.run && ip == details.ip.as_deref()
        };
        let since = status.running_since.as_ref().map(|since| since.0);
        let older = details.created_at.zip(since).is_some_and(|(created, since)| created <= since);
        older || status.pods.iter().any(is_same)
    }

    /// Waits for admission, or for what prevents the server from being queued.
    fn pending(&self) -> Plan {
        let disk = self.checked.as_ref().ok().map(|valid| &valid.disk);
        let begin = self.server.spec.scheduling.not_before.as_ref().filter(|begin| begin.0 > self.now);
        let rejection = || self.soft_state.rejection.clone().map(|message| (Reason::WriteFailed, message));
        let (outcome, requeue) = match (disk.filter(|disk| !disk.ready), begin) {
            (Some(disk), _) => {
                (Outcome::new(self.unqueued_phase(), disk.reason, disk.message.clone()), Requeue::AwaitChange)
            }
            (None, Some(begin)) => {
                let admission = self.stored().and_then(|status| status.admission.as_ref());
                let booking = admission.and_then(|admission| admission.booking.as_ref());
                let confirmed = booking.is_some_and(|booking| booking.from.0.as_second() == begin.0.as_second());
                let booked = || (Reason::Booked, scheduler::messages::booking(confirmed).into());
                let (reason, message) = rejection().unwrap_or_else(booked);
                (Outcome::new(Phase::Queued, reason, message), Requeue::After(until(begin.0, self.now)))
            }
            (None, None) => {
                let pending = || messages::pending(self.stored().and_then(|status| status.admission.as_ref()));
                // The scheduler admits the server only after its old pods are gone.
                let outcome = match self.termination_problem().or_else(rejection).or_else(pending) {
                    Some((reason, message)) => Outcome::new(Phase::Queued, reason, message),
                    None => Outcome::awaiting_scheduler(),
                };
                (outcome.in_queue(), self.queue_timeout())
            }
        };
        let requeue = requeue.earlier(self.next_pod_check());
        // The scheduler may have revoked the admission before the eviction was reported.
        match self.pods.surplus.iter().find(|pod| pod.is_terminated()) {
            Some(pod) => {
                let outcome = outcome.failure(Reason::PodEvicted, messages::pod_evicted(pod), None);
                self.plan_status_first(&outcome, self.stop_pods(), requeue)
            }
            None => self.plan_with_status(&outcome, self.stop_pods(), requeue),
        }
    }

    pub(super) fn termination_problem(&self) -> Option<(Reason, String)> {
        let message = self.blocked_termination().or_else(|| self.overdue_termination())?;
        Some((Reason::PodTerminationBlocked, message))
    }

    fn queue_timeout(&self) -> Requeue {
        let deadline = queue_deadline(self.server, self.settings);
        deadline.map_or(Requeue::AwaitChange, |deadline| Requeue::After(until(deadline, self.now)))
    }

    /// A pod was evicted. The scheduler revokes the admission, and then the pod is deleted.
    fn requeue_evicted(&self, pod: &Pod) -> Plan {
        let message = messages::pod_evicted(pod);
        let outcome = Outcome::new(Phase::Queued, Reason::PodEvicted, message.clone());
        self.plan_with_status(&outcome.failure(Reason::PodEvicted, message, None), vec![], self.next_pod_check())
    }

    fn until_preemption(&self) -> Option<Duration> {
        let at = self.admission()?.preempt_at.as_ref()?;
        Some(until(at.0, self.now))
    }

    /// Stops the pods of a preempted server. When they are gone, the scheduler revokes the admission and restores the
    /// queue position.
    fn preempt(&self) -> Plan {
        let message = self.stopping_message(messages::PREEMPTING);
        let outcome = Outcome::new(Phase::Queued, Reason::Preempted, message);
        self.plan_with_status(&outcome, self.stop_pods(), self.next_pod_check())
    }

    /// Deletes the pods if a node is lost. The scheduler revokes the admission.
    fn node_lost(&self, admission: Option<&Admission>) -> Option<Plan> {
        let of_pods = self.lost_nodes().next().map(|node| messages::node_lost(node, self.has_volume(), self.is_spot()));
        let assigned = || admission.and_then(|admission| admission.nodes.iter().find(|node| self.is_node_lost(node)));
        let message = of_pods.or_else(|| assigned().map(|node| messages::node_lost(node, false, self.is_spot())))?;
        let current = self.blocked_termination().unwrap_or_else(|| message.clone());
        let outcome = Outcome::new(Phase::Queued, Reason::NodeLost, current);
        let outcome = outcome.failure(Reason::NodeLost, message, None);
        Some(self.plan_status_first(&outcome, self.stop_pods(), self.next_pod_check()))
    }

    fn running(&self, idle: Option<Idleness>) -> Plan {
        let idle = idle.unwrap_or_else(|| self.evaluate_idle());
        let outcome = Outcome::new(Phase::Running, Reason::Running, messages::RUNNING.into()).with_idle(idle.condition);
        let mut actions = Actions { requeue: idle.requeue, ..self.repairs().into() };
        if self.is_running() {
            let (updates, requeue) = self.config_updates();
            actions.calls = updates.into_iter().chain(idle.calls).collect();
            actions.requeue = actions.requeue.earlier(requeue);
        }
        self.plan_with_status(&outcome, actions, self.next_lifetime_stage().earlier(self.next_pod_check()))
    }

    /// A container of a server that was ready is being restarted in place.
    fn restarting(&self, failures: &[PodFailure]) -> Plan {
        let nodes = self.pods.live().filter_map(|pod| pod.node.as_deref());
        let is_unready = |node: &&str| self.observed.nodes.get(node).is_none_or(|node| !node.is_ready());
        let (reason, message) = match nodes.into_iter().find(is_unready) {
            Some(node) => (Reason::NodeLost, messages::node_unreachable(node)),
            None => (Reason::Restarting, messages::restarting(failures.first())),
        };
        let requeue = self.next_lifetime_stage().earlier(self.next_pod_check()).earlier(self.next_secret_check());
        let outcome = Outcome::new(Phase::Running, reason, message).with_idle(self.evaluate_idle().condition);
        self.plan_with_status(&outcome, self.repairs(), requeue)
    }

    /// Ends the server as Failed. Its pods are deleted afterwards, so that the phase is final whatever happens.
    pub(super) fn fail(&self, failure: &PodFailure) -> Plan {
        let outcome = Outcome::new(Phase::Failed, failure.reason, failure.message.clone());
        let outcome = outcome.failure(failure.reason, failure.message.clone(), failure.log.clone());
        self.plan_with_status(&outcome, vec![], Requeue::After(Duration::ZERO))
    }
}
