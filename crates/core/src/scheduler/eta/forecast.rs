//! Expected starts: the plan for a copy of the state in which servers run for their expected instead of their maximum time.

use std::collections::{BTreeMap, BTreeSet};

use super::history::{EtaEstimate, FlavorHistory};
use crate::scheduler::event::{AccountSpec, Event, RunInfo, Server, ServerState};
use crate::scheduler::{ClusterState, Policy};

/// Receives the same events as the state it belongs to.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    expected: ClusterState,
    /// Expected ends of running servers, to update those that run longer.
    expected_ends: BTreeSet<(i64, String)>,
    runs: BTreeMap<String, RunEstimate>,
}

#[derive(Clone, Copy, Debug)]
struct RunEstimate {
    started_at: i64,
    max_end: i64,
    expected_end: i64,
}

/// The estimated start of a pending server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eta {
    pub p50: i64,
    pub p90: i64,
    /// The planned start with maximum runtimes, if known.
    pub latest: Option<i64>,
    /// For [`EtaCalibration::observe_wait`](super::history::EtaCalibration::observe_wait).
    pub estimate: EtaEstimate,
}

impl Forecast {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the forecast of an existing state. It estimates all runs as of now, whereas one that received the events keeps
    /// each estimate until it has passed.
    pub fn from_state(state: &ClusterState, usage_half_life: i64, now: i64) -> Self {
        let mut forecast = Self::default();
        let nodes = state.nodes().map(|node| Event::Node(node.clone()));
        let servers = state.servers().map(|server| Event::Server(Box::new(server.clone())));
        let users = state.users().map(|spec| {
            let usage = state.user_usage(&spec.name, usage_half_life, now);
            Event::User(AccountSpec { usage, ..spec.clone() })
        });
        let teams = state.teams().map(|spec| {
            let usage = state.team_usage(&spec.name, usage_half_life, now);
            Event::Team(AccountSpec { usage, ..spec.clone() })
        });
        for event in nodes.chain(servers).chain(users).chain(teams) {
            forecast.apply(&event, state, usage_half_life, now);
        }
        forecast
    }

    /// Applies a change. `state` is the state that the forecast belongs to.
    pub fn apply(&mut self, event: &Event, state: &ClusterState, usage_half_life: i64, now: i64) {
        match event {
            Event::Server(server) => self.set_server(server, state, usage_half_life, now),
            Event::ServerDeleted(id) => {
                self.forget_run(id);
                self.expected.apply(event.clone(), usage_half_life, now);
            }
            // Kept only in `state`.
            Event::History { .. }
            | Event::RunCompleted { .. }
            | Event::WaitCompleted { .. }
            | Event::Reservation(_) => {}
            Event::Node(_)
            | Event::NodeDeleted(_)
            | Event::User(_)
            | Event::UserDeleted(_)
            | Event::Team(_)
            | Event::TeamDeleted(_) => self.expected.apply(event.clone(), usage_half_life, now),
        }
    }

    fn set_server(&mut self, server: &Server, state: &ClusterState, usage_half_life: i64, now: i64) {
        self.forget_run(&server.id);
        let history = state.history(&server.flavor);
        let mut expected = server.clone();
        match &mut expected.state {
            ServerState::Running(RunInfo { started_at, end: Some(end), terminating: false, .. }) => {
                let (lifetime, elapsed) = (end.saturating_sub(*started_at), now.saturating_sub(*started_at));
                let expected_end = started_at.saturating_add(expected_runtime(history, lifetime, elapsed));
                let run = RunEstimate { started_at: *started_at, max_end: *end, expected_end };
                self.runs.insert(server.id.clone(), run);
                self.expected_ends.insert((expected_end, server.id.clone()));
                *end = expected_end;
            }
            ServerState::Running(_) => {}
            ServerState::Pending | ServerState::Inactive => {
                expected.max_hold_time = server.max_hold_time.map(|hold_time| expected_runtime(history, hold_time, 0));
            }
        }
        self.expected.apply(Event::Server(Box::new(expected)), usage_half_life, now);
    }

    fn forget_run(&mut self, id: &str) {
        if let Some(run) = self.runs.remove(id) {
            self.expected_ends.remove(&(run.expected_end, id.to_owned()));
        }
    }

    /// Estimates again the ends of servers that run longer than expected.
    fn extend_overdue(&mut self, state: &ClusterState, usage_half_life: i64, now: i64) {
        while let Some((_, id)) = self.expected_ends.first().cloned().filter(|(end, _)| *end <= now) {
            let run = self.runs.get(&id).copied();
            // After its maximum end, `ClusterState::extend_overdue` applies.
            let Some(run) = run.filter(|run| run.expected_end < run.max_end) else {
                self.expected_ends.pop_first();
                continue;
            };
            if let Some(server) = state.server(&id) {
                self.set_server(server, state, usage_half_life, now.max(run.started_at));
            } else {
                self.expected_ends.pop_first();
            }
        }
    }

    /// Returns the expected start of each pending server, where known.
    pub fn expected_starts(&mut self, state: &ClusterState, policy: &Policy, now: i64) -> BTreeMap<String, i64> {
        self.extend_overdue(state, policy.usage_half_life, now);
        let plan = self.expected.plan_dry_run(policy, now);
        let assigned = plan.assignments.into_iter().map(|assignment| (assignment.id, now));
        assigned.chain(self.expected.expected_starts(&plan.pending, policy, now)).collect()
    }
}

impl ClusterState {
    /// Estimates the start of a server from its expected and latest start.
    pub fn eta(&self, id: &str, expected: i64, latest: Option<i64>, now: i64) -> Option<Eta> {
        let flavor = &self.server(id)?.flavor;
        let empty = FlavorHistory::default();
        let history = self.history(flavor).unwrap_or(&empty);
        let max = latest.map(|latest| latest.saturating_sub(now).max(0));
        let estimate = history.eta_calibration.estimate(expected.saturating_sub(now), max);
        let (p50, p90) = (now.saturating_add(estimate.p50), now.saturating_add(estimate.p90));
        Some(Eta { p50, p90, latest, estimate })
    }
}

fn expected_runtime(history: Option<&FlavorHistory>, lifetime: i64, elapsed: i64) -> i64 {
    match history {
        Some(history) => history.expected_runtime(lifetime, elapsed),
        None => FlavorHistory::default().expected_runtime(lifetime, elapsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::event::Node;
    use crate::scheduler::fixtures::server;

    #[test]
    fn forecast_from_state_equals_forecast_from_events() {
        let policy = Policy::default();
        let (mut state, mut forecast) = (ClusterState::new(), Forecast::new());
        let pending = |name: &str, owner: &str, queued_at| {
            Box::new(Server { owner: owner.into(), max_hold_time: Some(7_200), ..server(name, queued_at) })
        };
        let mut running = pending("running", "ada", 0);
        let nodes = vec![("n1".to_owned(), running.request.per_node.clone())];
        running.state = ServerState::Running(RunInfo { nodes, started_at: 0, end: Some(7_200), terminating: false });
        let node = Node { name: "n1".into(), capacity: running.request.per_node.clone(), ..Node::default() };
        let pending = [pending("first", "ada", 10), pending("second", "bob", 20)].map(Event::Server);
        for event in [Event::Node(node), Event::Server(running)].into_iter().chain(pending) {
            forecast.apply(&event, &state, policy.usage_half_life, 600);
            state.apply(event, policy.usage_half_life, 600);
        }
        let expected = forecast.expected_starts(&state, &policy, 600);
        assert!(expected["first"] > 600 && expected["first"] < expected["second"], "{expected:?}");
        let mut other = Forecast::from_state(&state, policy.usage_half_life, 600);
        assert_eq!(other.expected_starts(&state, &policy, 600), expected);
    }
}
