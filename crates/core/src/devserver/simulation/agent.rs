//! The simulated agents and the activity of users. Without them, agents are never polled, as if they were unreachable.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::DevServerStatus;
use odc_control::{LastSeen, Outcome, Quiesced, Signals};

use super::Cluster;
use super::api::{Answer, Interrupted};
use crate::cluster::TERMINATION_GRACE_PERIOD;
use crate::devserver::agent_requests::{AgentCall, AgentRequest, QuiesceState};
use crate::devserver::fixtures::settings;
use crate::devserver::quiesce_failure::QuiesceFailure;
use crate::plan::Target;
use crate::time::elapsed;

#[derive(Clone)]
pub(super) struct Agents {
    /// By the uid of their pod.
    by_pod: BTreeMap<String, Agent>,
    /// The time of the last activity.
    last_activity: Timestamp,
    /// The exit code of preStop scripts.
    pub pre_stop: i32,
}

/// The state of an agent, kept as long as its pod exists.
#[derive(Clone)]
struct Agent {
    started: Timestamp,
    /// Since when the notice of a stop is shown.
    warned: Option<Timestamp>,
    /// preStop ran for the current stop.
    quiesced: bool,
    /// How often preStop ran, and how many stops were cancelled.
    runs: usize,
    cancelled: usize,
}

impl Agents {
    pub fn new(now: Timestamp) -> Self {
        Self { by_pod: BTreeMap::new(), last_activity: now, pre_stop: 0 }
    }

    fn get(&mut self, pod: &str, now: Timestamp) -> &mut Agent {
        let new = || Agent { started: now, warned: None, quiesced: false, runs: 0, cancelled: 0 };
        self.by_pod.entry(pod.to_owned()).or_insert_with(new)
    }
}

impl Agent {
    fn pre_stop(&mut self) {
        self.runs += usize::from(!self.quiesced);
        self.quiesced = true;
    }
}

impl Cluster {
    /// Adds reachable agents.
    pub(super) fn with_agents(mut self) -> Self {
        self.agents = Some(Agents::new(self.now));
        self
    }

    /// Records activity in the server.
    pub(super) fn record_activity(&mut self) {
        let now = self.now;
        if let Some(agents) = &mut self.agents {
            agents.last_activity = now;
        }
    }

    /// Sends a request to an agent. It is subject to the same faults as a write.
    pub(super) fn call_agent(&mut self, call: &AgentCall) -> Result<(), Interrupted> {
        let now = self.now;
        if matches!(call.request, AgentRequest::Quiesce(_)) {
            self.operator.agents.entry(call.pod.clone()).or_default().start_quiesce(now);
        }
        let reply = self.write(|cluster| if cluster.handle(call) { Answer::Done } else { Answer::Conflict });
        let ok = matches!(reply, Ok(Answer::Done));
        if !self.operator.has_agents() {
            // The operator crashed.
            return Err(Interrupted);
        }
        let signals = self.signals(&call.pod);
        let failure = self.quiesce_failure();
        let agent = self.operator.agents.entry(call.pod.clone()).or_default();
        match (&call.request, ok) {
            (AgentRequest::Configure(config), true) => agent.record_config(config.clone(), now),
            (AgentRequest::Configure(_), false) => agent.record_failure(now),
            (AgentRequest::GetSignals, true) => agent.record_signals(Ok(signals), now),
            (AgentRequest::GetSignals, false) => agent.record_signals(Err("timeout".into()), now),
            (AgentRequest::Quiesce(_), ok) => agent.finish_quiesce(failure.filter(|_| ok)),
            (AgentRequest::Flush(_) | AgentRequest::Heartbeat, _) => panic!("unexpected request"),
        }
        self.operator.dirty = true;
        Ok(())
    }

    /// Returns false if the agent does not exist.
    fn handle(&mut self, call: &AgentCall) -> bool {
        let now = self.now;
        let Some(agents) = &mut self.agents else { panic!("{call:?} without agents") };
        if !self.processes.iter().any(|process| process.pod_uid == call.pod) {
            return false;
        }
        let agent = agents.get(&call.pod, now);
        match &call.request {
            AgentRequest::Configure(config) => {
                agent.warned = config.idle_warning.as_ref().map(|_| agent.warned.unwrap_or(now));
                agent.cancelled += usize::from(std::mem::take(&mut agent.quiesced));
            }
            AgentRequest::GetSignals | AgentRequest::Flush(_) | AgentRequest::Heartbeat => {}
            AgentRequest::Quiesce(_) => agent.pre_stop(),
        }
        true
    }

    fn signals(&mut self, pod: &str) -> Signals {
        let now = self.now;
        let Some(agents) = &mut self.agents else { return Signals::default() };
        let (started, last_activity) = (agents.get(pod, now).started, agents.last_activity);
        let ago = |time: Timestamp| elapsed(time, now).as_secs();
        let last_seen_seconds_ago = (last_activity >= started).then(|| ago(last_activity));
        let terminal_input = LastSeen { last_seen_seconds_ago };
        Signals { agent_boot_id: pod.into(), up_seconds: ago(started), terminal_input, ..Signals::default() }
    }

    fn quiesce_failure(&self) -> Option<QuiesceFailure> {
        let code = self.agents.as_ref()?.pre_stop;
        let done = Quiesced {
            pre_stop: Some(Outcome::Code(code)),
            pre_stop_log: None,
            synced: true,
            sync_error: None,
            home: None,
        };
        QuiesceFailure::from_outcome(&done, self.now)
    }

    /// Terminates a container: its init process runs preStop unless it ran for this stop.
    pub(super) fn terminate_agent(&mut self, pod: &str) {
        let now = self.now;
        let Some(agents) = &mut self.agents else { return };
        agents.get(pod, now).pre_stop();
        let Agent { runs, cancelled, .. } = agents.by_pod.remove(pod).unwrap();
        assert_eq!(runs, cancelled + 1, "preStop must run once per stop");
    }

    /// Checks that a reachable agent is quiesced before its pod is deleted, unless it timed out or is `exempt`.
    pub(super) fn check_quiesced(&self, target: &Target, exempt: bool) {
        let (Some(agents), Some(state)) = (&self.agents, self.operator.agents.get(&target.uid)) else { return };
        let quiesced = agents.by_pod.get(&target.uid).is_some_and(|agent| agent.quiesced);
        let ready = self.pods.iter().any(|pod| pod.object.uid == target.uid && pod.details().ready);
        let timed_out = match state.quiesce {
            QuiesceState::Requested(at) => elapsed(at, self.now) >= TERMINATION_GRACE_PERIOD,
            QuiesceState::Finished => true,
            QuiesceState::NotRequested => false,
        };
        let allowed = quiesced || !ready || exempt || state.config.is_none() || timed_out;
        assert!(allowed, "{} is deleted without being quiesced: {state:?}", target.name);
    }

    /// Checks that a server is hibernated for idleness only after the timeout, and after its users were warned.
    pub(super) fn check_idle(&self, old: &DevServerStatus, new: &DevServerStatus) {
        use odc_api::v1alpha1::HibernationCause::Idle;
        let by_idleness =
            |status: &DevServerStatus| status.hibernation.as_ref().is_some_and(|hibernation| hibernation.cause == Idle);
        let Some(agents) = self.agents.as_ref().filter(|_| by_idleness(new) && !by_idleness(old)) else { return };
        let inactive = elapsed(agents.last_activity, self.now);
        let timeout = self.server().spec.idle.timeout.as_std();
        assert!(inactive >= timeout, "hibernated {inactive:?} after activity");
        for pod in &self.pods {
            let warned = agents.by_pod.get(&pod.object.uid).and_then(|agent| agent.warned);
            let warned = warned.map(|at| elapsed(at, self.now));
            assert!(
                warned.is_some_and(|elapsed| elapsed >= settings().idle_grace),
                "{} was warned {warned:?} ago",
                pod.object.name
            );
        }
    }
}
