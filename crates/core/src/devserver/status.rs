//! The status of a server, rebuilt in each reconciliation from the stored status and the current state.
//!
//! The same situation gives the same status, so it is written only when something changed. Fields of the scheduler are
//! carried over unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::condition::{self, Reason, Type};
use odc_api::v1alpha1::{
    DevServer, DevServerStatus, Failure, Hibernation, HibernationCause, Phase, ServerAccess, ServerPod, StopCause,
    Stopping, TIMELINE_LENGTH, TimelineEntry,
};

use super::agent_requests::{AgentCall, OomKills};
use super::conditions::{ConditionUpdate, Conditions};
use super::desired_state::is_new;
use super::lifetime::{self, Stage};
use super::pods::{ServerPods, is_ready};
use super::quiesce_failure::QuiesceFailure;
use super::reconcile::Reconcile;
use super::{ADMISSION_DELAY, Plan, TRANSIENT_PHASE_DELAY, limits, messages};
use crate::cluster::{Container, Pod};
use crate::plan::{Event, Requeue, Write};
use crate::time::remaining;

/// The result of a reconciliation, from which the status is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub phase: Phase,
    /// The reason of conditions that are False, and of the timeline entry.
    pub reason: Reason,
    pub message: String,
    pub transition: Option<Transition>,
    /// The server waits for nothing but the scheduler.
    in_queue: bool,
    /// The scheduler has neither admitted the server nor stored why it is pending.
    awaits_scheduler: bool,
    /// Update of the condition Idle; `None` keeps the stored one.
    idle: Option<ConditionUpdate>,
}

/// A change that is stored together with the phase. Unless it can be derived again, it is stored immediately even if the
/// phase is transient, because the next reconciliation depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    Rejected,
    Stopping(StopCause),
    Hibernating(HibernationCause),
    Failure(Reason, String, Option<String>),
    HostKeyLost,
    DeletionBlocked,
}

impl Outcome {
    pub(super) fn new(phase: Phase, reason: Reason, message: String) -> Self {
        Self { phase, reason, message, transition: None, in_queue: false, awaits_scheduler: false, idle: None }
    }

    pub(super) fn awaiting_scheduler() -> Self {
        let outcome = Self::new(Phase::Queued, Reason::InsufficientCapacity, "Waiting in the queue.".into());
        Self { awaits_scheduler: true, ..outcome }
    }

    fn with(self, transition: Transition) -> Self {
        Self { transition: Some(transition), ..self }
    }

    pub(super) fn in_queue(self) -> Self {
        Self { in_queue: true, ..self }
    }

    pub(super) fn with_idle(self, idle: Option<ConditionUpdate>) -> Self {
        Self { idle, ..self }
    }

    pub(super) fn rejected(self) -> Self {
        self.with(Transition::Rejected)
    }

    pub(super) fn stopping(self, cause: StopCause) -> Self {
        self.with(Transition::Stopping(cause))
    }

    pub(super) fn hibernating(self, cause: HibernationCause) -> Self {
        self.with(Transition::Hibernating(cause))
    }

    pub(super) fn failure(self, reason: Reason, message: String, log: Option<String>) -> Self {
        self.with(Transition::Failure(reason, message, log))
    }

    /// The stored host key is no longer valid.
    pub(super) fn host_key_lost(self) -> Self {
        self.with(Transition::HostKeyLost)
    }

    pub(super) fn deletion_blocked(self) -> Self {
        self.with(Transition::DeletionBlocked)
    }

    pub(super) fn is_rejected(&self) -> bool {
        self.transition == Some(Transition::Rejected)
    }

    /// Reports whether the phase usually passes quickly and does not have to be stored at once.
    fn is_transient(&self) -> bool {
        let phase = matches!(self.phase, Phase::Queued | Phase::Starting | Phase::Hibernating | Phase::Stopping);
        // These causes follow from the spec and from stored times, so the next reconciliation finds them again.
        let derivable =
            matches!(self.transition, None | Some(Transition::Stopping(StopCause::User | StopCause::QueueTimeout)));
        phase && derivable
    }
}

/// The actions of a plan besides the status.
#[derive(Debug)]
pub(super) struct Actions {
    pub writes: Vec<Write>,
    pub calls: Vec<AgentCall>,
    pub requeue: Requeue,
}

impl Default for Actions {
    fn default() -> Self {
        vec![].into()
    }
}

impl From<Vec<Write>> for Actions {
    fn from(writes: Vec<Write>) -> Self {
        Self { writes, calls: vec![], requeue: Requeue::AwaitChange }
    }
}

impl Actions {
    pub(super) fn into_plan(self, requeue: Requeue) -> Plan {
        Plan { writes: self.writes, calls: self.calls, requeue: self.requeue.earlier(requeue), ..Plan::empty() }
    }
}

impl Reconcile<'_> {
    /// Returns a plan that performs `actions` and updates the status. A transient phase is written only after it lasted
    /// [`TRANSIENT_PHASE_DELAY`].
    pub(super) fn plan_with_status(&self, outcome: &Outcome, actions: impl Into<Actions>, requeue: Requeue) -> Plan {
        let stored = self.stored_phase();
        let plan = Plan { phase: Some(outcome.phase), ..actions.into().into_plan(requeue) };
        let unreported = self.unreported_quiesce_failure();
        if outcome.is_transient() && stored != Some(outcome.phase) && unreported.is_none() {
            let deferred = self.soft_state.deferred_phase.filter(|(phase, _)| *phase == outcome.phase);
            let since = deferred.map_or(self.now, |(_, since)| since);
            let delay = if outcome.awaits_scheduler { ADMISSION_DELAY } else { TRANSIENT_PHASE_DELAY };
            if let Some(remaining) = remaining(delay, since, self.now) {
                return Plan { requeue: plan.requeue.earlier(Requeue::After(remaining)), ..plan };
            }
        }
        let status = self.build_status(outcome);
        if self.stored() == Some(&status) {
            return plan;
        }
        // A rejected admission has an event of its own.
        let changed = stored != Some(outcome.phase) && self.soft_state.rejection.as_ref() != Some(&outcome.message);
        let mut events: Vec<Event> = if changed { messages::event(outcome).into_iter().collect() } else { vec![] };
        events.extend(unreported.map(QuiesceFailure::event));
        events.extend(self.expiring_event(&status));
        let plan = Plan { status: Some(status), events, ..plan };
        if unreported.is_some() { status_only(plan) } else { plan }
    }

    /// As [`Self::plan_with_status`], but the status is written before `actions`, because the evidence is deleted by
    /// them.
    pub(super) fn plan_status_first(&self, outcome: &Outcome, actions: impl Into<Actions>, requeue: Requeue) -> Plan {
        let plan = self.plan_with_status(outcome, actions, requeue);
        if plan.status.is_none() {
            return plan;
        }
        status_only(plan)
    }

    /// Returns the event that the server expires soon, once for each time the condition Expiring becomes True.
    fn expiring_event(&self, status: &DevServerStatus) -> Option<Event> {
        let is_expiring = |status: &DevServerStatus| condition::is_true(&status.conditions, Type::Expiring);
        let changed = is_expiring(status) && !self.stored().is_some_and(is_expiring);
        status.expires_at.as_ref().filter(|_| changed).map(|at| messages::expiring_soon(at.0))
    }

    /// Returns when a running server enters the next stage of its lifetime.
    pub(super) fn next_lifetime_stage(&self) -> Requeue {
        let since = self.running_since().unwrap_or(to_api_precision(self.now).0);
        let expires_at = lifetime::expiry(self.server, limits(self.checked), since);
        match lifetime::stage(expires_at, self.settings.expiry_grace, self.now) {
            Stage::Remaining(left) | Stage::ExpiringSoon(left) | Stage::Grace(left) => Requeue::After(left),
            Stage::Expired => Requeue::After(Duration::ZERO),
        }
    }

    fn build_status(&self, outcome: &Outcome) -> DevServerStatus {
        let Self { server, now, .. } = *self;
        let mut status = server.status.clone().unwrap_or_default();
        status.observed_generation = server.metadata.generation;
        set_phase(&mut status, outcome, now);
        set_lifetime(&mut status, server, outcome.phase, limits(self.checked), now);
        let in_queue = outcome.in_queue && is_new(&status);
        status.waiting_since = in_queue.then(|| status.waiting_since.take().unwrap_or_else(|| to_api_precision(now)));
        status.hibernation = match outcome.transition {
            Some(Transition::Hibernating(cause)) => Some(hibernation(server, cause, now)),
            _ => None,
        };
        status.stopping = match outcome.phase {
            Phase::Stopping => status.stopping.or_else(|| Some(Box::new(stopping(outcome, now)))),
            _ => None,
        };
        if let Some(Transition::Failure(reason, message, log)) = &outcome.transition {
            set_failure(&mut status, *reason, message, log.as_deref(), now);
        }
        if let Some(failure) = self.quiesce_failure() {
            failure.record(&mut status);
        }
        count_restarts(&mut status, &self.pods);
        let pods = server_pods(outcome.phase, &self.pods, &status.pods, &self.oom_kills());
        count_oom_kills(&mut status, &pods);
        status.pods = pods;
        let host_key = self.host_key().filter(|_| outcome.transition != Some(Transition::HostKeyLost));
        status.access = access(status.access, host_key);
        self.set_conditions(&mut status, outcome);
        status
    }

    fn set_conditions(&self, status: &mut DevServerStatus, outcome: &Outcome) {
        let conditions = Conditions {
            outcome,
            checked: self.checked,
            settings: self.settings,
            generation: self.server.metadata.generation,
            now: self.now,
        };
        let updates = conditions.all(status);
        let idle = outcome.idle.as_ref().map(|update| conditions.build(Type::Idle, update));
        for condition in updates.into_iter().chain(idle) {
            condition::set(&mut status.conditions, condition);
        }
        if matches!(outcome.phase, Phase::Queued | Phase::Starting) {
            // The activity of a server without ready pods is unknown.
            status.conditions.retain(|condition| condition.kind != Type::Idle);
        }
    }
}

/// Drops the actions; they follow once the status is stored.
fn status_only(plan: Plan) -> Plan {
    Plan { writes: vec![], calls: vec![], requeue: Requeue::After(Duration::ZERO), ..plan }
}

fn set_phase(status: &mut DevServerStatus, outcome: &Outcome, now: Timestamp) {
    if status.phase != Some(outcome.phase) {
        status.timeline.push(TimelineEntry::new(outcome.phase, to_api_precision(now), outcome.reason));
        let surplus = status.timeline.len().saturating_sub(TIMELINE_LENGTH);
        status.timeline.drain(..surplus);
    }
    status.phase = Some(outcome.phase);
    if outcome.phase.is_terminal() {
        status.finished_at.get_or_insert_with(|| to_api_precision(now));
    }
}

fn set_lifetime(
    status: &mut DevServerStatus,
    server: &DevServer,
    phase: Phase,
    limits: Option<&odc_api::v1alpha1::Limits>,
    now: Timestamp,
) {
    // Granted only when the limits are known. Otherwise a server that was rejected at first could exceed them.
    if limits.is_some() || status.lifetime.is_some() || phase == Phase::Running {
        status.lifetime = Some(lifetime::grant(server.spec.lifetime, limits, status.lifetime));
    }
    if phase == Phase::Running {
        lifetime::resume(status, now);
    } else {
        lifetime::pause(status, now);
    }
}

fn access(before: Option<ServerAccess>, host_key: Option<String>) -> Option<ServerAccess> {
    let host_key = host_key.map(|key| key.as_str().into());
    Some(ServerAccess { host_key, ..before.unwrap_or_default() }).filter(|access| *access != ServerAccess::default())
}

fn hibernation(server: &DevServer, cause: HibernationCause, now: Timestamp) -> Hibernation {
    let before = server.status.as_ref().and_then(|status| status.hibernation.clone());
    match before {
        // The observed wake id is that of the beginning.
        Some(before) => Hibernation { cause, ..before },
        None => Hibernation { since: to_api_precision(now), cause, observed_wake: server.spec.wake.clone() },
    }
}

/// Deleting the object counts as a stop by the user.
fn stopping(outcome: &Outcome, now: Timestamp) -> Stopping {
    let cause = match outcome.transition {
        Some(Transition::Stopping(cause)) => cause,
        _ => StopCause::User,
    };
    Stopping { cause, since: to_api_precision(now) }
}

/// Keeps the time of an unchanged failure. Otherwise the status would change in each reconciliation.
fn set_failure(status: &mut DevServerStatus, reason: Reason, message: &str, log: Option<&str>, now: Timestamp) {
    let new = Failure::new(reason, message, to_api_precision(now), log);
    let same = status
        .last_failure
        .as_ref()
        .is_some_and(|old| Failure { time: new.time.clone(), ..Failure::clone(old) } == new);
    if !same {
        status.last_failure = Some(Box::new(new));
    }
}

/// Counts restarts of the current pods; new pods start at zero. OOM kills are counted over the lifetime of the server.
fn count_restarts(status: &mut DevServerStatus, pods: &ServerPods<'_>) {
    let containers = || pods.live().filter_map(|pod| pod.server.as_deref()).flat_map(|details| &details.containers);
    let before = status.restarts.unwrap_or(0);
    let restarts: i64 = containers().map(|container| container.restarts).sum();
    if restarts == before || pods.live().next().is_none() {
        return;
    }
    status.restarts = Some(restarts);
    let oom_killed = |container: &Container| container.last.as_ref().is_some_and(|exit| exit.reason == "OOMKilled");
    if restarts > before && containers().any(oom_killed) {
        status.oom_kills = Some(status.oom_kills.unwrap_or(0).saturating_add(1));
    }
}

/// Agents count from the start of their container, so only the increase since the stored count of the same start is added.
fn count_oom_kills(status: &mut DevServerStatus, pods: &[ServerPod]) {
    for pod in pods {
        let is_same = |stored: &&ServerPod| stored.name == pod.name && stored.run == pod.run;
        let stored = status.pods.iter().find(is_same);
        let stored = stored.filter(|stored| stored.container_boot_id == pod.container_boot_id);
        let before = stored.and_then(|stored| stored.oom_kills).unwrap_or(0);
        let now = pod.oom_kills.unwrap_or(0);
        let increase = if now >= before { now - before } else { now };
        if increase > 0 {
            status.oom_kills = Some(status.oom_kills.unwrap_or(0).saturating_add(increase));
        }
    }
}

/// Returns the pods for the status. They are omitted during a start, when they change too often.
fn server_pods(
    phase: Phase,
    pods: &ServerPods<'_>,
    before: &[ServerPod],
    oom_kills: &BTreeMap<String, OomKills>,
) -> Vec<ServerPod> {
    if phase != Phase::Running {
        return vec![];
    }
    let server_pod = |pod: &Pod| {
        let details = pod.server.as_deref();
        let is_same =
            |stored: &&ServerPod| stored.name == pod.name && Some(stored.run) == details.and_then(|pod| pod.run);
        let (oom_kills, container_boot_id) = match (oom_kills.get(&pod.uid), before.iter().find(is_same)) {
            (Some(OomKills { count, boot_id }), _) => (Some(*count), Some(boot_id.clone())),
            (None, Some(stored)) => (stored.oom_kills, stored.container_boot_id.clone()),
            (None, None) => (None, None),
        };
        ServerPod {
            name: pod.name.clone(),
            run: details.and_then(|details| details.run).unwrap_or(0),
            node: pod.node.as_deref().map(Into::into),
            ip: details.and_then(|details| details.ip.as_deref()).map(Into::into),
            ready: is_ready(pod),
            oom_kills,
            container_boot_id,
        }
    };
    pods.live().map(server_pod).collect()
}
