//! Expected starts of servers too far back for a reservation: the last known start ahead of them, plus the work queued
//! in between.

use std::collections::BTreeMap;

use crate::scheduler::cycle::quota::violation::{QuotaResource, QuotaViolation};
use crate::scheduler::cycle::quota::{AccountId, limited_accounts};
use crate::scheduler::event::Server;
use crate::scheduler::plan::{PendingReason, PendingServer};
use crate::scheduler::state::Entry;
use crate::scheduler::{ClusterState, Policy};

/// Pending servers ahead that wait for the same resources.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    last_start: Option<i64>,
    /// What servers behind `last_start` use during their runtime, in millidevice-seconds.
    work: i128,
    /// What servers with an unknown runtime use, in millidevices.
    unbounded: i128,
}

#[derive(Default)]
struct Backlogs<'w> {
    flavors: BTreeMap<&'w str, Backlog>,
    accounts: BTreeMap<AccountId, Backlog>,
}

impl ClusterState {
    /// Returns the expected starts of the pending servers of a plan. Omits servers within the reservation depth that got no
    /// reservation, because their start is unknown.
    pub(super) fn expected_starts(&self, pending: &[PendingServer], policy: &Policy, now: i64) -> Vec<(String, i64)> {
        let (mut backlogs, mut reservations) = (Backlogs::default(), 0);
        let mut starts = Vec::with_capacity(pending.len());
        for PendingServer { id, planned_start, reason, .. } in pending {
            let Some(entry) = self.find_entry(id) else { continue };
            let is_beyond_depth =
                planned_start.is_none() && reservations >= policy.max_reservations() && entry.server.is_due(now);
            reservations += usize::from(planned_start.is_some() && !entry.server.is_booking());
            let start =
                if is_beyond_depth { backlogs.expected_start(self, entry, reason, now) } else { *planned_start };
            let Some(start) = start else { continue };
            starts.push((id.clone(), start));
            if is_beyond_depth {
                backlogs.add_work(self, entry, now);
            } else if entry.server.is_due(now) {
                backlogs.add_start(self, entry, start, now);
            }
        }
        starts
    }

    /// Returns when nodes are available for a server, as far as the ends of other servers are known.
    fn earliest_availability(&self, entry: &Entry, now: i64) -> Option<i64> {
        let class = self.request_class(entry)?;
        let domains = class.domains.values().filter(|domain| domain.nodes.len() >= class.request.nodes());
        domains.filter_map(|domain| Some(domain.nodes.first()?.available_from.max(now))).min()
    }

    /// Returns when the first running server of an account is expected to end.
    fn earliest_release(&self, account: AccountId, now: i64) -> Option<i64> {
        let running = self.account(account)?.running.iter();
        running.filter_map(|server| self.entry(*server)?.expected_end).map(|end| end.max(now)).min()
    }
}

impl<'w> Backlogs<'w> {
    fn expected_start(
        &mut self,
        state: &'w ClusterState,
        entry: &'w Entry,
        reason: &PendingReason,
        now: i64,
    ) -> Option<i64> {
        let by_quota = match reason {
            PendingReason::Unsatisfiable | PendingReason::NodesRejected | PendingReason::BeginTime { .. } => {
                return None;
            }
            PendingReason::Quota(violation) => {
                let capacity = quota_capacity(violation)?;
                Some(self.account(state, violation.account, now).next_start(capacity)?)
            }
            PendingReason::Resources
            | PendingReason::Priority
            | PendingReason::ConflictsWithReservation
            | PendingReason::ExcludedThisCycle => None,
        };
        let backlog = self.flavors.entry(&entry.server.flavor).or_default();
        backlog.last_start = backlog.last_start.or_else(|| state.earliest_availability(entry, now));
        let by_nodes = backlog.next_start(state.request_class(entry)?.usage_capacity())?;
        Some(by_quota.map_or(by_nodes, |by_quota| by_quota.max(by_nodes)))
    }

    fn account(&mut self, state: &ClusterState, account: AccountId, now: i64) -> &mut Backlog {
        self.accounts.entry(account).or_insert_with(|| {
            let last_start = state.earliest_release(account, now);
            Backlog { last_start, ..Backlog::default() }
        })
    }

    /// Adds a server with a known start.
    fn add_start(&mut self, state: &ClusterState, entry: &'w Entry, start: i64, now: i64) {
        let backlog = self.flavors.entry(&entry.server.flavor).or_default();
        backlog.last_start = backlog.last_start.max(Some(start));
        for account in limited_accounts(state, entry) {
            let backlog = self.account(state, account, now);
            backlog.last_start = backlog.last_start.max(Some(start));
        }
    }

    /// Adds a server behind all known starts.
    fn add_work(&mut self, state: &ClusterState, entry: &'w Entry, now: i64) {
        self.flavors.entry(&entry.server.flavor).or_default().add_work(&entry.server);
        for account in limited_accounts(state, entry) {
            self.account(state, account, now).add_work(&entry.server);
        }
    }
}

impl Backlog {
    /// Returns when the next server starts if `capacity` (in millidevices) is used continuously.
    fn next_start(&self, capacity: i128) -> Option<i64> {
        let capacity = capacity - self.unbounded;
        if capacity <= 0 {
            return None;
        }
        Some(self.last_start?.saturating_add(i64::try_from(self.work / capacity).unwrap_or(i64::MAX)))
    }

    fn add_work(&mut self, server: &Server) {
        let rate = i128::from(server.request.usage_rate());
        match server.max_hold_time {
            Some(runtime) => self.work += rate * i128::from(runtime),
            None => self.unbounded += rate,
        }
    }
}

/// Returns what a quota allows at once, in millidevices. `None` if the request exceeds it, or if it does not limit
/// devices.
fn quota_capacity(violation: &QuotaViolation) -> Option<i128> {
    let limits_devices = matches!(violation.resource, QuotaResource::Devices | QuotaResource::Flavor(_));
    (limits_devices && violation.requested <= violation.limit).then_some(violation.limit * 1_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::scheduler::event::{AccountSpec, Event, Limits, Node, RunInfo, Server, ServerState};
    use crate::scheduler::fixtures::server;
    use crate::scheduler::{ClusterState, Forecast, Policy};

    const HOUR: i64 = 3_600;

    /// Returns the expected starts on a node with two devices, used for one and two hours. Six servers of ada, and then
    /// `more`, wait for a device for an hour. The reservation depth is two.
    fn starts(more: Vec<Server>, user: &str, limits: Limits) -> BTreeMap<String, i64> {
        let policy = Policy { reservation_depth: 2, ..Policy::default() };
        let (mut state, mut forecast) = (ClusterState::new(), Forecast::new());
        let running = [("one", 1), ("two", 2)].map(|(name, hours)| {
            let server = server(name, 0);
            let nodes = vec![("n1".to_owned(), server.request.per_node.clone())];
            let running = RunInfo { nodes, started_at: 0, end: Some(hours * HOUR), terminating: true };
            Server {
                state: ServerState::Running(running),
                max_hold_time: Some(hours * HOUR),
                owner: "eve".into(),
                ..server
            }
        });
        let per_node = &running[0].request.per_node;
        let node = Node { name: "n1".into(), capacity: per_node.saturating_add(per_node), ..Node::default() };
        let spec = AccountSpec { name: user.into(), limits, ..AccountSpec::default() };
        let pending =
            (0..6).map(|number| Server { max_hold_time: Some(HOUR), ..server(&format!("w{number}"), number) });
        let servers = running.into_iter().chain(pending).chain(more).map(|server| Event::Server(Box::new(server)));
        for event in [Event::Node(node), Event::User(spec)].into_iter().chain(servers) {
            forecast.apply(&event, &state, policy.usage_half_life, 0);
            state.apply(event, policy.usage_half_life, 0);
        }
        forecast.expected_starts(&state, &policy, 0)
    }

    #[test]
    fn server_beyond_depth_starts_after_expected_runtimes_ahead() {
        let starts = starts(Vec::new(), "joe", Limits::default());
        let start = |number: i64| starts[&format!("w{number}")];
        // w0 starts after "one", w1 after w0.
        let runtime = start(1) - start(0);
        assert!(start(0) == HOUR && (HOUR / 2..=HOUR).contains(&runtime), "{starts:?}");
        // From then on one starts every half runtime, because there are two devices.
        let expected = [0, 1, 2, 3].map(|ahead| start(1) + ahead * runtime / 2);
        assert_eq!([2, 3, 4, 5].map(start), expected, "{starts:?}");
    }

    #[test]
    fn server_with_unknown_start_is_omitted() {
        let pending = |name: &str, queued_at| Server {
            owner: "joe".into(),
            max_hold_time: Some(HOUR),
            ..server(name, queued_at)
        };
        let mut large = pending("large", 10);
        large.request.per_node = large.request.per_node.with_device("gpu", 3);
        let mut greedy = pending("greedy", 11);
        greedy.request.per_node = greedy.request.per_node.with_device("gpu", 2);
        let booked = Server { not_before: Some(90 * HOUR), owner: "bob".into(), ..pending("booked", 12) };
        let more = vec![large, greedy, booked, pending("last", 13)];
        let starts = starts(more, "joe", Limits { devices: Some(1), ..Limits::default() });
        assert!(!starts.contains_key("large") && !starts.contains_key("greedy"), "{starts:?}");
        assert_eq!(starts["booked"], 90 * HOUR);
        assert!(starts["last"] > starts["w5"] && starts["last"] < 9 * HOUR, "{starts:?}");
    }

    #[test]
    fn server_above_quota_waits_for_servers_of_its_account() {
        let more =
            || (10..22).map(|number| Server { max_hold_time: Some(HOUR), ..server(&format!("e{number}"), number) });
        let more = || more().map(|server| Server { owner: "eve".into(), ..server }).collect();
        let unlimited = starts(more(), "eve", Limits::default());
        // She uses two devices and is limited to one.
        let limited = starts(more(), "eve", Limits { devices: Some(1), ..Limits::default() });
        assert!(limited["e21"] > unlimited["e21"] + HOUR / 2, "{limited:?} {unlimited:?}");
        assert_eq!(limited["w5"], unlimited["w5"]);
    }
}
