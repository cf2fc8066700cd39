//! The operator: what it remembers, and how it carries out what was decided.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::Reason;
use odc_api::v1alpha1::{HibernationCause, Phase};

use super::Cluster;
use super::api::Answer;
use crate::devserver::agents::AgentSeen;
use crate::devserver::build::Keys;
use crate::devserver::fixtures::{keys, settings};
use crate::devserver::{Plan, Question, SecretSeen, Seen, decide};
use crate::object::Kind;
use crate::plan::Again;
use crate::seen::{Child, Node};

/// Lost when it dies.
#[derive(Clone, Default)]
pub(super) struct Operator {
    pub down: bool,
    /// Something changed since it last looked.
    pub dirty: bool,
    pub due: Option<Timestamp>,
    pub held: Option<(Phase, Timestamp)>,
    pub secret: SecretSeen,
    pub secret_checked: Option<Timestamp>,
    pub keys: Option<Keys>,
    pub entrypoint: Option<Result<Vec<String>, String>>,
    pub sleep: Option<HibernationCause>,
    /// Since when it can ask agents, and what it knows of them.
    pub since: Option<Timestamp>,
    pub agents: BTreeMap<String, AgentSeen>,
    /// Nodes of pods that are not there, since it first noticed.
    pub missing: BTreeMap<String, Timestamp>,
}

impl Operator {
    /// Whoever comes next sees everything anew, at once unless nobody comes.
    pub fn die(&mut self) {
        *self = Self { dirty: true, down: self.down, ..Self::default() };
    }

    /// One that has just died does not.
    pub fn knows_agents(&self) -> bool {
        self.since.is_some()
    }
}

impl Cluster {
    pub(super) fn decide(&self) -> Plan {
        let child = self.service.clone().map(|body| Child::of(Kind::Service, body));
        let nodes: Vec<Node> = self.machines.iter().filter_map(|machine| self.seen_node(&machine.name)).collect();
        let seen = Seen {
            pods: self.pods.iter().map(|pod| &pod.seen).collect(),
            nodes: nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            service: child.as_ref(),
            secret: self.operator.secret.clone(),
            secret_checked: self.operator.secret_checked,
            keys: self.operator.keys.as_ref(),
            entrypoint: self.operator.entrypoint.clone(),
            held: self.operator.held,
            admitting: false,
            obstacle: None,
            refused: None,
            owner: None,
            guests: vec![],
            agents: crate::devserver::Agents { since: self.operator.since, of: self.operator.agents.clone() },
            authorities: &[],
            sleep: self.operator.sleep,
        };
        self.request.check(|checked| decide(self.server(), checked, &seen, &settings(), self.now))
    }

    /// A node as it is, or as one that pods are on and that is missing.
    pub(super) fn seen_node(&self, name: &str) -> Option<Node> {
        let since = || self.operator.missing.get(name).copied().unwrap_or(self.now);
        let missing = || self.has_pods(name).then(|| Node::missing(name, since()));
        self.machine(name).node.clone().or_else(missing)
    }

    fn has_pods(&self, node: &str) -> bool {
        self.pods.iter().any(|pod| pod.seen.node.as_deref() == Some(node))
    }

    pub(super) fn notice_missing(&mut self) {
        let missing = self.machines.iter().filter(|machine| machine.node.is_none() && self.has_pods(&machine.name));
        let names: Vec<String> = missing.map(|machine| machine.name.clone()).collect();
        let known = &self.operator.missing;
        let since = |name: &String| known.get(name).copied().unwrap_or(self.now);
        self.operator.missing = names.into_iter().map(|name| (name.clone(), since(&name))).collect();
    }

    /// Observe, decide, apply, report. Any step may be the last.
    pub(super) fn reconcile(&mut self) {
        if self.agents.is_some() {
            self.operator.since.get_or_insert(self.now);
        }
        let plan = self.decide();
        self.decided_on = (plan.writes.len() > 1 || self.between.is_some()).then(|| {
            self.decided_on = None;
            Box::new(self.clone())
        });
        let version = self.version;
        self.operator.dirty = false;
        self.operator.due = None;
        if let Some(question) = &plan.ask {
            self.answer(question);
            self.operator.dirty = true;
            return;
        }
        for write in &plan.writes {
            match self.carry_out(write) {
                Ok(Answer::Secret(key)) => self.learn_secret(SecretSeen::There(key)),
                Ok(Answer::Foreign) => {
                    self.learn_secret(SecretSeen::Foreign);
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
            self.operator.agents.values_mut().for_each(AgentSeen::goes_on);
        }
        for call in &plan.calls {
            if self.say(call).is_err() {
                self.operator.dirty = true;
                return;
            }
        }
        let written = plan.status.is_some();
        let news = plan.status.as_ref().is_some_and(|status| status.phase != self.phase());
        let of = |reason: Reason| plan.events.iter().filter(|event| event.reason == reason).count();
        let apart = [of(Reason::PreStopFailed), of(Reason::EndsSoon)];
        let others = plan.events.len() - apart.iter().sum::<usize>();
        assert!(apart.iter().all(|count| *count <= 1) && others <= usize::from(news), "told twice: {:?}", plan.events);
        let ends_soon =
            plan.events.iter().find(|event| event.reason == Reason::EndsSoon).map(|event| event.note.clone());
        if let Some(status) = plan.status {
            self.operator.sleep = None;
            if !matches!(self.store(version, status), Ok(Answer::Done)) {
                self.operator.dirty = true;
                return;
            }
            // As in the operator: what could not be stored did not happen.
            self.observer.warnings.extend(ends_soon);
        }
        let held = plan.phase.filter(|phase| !written && self.phase() != Some(*phase));
        self.operator.held = held.map(|phase| match self.operator.held {
            Some((before, since)) if before == phase => (phase, since),
            _ => (phase, self.now),
        });
        self.operator.due = match plan.again {
            Again::After(wait) => Some(self.now.saturating_add(wait).unwrap()),
            Again::OnChange => None,
        };
    }

    fn learn_secret(&mut self, seen: SecretSeen) {
        self.operator.secret = seen;
        self.operator.keys = None;
    }

    fn answer(&mut self, question: &Question) {
        match question {
            Question::Keys => self.operator.keys = Some(keys(self.number())),
            Question::Secret => {
                self.operator.secret_checked = Some(self.now);
                self.operator.secret = match &self.secret {
                    None => SecretSeen::Missing,
                    Some(secret) if Some(&secret.owner) == self.server().metadata.uid.as_ref() => {
                        SecretSeen::There(secret.key.clone())
                    }
                    Some(_) => SecretSeen::Foreign,
                };
            }
            Question::Entrypoint { .. } => self.operator.entrypoint = Some(self.entrypoint.clone()),
        }
    }
}
