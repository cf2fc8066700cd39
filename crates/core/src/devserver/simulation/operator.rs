//! The simulated operator: its memory, and the execution of plans.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{HibernationCause, Phase};

use super::Cluster;
use super::api::Answer;
use crate::cluster::{ManagedObject, Node};
use crate::devserver::agent_requests::AgentState;
use crate::devserver::fixtures::settings;
use crate::devserver::{Agents, Observed, Plan, Query, SecretState, SoftState, reconcile};
use crate::manifest::Kind;
use crate::plan::Requeue;

/// Lost when the operator crashes.
#[derive(Clone, Default)]
pub(super) struct Operator {
    pub down: bool,
    /// Something changed since the last reconciliation.
    pub dirty: bool,
    pub due: Option<Timestamp>,
    pub deferred_phase: Option<(Phase, Timestamp)>,
    pub secret: SecretState,
    pub secret_checked_at: Option<Timestamp>,
    pub entrypoint: Option<Result<Vec<String>, String>>,
    pub hibernate: Option<HibernationCause>,
    /// Since when it can reach agents, and what it knows about them.
    pub since: Option<Timestamp>,
    pub agents: BTreeMap<String, AgentState>,
    /// Missing nodes of pods, since they were first observed.
    pub missing: BTreeMap<String, Timestamp>,
}

impl Operator {
    /// Restarts the operator without its memory.
    pub fn crash(&mut self) {
        *self = Self { dirty: true, down: self.down, ..Self::default() };
    }

    /// Reports whether the operator has not just crashed.
    pub fn has_agents(&self) -> bool {
        self.since.is_some()
    }
}

impl Cluster {
    pub(super) fn plan(&self) -> Plan {
        let service = self.service.clone().map(|body| ManagedObject::from_api(Kind::Service, body));
        let nodes: Vec<Node> = self.machines.iter().filter_map(|machine| self.observed_node(&machine.name)).collect();
        let observed = Observed {
            pods: self.pods.iter().map(|pod| &pod.object).collect(),
            nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            service: service.as_ref(),
            owner: None,
            guests: vec![],
            control_cas: &[],
        };
        let soft_state = SoftState {
            secret: self.operator.secret.clone(),
            secret_checked_at: self.operator.secret_checked_at,
            entrypoint: self.operator.entrypoint.clone(),
            deferred_phase: self.operator.deferred_phase,
            hibernate: self.operator.hibernate,
            agents: Agents { leader_since: self.operator.since, by_pod: self.operator.agents.clone() },
            ..SoftState::default()
        };
        self.request.check(|checked| reconcile(self.server(), checked, &observed, &soft_state, &settings(), self.now))
    }

    /// Returns the node, or a placeholder if it is missing and has pods.
    pub(super) fn observed_node(&self, name: &str) -> Option<Node> {
        let since = || self.operator.missing.get(name).copied().unwrap_or(self.now);
        let missing = || self.has_pods(name).then(|| Node::missing(name, since()));
        self.machine(name).node.clone().or_else(missing)
    }

    fn has_pods(&self, node: &str) -> bool {
        self.pods.iter().any(|pod| pod.object.node.as_deref() == Some(node))
    }

    pub(super) fn observe_missing_nodes(&mut self) {
        let missing = self.machines.iter().filter(|machine| machine.node.is_none() && self.has_pods(&machine.name));
        let names: Vec<String> = missing.map(|machine| machine.name.clone()).collect();
        let known = &self.operator.missing;
        let since = |name: &String| known.get(name).copied().unwrap_or(self.now);
        self.operator.missing = names.into_iter().map(|name| (name.clone(), since(&name))).collect();
    }

    /// Plans and executes one reconciliation. The operator may crash at any step.
    pub(super) fn reconcile(&mut self) {
        if self.agents.is_some() {
            self.operator.since.get_or_insert(self.now);
        }
        let plan = self.plan();
        self.planned_on = (plan.writes.len() > 1 || self.interleaved.is_some()).then(|| {
            self.planned_on = None;
            Box::new(self.clone())
        });
        let version = self.version;
        self.operator.dirty = false;
        self.operator.due = None;
        if let Some(query) = &plan.query {
            self.answer(query);
            self.operator.dirty = true;
            return;
        }
        for write in &plan.writes {
            match self.execute(write) {
                Ok(Answer::Secret(key)) => self.operator.secret = SecretState::Present(key),
                Ok(Answer::Foreign) => {
                    self.operator.secret = SecretState::Foreign;
                    self.operator.dirty = true;
                    return;
                }
                Ok(Answer::Done | Answer::Conflict) => {}
                Err(_) => {
                    self.operator.dirty = true;
                    return;
                }
            }
        }
        if plan.phase == Some(Phase::Running) {
            self.operator.agents.values_mut().for_each(AgentState::cancel_stop);
        }
        for call in &plan.calls {
            if self.call_agent(call).is_err() {
                self.operator.dirty = true;
                return;
            }
        }
        let written = plan.status.is_some();
        let phase_changed = plan.status.as_ref().is_some_and(|status| status.phase != self.phase());
        let count = |reason: Reason| plan.events.iter().filter(|event| event.reason == reason).count();
        let separate = [count(Reason::PreStopFailed), count(Reason::ExpiringSoon)];
        let others = plan.events.len() - separate.iter().sum::<usize>();
        let unique = separate.iter().all(|count| *count <= 1) && others <= usize::from(phase_changed);
        assert!(unique, "duplicate events: {:?}", plan.events);
        let expiring =
            plan.events.iter().find(|event| event.reason == Reason::ExpiringSoon).map(|event| event.note.clone());
        if let Some(status) = plan.status {
            self.operator.hibernate = None;
            if !matches!(self.store(version, status), Ok(Answer::Done)) {
                self.operator.dirty = true;
                return;
            }
            // As in the operator, events are published only after the status was stored.
            self.observer.warnings.extend(expiring);
        }
        let deferred = plan.phase.filter(|phase| !written && self.phase() != Some(*phase));
        self.operator.deferred_phase = deferred.map(|phase| match self.operator.deferred_phase {
            Some((before, since)) if before == phase => (phase, since),
            _ => (phase, self.now),
        });
        self.operator.due = match plan.requeue {
            Requeue::After(delay) => Some(self.now.saturating_add(delay).unwrap()),
            Requeue::AwaitChange => None,
        };
    }

    fn answer(&mut self, query: &Query) {
        match query {
            Query::Secret => {
                self.operator.secret_checked_at = Some(self.now);
                self.operator.secret = match &self.secret {
                    None => SecretState::Missing,
                    Some(secret) if Some(&secret.owner) == self.server().metadata.uid.as_ref() => {
                        SecretState::Present(secret.key.clone())
                    }
                    Some(_) => SecretState::Foreign,
                };
            }
            Query::Entrypoint { .. } => self.operator.entrypoint = Some(self.entrypoint.clone()),
        }
    }
}
