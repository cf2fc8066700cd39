//! Preemption. Victims are preemptible servers that borrow quota or have a lower priority.
//!
//! A preemption is applied speculatively and the cycle restarts; it is kept only if the preemptor then starts at the reclaim
//! time and no server ahead of it starts later than before, otherwise it is reverted.
//!
//! The reason for each victim is determined last, by what is missing without it (see [`victims`]). Kueue fixes the
//! resources that need preemption first; the test `reclaim_considers_what_is_missing_in_the_end` has the cases in which
//! that would preempt a server for a resource of its own nominal quota.

mod victims;

use std::collections::{BTreeMap, BTreeSet};

use odc_api::v1alpha1::Priority;

use super::quota::is_limited;
use super::{Pending, SchedulingCycle};
use crate::scheduler::plan::{PendingReason, Preemption, PreemptionReason};
use crate::scheduler::policy::Backfill;
use crate::scheduler::state::Entry;
use crate::scheduler::state::accounts::UsageByFlavor;
use crate::scheduler::state::arena::{AccountIdx, ClassIdx, ServerIdx};
use crate::scheduler::timeline::Window;
use victims::VictimSelector;

/// The victims of one preemptor.
#[derive(Clone, Debug)]
pub(crate) struct SpeculativePreemption {
    preemptor: ServerIdx,
    victims: Vec<PreemptedServer>,
    /// The latest starts of the servers ahead and of the preemptor.
    start_deadlines: BTreeMap<ServerIdx, i64>,
    /// Bookings that were confirmed since, and may rely on the freed capacity.
    dependent_bookings: Vec<ServerIdx>,
}

#[derive(Clone, Debug)]
struct PreemptedServer {
    server: ServerIdx,
    reason: PreemptionReason,
    /// Its expected end without the preemption.
    end: Option<i64>,
}

/// The totals of all speculative preemptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct PreemptionTotals {
    victims: BTreeSet<ServerIdx>,
    /// Usage of the victims by team.
    usage: BTreeMap<AccountIdx, UsageByFlavor>,
    /// The earliest start deadline of each server.
    start_deadlines: BTreeMap<ServerIdx, i64>,
}

/// Preemptors that may preempt the same victims, and would start at the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PreemptorClass {
    class: Option<ClassIdx>,
    team: Option<AccountIdx>,
    /// Set if the user's own quota limits the start.
    user: Option<AccountIdx>,
    priority: Priority,
    flavor: String,
}

/// After this many discarded attempts no server is preempted any more in the cycle.
const MAX_DISCARDED_ATTEMPTS: usize = 1_000;

impl PreemptorClass {
    fn new(cycle: &SchedulingCycle<'_>, entry: &Entry) -> Self {
        let limits = cycle.state.users.get(entry.user).map(|account| &account.spec.limits);
        let is_limited = limits.is_some_and(|limits| is_limited(limits) || limits.servers.is_some());
        let (priority, flavor) = (entry.server.priority, entry.server.flavor.clone());
        Self { class: entry.class, team: entry.team, user: is_limited.then_some(entry.user), priority, flavor }
    }
}

impl SchedulingCycle<'_> {
    /// Returns a preemption with which a server starts earlier than at `planned_start`.
    pub(super) fn try_preempt(
        &mut self,
        server: ServerIdx,
        duration: i64,
        planned_start: Option<i64>,
    ) -> Option<SpeculativePreemption> {
        let reclaim_time = self.reclaim_time();
        let was_tried = self.failed_preemptors.contains(&server)
            || self.preemptions.iter().any(|preemption| preemption.preemptor == server);
        if self.state.preemptible.is_empty()
            || planned_start.is_some_and(|start| start <= reclaim_time)
            || was_tried
            || self.budget.discarded_attempts > MAX_DISCARDED_ATTEMPTS
            || self.budget.retry_cost > self.attempt.budget.max_preemption_cost().saturating_mul(2)
        {
            return None;
        }
        let entry = self.state.entry(server).filter(|entry| !entry.server.excluded_this_cycle)?;
        let class = PreemptorClass::new(self, entry);
        if self.attempt.no_victims_for.get(&class).is_some_and(|shortest| duration >= *shortest) {
            return None;
        }
        let Some(victims) = self.victim_selector(entry, duration).select() else {
            if entry.server.rejected_by.is_empty() {
                self.attempt.no_victims_for.insert(class, duration);
            }
            return None;
        };
        if victims.is_empty() {
            return None;
        }
        let victims = victims.into_iter().map(|(server, reason)| {
            let end = self.state.entry(server).and_then(|victim| victim.expected_end);
            PreemptedServer { server, reason, end }
        });
        let victims = victims.collect();
        let reserved = self.attempt.reservations.iter().map(|(server, reservation)| (*server, reservation.start));
        let assigned = self.assignments.iter().map(|assumed| (assumed.server, self.now));
        let start_deadlines = reserved.chain(assigned).chain([(server, reclaim_time)]).collect();
        Some(SpeculativePreemption { preemptor: server, victims, start_deadlines, dependent_bookings: Vec::new() })
    }

    /// Returns a selector of the victims with which `preemptor` starts as soon as they have released their nodes.
    fn victim_selector<'a>(&'a self, preemptor: &'a Entry, duration: i64) -> VictimSelector<'a> {
        VictimSelector {
            state: self.state,
            policy: self.policy,
            now: self.now,
            attempt: &self.attempt,
            preemptions: &self.preemption_totals,
            preemptor,
            window: Window { start: self.reclaim_time(), duration },
        }
    }

    /// Returns when the next exemption from preemption ends, if a pending server might preempt then.
    pub(in crate::scheduler) fn next_exemption_end(&self, results: &[Option<Pending>]) -> Option<i64> {
        if self.policy.backfill == Backfill::Disabled {
            return None;
        }
        let waits_for_nodes = |(server, result): (&ServerIdx, &Option<Pending>)| {
            let waits_for_nodes = match result.as_ref()?.reason {
                PendingReason::Resources
                | PendingReason::Priority
                | PendingReason::ConflictsWithReservation
                | PendingReason::NodesRejected => true,
                PendingReason::Quota(_)
                | PendingReason::Unsatisfiable
                | PendingReason::ExcludedThisCycle
                | PendingReason::BeginTime { .. } => false,
            };
            self.state.entry(*server).filter(|_| waits_for_nodes).map(|entry| entry.server.priority)
        };
        let highest = self.order.iter().zip(results).filter_map(waits_for_nodes).max()?;
        let may_be_victim = |entry: &Entry| {
            let server = &entry.server;
            let team = entry.team.and_then(|team| self.state.teams.get(team));
            let may_borrow = team.is_some_and(|account| is_limited(&account.spec.limits));
            server.preemptible
                && server.preemptions < self.policy.max_preemptions
                && (may_borrow || self.policy.preempt_for_priority && server.priority < highest)
        };
        let running = self.state.preemptible.iter().filter_map(|server| {
            let entry = self.state.entry(*server)?;
            Some((entry, entry.server.running()?.started_at))
        });
        let assigned = self.assignments.iter();
        let assigned = assigned.filter_map(|assumed| Some((self.state.entry(assumed.server)?, self.now)));
        let candidates = running.chain(assigned).filter(|(entry, _)| may_be_victim(entry));
        let ends = candidates.map(|(_, start)| start.saturating_add(self.policy.preempt_exempt_time));
        ends.filter(|end| *end > self.now).min()
    }

    /// Returns when servers that are preempted now have released their nodes.
    fn reclaim_time(&self) -> i64 {
        self.now.saturating_add(self.policy.reclaim_delay())
    }

    /// Applies a preemption speculatively.
    pub(super) fn apply_preemption(&mut self, preemption: SpeculativePreemption) {
        let reclaim_time = self.reclaim_time();
        for victim in &preemption.victims {
            self.set_expected_end(victim.server, Some(reclaim_time));
            self.preemption_totals.victims.insert(victim.server);
            if let Some((team, entry)) = self.state.entry(victim.server).and_then(|entry| Some((entry.team?, entry))) {
                self.preemption_totals.usage.entry(team).or_default().add(entry);
            }
        }
        self.preemption_totals.add_deadlines(&preemption);
        self.preemptions.push(preemption);
    }

    /// Returns the latest preemption for which a start deadline is missed if the server starts at `start`.
    pub(super) fn find_failed(&self, server: ServerIdx, start: Option<i64>) -> Option<usize> {
        let is_missed = |deadline: &i64| start.is_none_or(|start| start > *deadline);
        if !self.preemption_totals.start_deadlines.get(&server).is_some_and(is_missed) {
            return None;
        }
        let mut all = self.preemptions.iter();
        all.rposition(|preemption| preemption.start_deadlines.get(&server).is_some_and(is_missed))
    }

    /// Reverts a preemption. Its preemptor is not tried again until other preemptions have changed, because it would select
    /// the same victims.
    pub(super) fn revert_preemption(&mut self, index: usize) {
        let is_last = index + 1 == self.preemptions.len();
        let preemption = self.preemptions.remove(index);
        self.failed_preemptors.insert(preemption.preemptor);
        // Bookings that were confirmed with the freed capacity may be impossible without it.
        for booking in &preemption.dependent_bookings {
            if self.confirmed_bookings.remove(booking) {
                self.state.set_booking_confirmed(*booking, false);
                self.order_changed = true;
            }
        }
        self.revert_suspension(preemption.preemptor, is_last && !self.order_changed);
        self.restore_victims(&preemption);
    }

    /// Makes new bookings depend on all preemptions.
    pub(super) fn add_dependent_bookings(&mut self, bookings: &[ServerIdx]) {
        self.preemptions.iter_mut().for_each(|preemption| preemption.dependent_bookings.extend(bookings));
    }

    pub(super) fn preemptors(&self) -> Vec<ServerIdx> {
        self.preemptions.iter().map(|preemption| preemption.preemptor).collect()
    }

    /// Sets the expected end of a server in the state and in the baseline ledger.
    fn set_expected_end(&mut self, server: ServerIdx, end: Option<i64>) {
        if let Some(entry) = self.state.entry(server) {
            self.baseline.ledger.set_expected_end(self.state, entry, entry.expected_end, end);
        }
        self.state.set_expected_end(server, end);
    }

    fn restore_victims(&mut self, preemption: &SpeculativePreemption) {
        for victim in preemption.victims.iter().rev() {
            self.set_expected_end(victim.server, victim.end);
            self.preemption_totals.victims.remove(&victim.server);
            if let Some((team, entry)) = self.state.entry(victim.server).and_then(|entry| Some((entry.team?, entry))) {
                self.preemption_totals.usage.entry(team).or_default().remove(entry);
            }
        }
        self.preemption_totals.start_deadlines.clear();
        self.preemptions.iter().for_each(|preemption| self.preemption_totals.add_deadlines(preemption));
    }

    /// Returns all preemptions and restores the victims in the state.
    pub(in crate::scheduler) fn take_preemptions(&mut self) -> Vec<Preemption> {
        let stop_at = self.now.saturating_add(self.policy.preemption_notice.max(0));
        let end = self.reclaim_time();
        let mut preemptions = Vec::new();
        for speculative in std::mem::take(&mut self.preemptions) {
            self.restore_victims(&speculative);
            let id = |server: ServerIdx| Some(self.state.entry(server)?.server.id.clone());
            let Some(preemptor) = id(speculative.preemptor) else { continue };
            preemptions.extend(speculative.victims.iter().filter_map(|victim| {
                let (id, reason) = (id(victim.server)?, victim.reason);
                Some(Preemption { id, preemptor: preemptor.clone(), reason, stop_at, end })
            }));
        }
        preemptions
    }
}

impl PreemptionTotals {
    fn add_deadlines(&mut self, preemption: &SpeculativePreemption) {
        for (server, deadline) in &preemption.start_deadlines {
            let earliest = self.start_deadlines.entry(*server).or_insert(*deadline);
            *earliest = (*earliest).min(*deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Resources;
    use crate::scheduler::cycle::PlanMode;
    use crate::scheduler::cycle::queue_pass::MIN_PREEMPTION_EVALUATIONS;
    use crate::scheduler::event::{AccountSpec, Event, Limits, Node, RunInfo, Server, ServerState};
    use crate::scheduler::fixtures::server;
    use crate::scheduler::{ClusterState, Policy};

    const NOW: i64 = 3_600;
    const VICTIMS: i64 = 300;
    const AHEAD: i64 = 3_000;

    /// Returns a full node of preemptible servers, many servers that exceed a quota, and behind them as many preemptors as
    /// there are victims.
    fn crowded_state(policy: &Policy) -> ClusterState {
        let mut state = ClusterState::new();
        let mut apply = |event| state.apply(event, policy.usage_half_life, NOW);
        let mut capacity = Resources::default().with_device("gpu", VICTIMS);
        (capacity.cpu, capacity.pods) = (VICTIMS * 1_000, VICTIMS);
        apply(Event::Node(Node { name: "n1".into(), capacity, ..Node::default() }));
        let limits = Limits { devices: Some(0), ..Limits::default() };
        apply(Event::User(AccountSpec { name: "ada".into(), limits, ..AccountSpec::default() }));
        for number in 0..VICTIMS {
            let mut low = Server { preemptible: true, priority: Priority::Low, ..server(&format!("low{number}"), 0) };
            low.owner = "eve".into();
            let nodes = vec![("n1".to_owned(), low.request.per_node.clone())];
            low.state = ServerState::Running(RunInfo { nodes, started_at: 0, end: None, terminating: false });
            apply(Event::Server(Box::new(low)));
        }
        for number in 0..AHEAD {
            apply(Event::Server(Box::new(server(&format!("none{number}"), number))));
        }
        for number in 0..VICTIMS {
            let preemptor =
                Server { max_hold_time: Some(NOW), ..server(&format!("preemptor{number}"), AHEAD + number) };
            apply(Event::Server(Box::new(Server { owner: "bob".into(), ..preemptor })));
        }
        state
    }

    #[test]
    fn preemption_cost_is_bounded_and_second_plan_preempts_no_more() {
        let policy = Policy::default();
        let mut state = crowded_state(&policy);
        let mut cycle = SchedulingCycle::new(&mut state, &policy, NOW);
        let results = cycle.run();
        let retry_cost = cycle.budget.retry_cost;
        assert!(retry_cost <= MIN_PREEMPTION_EVALUATIONS, "{retry_cost} evaluations were repeated");
        let plan = cycle.into_plan(results, PlanMode::Commit);
        assert!(!plan.preemptions.is_empty());
        for preemption in &plan.preemptions {
            let mut victim = state.server(&preemption.id).unwrap().clone();
            victim.preemptions += 1;
            if let ServerState::Running(running) = &mut victim.state {
                (running.end, running.terminating) = (Some(preemption.end), true);
            }
            state.apply(Event::Server(Box::new(victim)), policy.usage_half_life, NOW);
        }
        let second = state.plan(&policy, NOW);
        assert_eq!((&second.preemptions, &second.pending), (&Vec::new(), &plan.pending));
    }

    /// Returns the victims if team `b` requests devices and cores on a node with 8 devices and 200 cores, on which servers
    /// of team `a` run with these ids, devices and cores.
    fn victims(limits: Limits, running: &[(&str, i64, i64)], request: (i64, i64)) -> Vec<(String, PreemptionReason)> {
        let running: Vec<_> = running.iter().map(|(id, devices, cores)| ("a", *id, *devices, *cores)).collect();
        victims_of_teams(&[("a", limits)], &running, request)
    }

    fn victims_of_teams(
        teams: &[(&str, Limits)],
        running: &[(&str, &str, i64, i64)],
        (devices, cores): (i64, i64),
    ) -> Vec<(String, PreemptionReason)> {
        let policy = Policy::default();
        let mut state = ClusterState::new();
        let mut apply = |event| state.apply(event, policy.usage_half_life, NOW);
        let team_server = |id: &str, team: &str, devices: i64, cores: i64| {
            let mut one = Server { team: Some(team.into()), max_hold_time: Some(NOW), ..server(id, 0) };
            one.owner = team.into();
            one.request.per_node = Resources::default().with_device("gpu", devices);
            (one.request.per_node.cpu, one.request.per_node.pods) = (cores * 1_000, 1);
            one
        };
        let mut capacity = Resources::default().with_device("gpu", 8);
        (capacity.cpu, capacity.pods) = (200_000, 100);
        apply(Event::Node(Node { name: "n1".into(), capacity, ..Node::default() }));
        let b = Limits { devices: Some(8), cpu: Some(200 * 1_000_000_000), ..Limits::default() };
        for (name, limits) in teams.iter().cloned().chain([("b", b)]) {
            apply(Event::Team(AccountSpec { name: name.into(), limits, ..AccountSpec::default() }));
        }
        for (team, id, devices, cores) in running {
            let mut one = Server { preemptible: true, ..team_server(id, team, *devices, *cores) };
            let nodes = vec![("n1".to_owned(), one.request.per_node.clone())];
            one.state = ServerState::Running(RunInfo { nodes, started_at: 0, end: None, terminating: false });
            apply(Event::Server(Box::new(one)));
        }
        apply(Event::Server(Box::new(team_server("preemptor", "b", devices, cores))));
        let plan = state.plan(&policy, NOW);
        plan.preemptions.into_iter().map(|preemption| (preemption.id, preemption.reason)).collect()
    }

    #[test]
    fn only_missing_resources_are_reclaimed() {
        let cores = |cores: i128| Limits { devices: Some(8), cpu: Some(cores * 1_000_000_000), ..Limits::default() };
        // It borrows cores, of which there are enough; the devices are its own.
        assert_eq!(victims(cores(8), &[("own", 4, 40)], (8, 8)), []);
        // It borrows the cores that are missing.
        let borrower = [("borrower", 1, 190)];
        assert_eq!(victims(cores(8), &borrower, (1, 20)), [("borrower".into(), PreemptionReason::Reclaim)]);
        // The cores are its own.
        assert_eq!(victims(cores(190), &[("own", 1, 190)], (1, 20)), []);
    }

    #[test]
    fn failed_victim_selection_applies_to_equal_or_longer_hold_times() {
        let policy = Policy::default();
        let mut state = crowded_state(&policy);
        let mut cycle = SchedulingCycle::new(&mut state, &policy, NOW);
        let is_preemptor =
            |server: &ServerIdx| cycle.state.entry(*server).is_some_and(|entry| entry.server.id == "preemptor1");
        let preemptor = cycle.order.iter().copied().find(is_preemptor).unwrap();
        assert!(cycle.try_preempt(preemptor, NOW, None).is_some());
        let class = PreemptorClass::new(&cycle, cycle.state.entry(preemptor).unwrap());
        cycle.attempt.no_victims_for.insert(class, NOW);
        assert!(cycle.try_preempt(preemptor, NOW, None).is_none());
        assert!(cycle.try_preempt(preemptor, NOW - 1, None).is_some());
    }

    #[test]
    fn reclaim_considers_what_is_missing_in_the_end() {
        let limits = |devices, cores: i128| Limits {
            devices: Some(devices),
            cpu: Some(cores * 1_000_000_000),
            ..Limits::default()
        };
        let teams = [("a", limits(4, 8)), ("c", limits(0, 0))];
        // Team a borrows only cores, team c everything.
        let running = [("a", "x", 4, 40), ("c", "y", 4, 160)];
        // Cores are missing at first, but not without y; then x would lose devices of its own team.
        assert_eq!(victims_of_teams(&teams, &running, (8, 100)), []);
        assert_eq!(victims_of_teams(&teams, &running, (4, 100)), [("y".into(), PreemptionReason::Reclaim)]);
        // The cores of x are missing too.
        assert_eq!(victims_of_teams(&teams, &running, (8, 180)).len(), 2);
        // z1 and z2 have what is missing, and are not needed as long as x seems to be enough.
        let running = [("a", "x", 2, 40), ("c", "y", 2, 160), ("c", "z1", 2, 0), ("c", "z2", 2, 0)];
        let ids: Vec<String> = victims_of_teams(&teams, &running, (6, 100)).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["y", "z1", "z2"]);
        // y frees all cores, so that x would be preempted for its own devices; z does not.
        let running = [("a", "x", 4, 60), ("c", "y", 2, 100), ("c", "z", 2, 20)];
        let ids: Vec<String> = victims_of_teams(&teams, &running, (6, 80)).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["x", "z"]);
    }

    #[test]
    fn team_does_not_lose_more_than_it_borrows() {
        let running = [("a1", 2, 1), ("a2", 2, 1), ("a3", 2, 1), ("a4", 2, 1)];
        let devices = |devices| Limits { devices: Some(devices), ..Limits::default() };
        // It borrows one device, so that one server is preempted.
        assert_eq!(victims(devices(7), &running, (2, 1)).len(), 1);
        assert_eq!(victims(devices(7), &running, (4, 1)), []);
        assert_eq!(victims(devices(4), &running, (4, 1)).len(), 2);
        // It borrows two devices. Preempting the small servers first would leave nothing to reclaim from the large one.
        let running = [("a", 1, 1), ("b", 1, 1), ("c", 5, 1)];
        assert_eq!(victims(devices(5), &running, (5, 1)), [("c".into(), PreemptionReason::Reclaim)]);
        // The large one first, then the usual order.
        let running = [("a", 1, 1), ("b", 1, 1), ("c", 4, 1), ("d", 1, 1)];
        assert_eq!(victims(devices(5), &running, (5, 1)), [("c".into(), PreemptionReason::Reclaim)]);
    }

    #[test]
    fn victims_that_are_not_needed_are_kept() {
        let devices = |devices| Limits { devices: Some(devices), ..Limits::default() };
        let running = [("a", 1, 1), ("b", 7, 1)];
        assert_eq!(victims(devices(0), &running, (7, 1)), [("b".into(), PreemptionReason::Reclaim)]);
        assert_eq!(victims(devices(0), &running, (1, 1)), [("a".into(), PreemptionReason::Reclaim)]);
    }
}
