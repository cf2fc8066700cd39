//! The scheduler's state between scheduling cycles. It is updated with what changed since the last snapshot, keeps the
//! reservations, and observes starts and exits: usage, runtimes, and the accuracy of estimates.
//!
//! Decisions are applied to the state optimistically (assumed). If a write failed, the next snapshot differs and corrects it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::time::to_api_precision;
use odc_api::v1alpha1::{FlavorHistory, Usage};

use super::convert::{self, SchedulerInput};
use super::queue_view::QueueView;
use super::{Account, AccountRef, Policy, Snapshot, status, stored_history};
use crate::scheduler::{
    self, AccountSpec, ClusterState, DecayedUsage, Event, ReservationSpec, ServerState, TraceRecord,
};

/// Called for each event and plan, to record them.
pub type TraceFn<'w> = &'w mut dyn FnMut(TraceRecord<'_>);

#[derive(Clone, Debug, Default)]
pub struct Planner {
    queue: QueueView,
    /// Admitted servers of the last snapshot, by uid; `None` before the first one.
    runs: Option<BTreeMap<String, Run>>,
    /// Flavors whose history has changed since it was last taken.
    dirty_histories: BTreeSet<String>,
}

/// When an admitted server started, and its latest end if known.
#[derive(Clone, Copy, Debug)]
struct Run {
    started_at: i64,
    end: Option<i64>,
}

impl Planner {
    pub fn queue_view(&self) -> &QueueView {
        &self.queue
    }

    fn state(&self) -> &ClusterState {
        &self.queue.state
    }

    /// Returns a time that never goes back, because recorded traces are sorted by it.
    fn monotonic_now(&self, now: Timestamp) -> i64 {
        now.as_second().max(self.queue.as_of)
    }

    fn apply(&mut self, event: Event, policy: &Policy, now: i64, trace: TraceFn<'_>) {
        trace(TraceRecord::Event { now, event: &event });
        let QueueView { state, forecast, .. } = &mut self.queue;
        if let Some(forecast) = forecast.get_mut() {
            forecast.apply(&event, state, policy.scheduler.usage_half_life, now);
        }
        state.apply(event, policy.scheduler.usage_half_life, now);
    }

    /// Applies all changes since the last snapshot. Returns the accounts of admitted servers that were deleted without a
    /// release.
    pub(super) fn sync(
        &mut self,
        snapshot: &Snapshot<'_>,
        input: SchedulerInput,
        policy: &Policy,
        now: Timestamp,
        trace: TraceFn<'_>,
    ) -> BTreeSet<AccountRef> {
        let second = self.monotonic_now(now);
        let before = self.runs.take();
        let gone = before.as_ref().map(|before| self.observe_starts_and_exits(before, snapshot, policy, second, trace));
        for event in self.changes(input) {
            self.apply(event, policy, second, trace);
        }
        for flavor in &snapshot.flavors {
            let name = flavor.metadata.name.as_deref().unwrap_or_default();
            let stored = flavor.status.as_ref().and_then(|status| status.history.as_ref());
            let stored = stored.and_then(stored_history::from_stored).filter(|_| self.state().history(name).is_none());
            if let Some(history) = stored {
                let event = Event::History { flavor: name.to_owned(), history: Box::new(history) };
                self.apply(event, policy, second, trace);
            }
        }
        if before.is_none() {
            let restored = self.restore_usage(snapshot, policy, second);
            for event in restored.into_iter().chain(self.restore_reservations(snapshot)) {
                self.apply(event, policy, second, trace);
            }
        }
        self.runs = Some(runs(snapshot, before.unwrap_or_default()));
        gone.unwrap_or_default()
    }

    /// Returns the differences between the input and the state.
    fn changes(&self, input: SchedulerInput) -> Vec<Event> {
        let state = self.state();
        let servers: HashSet<&str> = input.servers.iter().map(|server| server.id.as_str()).collect();
        let nodes: HashSet<&str> = input.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut events = Vec::new();
        let deleted = state.servers().filter(|server| !servers.contains(server.id.as_str()));
        events.extend(deleted.map(|server| Event::ServerDeleted(server.id.clone())));
        let deleted = state.nodes().filter(|node| !nodes.contains(node.name.as_str()));
        events.extend(deleted.map(|node| Event::NodeDeleted(node.name.clone())));
        let known: BTreeMap<&str, &scheduler::Node> = state.nodes().map(|node| (node.name.as_str(), node)).collect();
        let changed = input.nodes.iter().filter(|node| known.get(node.name.as_str()) != Some(node));
        events.extend(changed.map(|node| Event::Node(node.clone())));
        events.extend(changed_accounts(state.users(), &input.users, Event::User, Event::UserDeleted));
        events.extend(changed_accounts(state.teams(), &input.teams, Event::Team, Event::TeamDeleted));
        let changed = input.servers.into_iter().filter(|server| state.server(&server.id) != Some(server));
        events.extend(changed.map(|server| Event::Server(Box::new(server))));
        events
    }

    /// Computes the usage of all accounts from the stored value and the current admissions, so that nothing has to be stored
    /// when a server starts.
    fn restore_usage(&self, snapshot: &Snapshot<'_>, policy: &Policy, now: i64) -> Vec<Event> {
        let usage_half_life = policy.scheduler.usage_half_life;
        let usage = |stored: Option<&Usage>, is_owned: &dyn Fn(&scheduler::Server) -> bool| {
            let stored = stored.map_or(DecayedUsage { amount: 0, as_of: i64::MIN }, from_stored_usage);
            let since = self.state().servers().filter(|server| is_owned(server)).filter_map(|server| {
                let ServerState::Running(running) = &server.state else { return None };
                let start = DecayedUsage { amount: 0, as_of: running.started_at.max(stored.as_of).min(now) };
                Some(start.advance(now, server.request.usage_rate(), usage_half_life).amount)
            });
            let decayed = stored.advance(now, 0, usage_half_life).amount;
            DecayedUsage { amount: since.fold(decayed, i64::saturating_add), as_of: now }
        };
        let restored = |name: &str, account: &Account, is_owned: &dyn Fn(&scheduler::Server) -> bool| {
            let usage = Some(usage(account.usage.as_ref(), is_owned));
            AccountSpec { usage, ..convert::to_account_spec(name, account) }
        };
        let users = snapshot.accounts.users.iter().map(|(name, account)| {
            let name = name.as_str();
            Event::User(restored(name, account, &|server| server.owner == name))
        });
        let teams = snapshot.accounts.teams.iter().map(|(name, account)| {
            let name = name.as_str();
            Event::Team(restored(name, account, &|server| server.team.as_deref() == Some(name)))
        });
        users.chain(teams).collect()
    }

    /// Returns the reservations of the previous leader.
    fn restore_reservations(&self, snapshot: &Snapshot<'_>) -> Vec<Event> {
        let pending = snapshot.servers.iter().filter(|server| server.is_pending());
        let planned = pending.filter_map(|server| {
            let planned = server.admission.as_ref()?.planned_start.as_ref()?;
            Some((planned, self.state().server(&server.uid)?))
        });
        let reservations = planned.enumerate().map(|(queue_index, (planned, server))| {
            let start = planned.at.0.as_second();
            let end = start.saturating_add(server.max_hold_time.unwrap_or(i64::MAX));
            let (server, nodes) = (server.id.clone(), planned.nodes.clone());
            Event::Reservation(ReservationSpec { server, queue_index, start, end, nodes })
        });
        reservations.collect()
    }

    /// Records completed runs and waits. Returns the accounts of admitted servers that were deleted.
    fn observe_starts_and_exits(
        &mut self,
        before: &BTreeMap<String, Run>,
        snapshot: &Snapshot<'_>,
        policy: &Policy,
        now: i64,
        trace: TraceFn<'_>,
    ) -> BTreeSet<AccountRef> {
        let mut gone = BTreeSet::new();
        let servers: HashMap<&str, &super::Server> =
            snapshot.servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
        for (uid, run) in before {
            let server = servers.get(uid.as_str());
            if server.is_some_and(|server| server.is_admitted()) {
                continue;
            }
            let Some(known) = self.state().server(uid) else { continue };
            if server.is_none() {
                let team = known.team.as_ref().and_then(|team| team.parse().ok()).map(AccountRef::Team);
                gone.extend(known.owner.parse().ok().map(AccountRef::User).into_iter().chain(team));
            }
            // A revoked admission is not a completed run.
            let is_revoked = server.is_some_and(|server| server.is_pending());
            if let Some(end) = run.end.filter(|_| !is_revoked) {
                let (lifetime, runtime) = (end.saturating_sub(run.started_at), now.saturating_sub(run.started_at));
                let flavor = known.flavor.clone();
                self.dirty_histories.insert(flavor.clone());
                self.apply(Event::RunCompleted { flavor, lifetime, runtime }, policy, now, trace);
            }
        }
        let servers = snapshot.servers.iter();
        for server in servers.filter(|server| server.is_admitted() && !before.contains_key(&server.uid)) {
            let Some(admission) = &server.admission else { continue };
            if let (Some(stored), Some(admitted_at)) = (&admission.first_estimate, &admission.admitted_at) {
                let (estimate, wait) = status::estimate_and_wait(stored, admitted_at.0);
                let flavor = server.flavor.to_string();
                self.dirty_histories.insert(flavor.clone());
                self.apply(Event::WaitCompleted { flavor, estimate, wait }, policy, now, trace);
            }
        }
        gone
    }

    /// Runs a scheduling cycle and assumes that its decisions are written.
    pub(super) fn decide(&mut self, policy: &Policy, now: Timestamp, trace: TraceFn<'_>) -> scheduler::Plan {
        let second = self.monotonic_now(now);
        let mut plan = self.queue.state.plan(&policy.scheduler, second);
        trace(TraceRecord::Plan { now: second, plan: &plan });
        let admitted = plan.assignments.iter().map(|assignment| {
            let server = self.state().server(&assignment.id)?;
            Some(convert::admitted(server, &assignment.nodes, now))
        });
        let preempted = plan.preemptions.iter().map(|preemption| {
            let server = self.state().server(&preemption.id)?;
            Some(convert::preempted(server, preemption.end))
        });
        let confirmed = plan.confirmed_bookings.iter().map(|id| {
            let server = self.state().server(id)?;
            Some(scheduler::Server { booking_confirmed: true, ..server.clone() })
        });
        let assumed: Vec<scheduler::Server> = admitted.chain(preempted).chain(confirmed).flatten().collect();
        for server in assumed {
            self.apply(Event::Server(Box::new(server)), policy, second, trace);
        }
        // Messages of pending servers describe the state with all assignments.
        self.queue.update(std::mem::take(&mut plan.pending), &plan.delayed, policy.scheduler, second);
        plan
    }

    /// Returns the usage of an account as of now.
    pub fn usage(&self, account: &AccountRef, policy: &Policy, now: Timestamp) -> Usage {
        let (second, usage_half_life) = (self.monotonic_now(now), policy.scheduler.usage_half_life);
        let usage = match account {
            AccountRef::User(name) => self.state().user_usage(name.as_str(), usage_half_life, second),
            AccountRef::Team(name) => self.state().team_usage(name.as_str(), usage_half_life, second),
        };
        Usage { device_seconds: usage.unwrap_or_default().amount / 1_000, at: to_api_precision(now) }
    }

    /// Returns the histories that changed since the last call.
    pub fn take_dirty_histories(&mut self) -> Vec<(String, FlavorHistory)> {
        let flavors = std::mem::take(&mut self.dirty_histories);
        let history = |flavor: String| {
            let history = stored_history::to_stored(self.state().history(&flavor)?);
            Some((flavor, history))
        };
        flavors.into_iter().filter_map(history).collect()
    }
}

/// Returns the runs of a snapshot. A stopping server keeps the end it had before.
fn runs(snapshot: &Snapshot<'_>, mut before: BTreeMap<String, Run>) -> BTreeMap<String, Run> {
    let runs = snapshot.servers.iter().filter(|server| server.is_admitted()).filter_map(|server| {
        let started_at = server.admission.as_ref()?.admitted_at.as_ref()?.0.as_second();
        let known = before.remove(&server.uid);
        let known = known.filter(|known| server.is_stopped() && known.started_at == started_at);
        let end = server.release_time.map(Timestamp::as_second);
        Some((server.uid.clone(), known.unwrap_or(Run { started_at, end })))
    });
    runs.collect()
}

fn from_stored_usage(usage: &Usage) -> DecayedUsage {
    DecayedUsage { amount: usage.device_seconds.saturating_mul(1_000), as_of: usage.at.0.as_second() }
}

/// Returns events for accounts that differ from the state. Accounts that the state only knows by name are not deleted.
fn changed_accounts<'a>(
    known: impl Iterator<Item = &'a AccountSpec>,
    specs: &[AccountSpec],
    set: fn(AccountSpec) -> Event,
    delete: fn(String) -> Event,
) -> Vec<Event> {
    let known: BTreeMap<&str, &AccountSpec> = known.map(|spec| (spec.name.as_str(), spec)).collect();
    let without_usage = |spec: &AccountSpec| AccountSpec { usage: None, ..spec.clone() };
    let is_changed = |spec: &&AccountSpec| {
        known.get(spec.name.as_str()).map(|known| without_usage(known)) != Some(without_usage(spec))
    };
    let names: HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let is_default =
        |spec: &AccountSpec| without_usage(spec) == AccountSpec { name: spec.name.clone(), ..AccountSpec::default() };
    let deleted = known.values().filter(|spec| !names.contains(spec.name.as_str()) && !is_default(spec));
    let deleted: Vec<Event> = deleted.map(|spec| delete(spec.name.clone())).collect();
    specs.iter().filter(is_changed).cloned().map(set).chain(deleted).collect()
}
