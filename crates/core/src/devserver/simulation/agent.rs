//! The agents in the pods, and the people who work there. Without them nobody is ever asked, as in a cluster whose agents
//! cannot be reached.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::DevServerStatus;
use odc_control::{Outcome, Quiesced, Seen as SeenAgo, Signals};

use super::Cluster;
use super::api::{Answer, Interrupted};
use crate::devserver::agents::{Call, Say};
use crate::devserver::build::container::GRACE_SECONDS;
use crate::devserver::fixtures::settings;
use crate::devserver::since;
use crate::devserver::unfit::Unfit;
use crate::plan::Target;

#[derive(Clone)]
pub(super) struct Agents {
    /// By the uid of their pod.
    of: BTreeMap<String, Agent>,
    /// When somebody last worked in the server.
    used: Timestamp,
    /// What preStop scripts end with.
    pub pre_stop: i32,
}

/// What one knows, as long as its pod is there.
#[derive(Clone)]
struct Agent {
    begun: Timestamp,
    /// Since when people read that the server will be stopped.
    warned: Option<Timestamp>,
    /// preStop ran for the stop that is under way.
    quiesced: bool,
    /// How often it ran, and how many stops were called off.
    runs: usize,
    called_off: usize,
}

impl Agents {
    pub fn new(now: Timestamp) -> Self {
        Self { of: BTreeMap::new(), used: now, pre_stop: 0 }
    }

    fn at(&mut self, pod: &str, now: Timestamp) -> &mut Agent {
        let new = || Agent { begun: now, warned: None, quiesced: false, runs: 0, called_off: 0 };
        self.of.entry(pod.to_owned()).or_insert_with(new)
    }
}

impl Agent {
    fn pre_stop(&mut self) {
        self.runs += usize::from(!self.quiesced);
        self.quiesced = true;
    }
}

impl Cluster {
    /// The same with agents that answer, and people.
    pub(super) fn with_agents(mut self) -> Self {
        self.agents = Some(Agents::new(self.now));
        self
    }

    /// Somebody works in it. That takes a warning back at once, without the operator.
    pub(super) fn used(&mut self) {
        let now = self.now;
        if let Some(agents) = &mut self.agents {
            agents.used = now;
        }
    }

    /// A conversation. What goes wrong with it goes wrong as with a write: it was said or not, and we may never know.
    pub(super) fn say(&mut self, call: &Call) -> Result<(), Interrupted> {
        let now = self.now;
        if matches!(call.say, Say::Quiesce(_)) {
            self.operator.agents.entry(call.pod.clone()).or_default().stops(now);
        }
        let heard = self.write(|cluster| if cluster.heard(call) { Answer::Done } else { Answer::Conflict });
        let heard = matches!(heard, Ok(Answer::Done));
        if !self.operator.knows_agents() {
            // It died meanwhile.
            return Err(Interrupted);
        }
        let signals = self.signals(&call.pod);
        let unfit = self.unfit();
        let seen = self.operator.agents.entry(call.pod.clone()).or_default();
        match (&call.say, heard) {
            (Say::Tell(told), true) => seen.took(told.clone(), now),
            (Say::Tell(_), false) => seen.was_deaf(now),
            (Say::Signals, good) => seen.answered(if good { Ok(signals) } else { Err("silence".into()) }, now),
            (Say::Quiesce(_), good) => seen.stopped(unfit.filter(|_| good)),
        }
        self.operator.dirty = true;
        Ok(())
    }

    /// False, if there is nobody any more.
    fn heard(&mut self, call: &Call) -> bool {
        let now = self.now;
        let Some(agents) = &mut self.agents else { panic!("{call:?} goes nowhere") };
        if !self.processes.iter().any(|process| process.pod_uid == call.pod) {
            return false;
        }
        let agent = agents.at(&call.pod, now);
        match &call.say {
            Say::Tell(told) => {
                agent.warned = told.notice.as_ref().map(|_| agent.warned.unwrap_or(now));
                agent.called_off += usize::from(std::mem::take(&mut agent.quiesced));
            }
            Say::Signals => {}
            Say::Quiesce(_) => agent.pre_stop(),
        }
        true
    }

    fn signals(&mut self, pod: &str) -> Signals {
        let now = self.now;
        let Some(agents) = &mut self.agents else { return Signals::default() };
        let (begun, used) = (agents.at(pod, now).begun, agents.used);
        let ago = |then: Timestamp| since(then, now).as_secs();
        let terminal_input = SeenAgo { last_seen_seconds_ago: (used >= begun).then(|| ago(used)) };
        Signals { agent_boot: pod.into(), up_seconds: ago(begun), terminal_input, ..Signals::default() }
    }

    fn unfit(&self) -> Option<Unfit> {
        let code = self.agents.as_ref()?.pre_stop;
        let done = Quiesced {
            pre_stop: Some(Outcome::Code(code)),
            pre_stop_log: None,
            synced: true,
            not_synced: None,
            listing: None,
            listing_cut: false,
        };
        Unfit::of(&done, self.now)
    }

    /// A container is asked to end: its own process 1 runs what was not run for this stop.
    pub(super) fn agent_ends(&mut self, pod: &str) {
        let now = self.now;
        let Some(agents) = &mut self.agents else { return };
        agents.at(pod, now).pre_stop();
        let Agent { runs, called_off, .. } = agents.of.remove(pod).unwrap();
        assert_eq!(runs, called_off + 1, "once for each stop");
    }

    /// Who answers is asked before its pod is deleted, unless it took too long.
    pub(super) fn check_asked(&self, target: &Target, lost: bool) {
        let (Some(agents), Some(seen)) = (&self.agents, self.operator.agents.get(&target.uid)) else { return };
        let quiesced = agents.of.get(&target.uid).is_some_and(|agent| agent.quiesced);
        let ready = self.pods.iter().any(|pod| pod.seen.uid == target.uid && pod.details().ready);
        let asked_long_ago = match seen.quiesce {
            crate::devserver::agents::Quiesce::Asked(at) => since(at, self.now).as_secs() >= GRACE_SECONDS.into(),
            crate::devserver::agents::Quiesce::Over => true,
            crate::devserver::agents::Quiesce::NotAsked => false,
        };
        let fine = quiesced || !ready || lost || seen.told.is_none() || asked_long_ago;
        assert!(fine, "{} is deleted without having been asked: {seen:?}", target.name);
    }

    /// Nobody is put to sleep who works, or who could not read in time that it would happen.
    pub(super) fn check_idle(&self, old: &DevServerStatus, new: &DevServerStatus) {
        use odc_api::v1alpha1::HibernationCause::Idle;
        let by_idleness = |status: &DevServerStatus| status.hibernation.as_ref().is_some_and(|sleep| sleep.by == Idle);
        let Some(agents) = self.agents.as_ref().filter(|_| by_idleness(new) && !by_idleness(old)) else { return };
        let quiet = since(agents.used, self.now);
        let timeout = self.server().spec.idle.timeout.as_std();
        assert!(quiet >= timeout, "put to sleep {quiet:?} after somebody worked");
        for pod in &self.pods {
            let warned = agents.of.get(&pod.seen.uid).and_then(|agent| agent.warned);
            let warned = warned.map(|at| since(at, self.now));
            assert!(
                warned.is_some_and(|since| since >= settings().idle_grace),
                "{} was told {warned:?} ago",
                pod.seen.name
            );
        }
    }
}
