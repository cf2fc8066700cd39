//! Quotas of users and teams over time. They are enforced when nodes are assigned; running servers are not affected.

pub(crate) mod violation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reservation::{MAX_START_SEARCH_STEPS, Reservation};
use crate::scheduler::ClusterState;
use crate::scheduler::event::Limits;
use crate::scheduler::order::ArrivalKey;
use crate::scheduler::state::Entry;
use crate::scheduler::state::accounts::{Account, ResourceUsage};
use crate::scheduler::state::arena::{AccountIdx, EndOfRun, ServerIdx};
use crate::scheduler::timeline::{Timeline, Window};
use violation::{ExceededLimit, Headroom, QuotaResource, QuotaViolation, exceeded_flavor_limit, find_exceeded_limit};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AccountId {
    User(AccountIdx),
    Team(AccountIdx),
}

/// What a cycle adds to the usage of accounts: assignments and reservations.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaLedger {
    assigned: BTreeMap<AccountId, ResourceUsage>,
    /// Devices by flavor, where the account limits the flavor.
    assigned_by_flavor: BTreeMap<AccountId, BTreeMap<String, i64>>,
    /// The end of each assignment.
    assigned_ends: BTreeMap<AccountId, Vec<EndOfRun>>,
    /// Computed on demand.
    timelines: BTreeMap<AccountId, UsageTimeline>,
    reserved_starts: BTreeMap<AccountId, BTreeSet<(i64, ServerIdx)>>,
    /// The number of servers of the account that count before each server, where servers are limited.
    servers_before: Arc<BTreeMap<AccountId, BTreeMap<ServerIdx, u32>>>,
}

/// Usage of an account from now on, in total and for limited flavors. Attempts share it until one of them changes it.
#[derive(Clone, Debug)]
struct UsageTimeline {
    total: Arc<Timeline<Usage>>,
    flavors: BTreeMap<String, Arc<Timeline<Usage>>>,
}

/// Usage at a time, including what is only reserved for pending servers.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    total: ResourceUsage,
    reserved: ResourceUsage,
}

/// Returns the user and, if any, the team of a server.
fn accounts(entry: &Entry) -> impl Iterator<Item = AccountId> + use<> {
    [Some(AccountId::User(entry.user)), entry.team.map(AccountId::Team)].into_iter().flatten()
}

impl QuotaLedger {
    pub fn new(state: &ClusterState) -> Self {
        let limited = state.accounts().filter(|(_, account)| account.spec.limits.servers.is_some());
        let servers_before = limited.map(|(id, account)| {
            let servers = account.servers.iter();
            let mut servers: Vec<(ServerIdx, &Entry)> =
                servers.filter_map(|server| Some((*server, state.entry(*server)?))).collect();
            // Servers that hold nodes count before all others.
            servers.sort_by_key(|(_, entry)| (entry.server.running().is_none(), ArrivalKey::new(&entry.server)));
            (id, servers.into_iter().map(|(server, _)| server).zip(0..).collect())
        });
        Self { servers_before: Arc::new(servers_before.collect()), ..Self::default() }
    }

    /// Adds an assignment.
    pub fn assign(&mut self, state: &ClusterState, server: ServerIdx, entry: &Entry, now: i64) {
        let end = now.saturating_add(entry.server.hold_time());
        for account in limited_accounts(state, entry) {
            let assigned = self.assigned.entry(account).or_default();
            *assigned = assigned.saturating_add(entry.usage);
            if is_flavor_limited(state, account, entry) {
                let flavors = self.assigned_by_flavor.entry(account).or_default();
                *flavors.entry(entry.server.flavor.clone()).or_default() += entry.usage.devices;
            }
            self.assigned_ends.entry(account).or_default().push(EndOfRun { time: end, server });
        }
        self.update(state, entry, i64::MIN, end, |usage| usage.total = usage.total.saturating_add(entry.usage));
    }

    /// Adds a reservation.
    pub fn reserve(&mut self, state: &ClusterState, server: ServerIdx, entry: &Entry, reservation: &Reservation) {
        for account in limited_accounts(state, entry) {
            self.reserved_starts.entry(account).or_default().insert((reservation.start, server));
            self.ensure_timeline(state, account, entry);
        }
        self.update(state, entry, reservation.start, reservation.end, |usage| {
            usage.total = usage.total.saturating_add(entry.usage);
            usage.reserved = usage.reserved.saturating_add(entry.usage);
        });
    }

    /// Removes a reservation.
    pub fn unreserve(&mut self, state: &ClusterState, server: ServerIdx, entry: &Entry, reservation: &Reservation) {
        for account in limited_accounts(state, entry) {
            if let Some(starts) = self.reserved_starts.get_mut(&account) {
                starts.remove(&(reservation.start, server));
            }
        }
        self.update(state, entry, reservation.start, reservation.end, |usage| {
            usage.total = usage.total.saturating_sub(entry.usage);
            usage.reserved = usage.reserved.saturating_sub(entry.usage);
        });
    }

    fn assigned(&self, account: AccountId) -> ResourceUsage {
        self.assigned.get(&account).copied().unwrap_or_default()
    }

    fn assigned_devices(&self, account: AccountId, flavor: &str) -> i64 {
        let flavors = self.assigned_by_flavor.get(&account);
        flavors.and_then(|flavors| flavors.get(flavor)).copied().unwrap_or_default()
    }

    /// Returns the amount assigned in this cycle; for a flavor only where the account limits it.
    pub fn assigned_amount(&self, account: AccountId, resource: &QuotaResource) -> i128 {
        match resource {
            QuotaResource::Flavor(flavor) => self.assigned_devices(account, flavor).into(),
            QuotaResource::Servers | QuotaResource::Devices | QuotaResource::Cpu | QuotaResource::Memory => {
                resource.amount(self.assigned(account))
            }
        }
    }

    /// Changes the timelines that exist.
    fn update(&mut self, state: &ClusterState, entry: &Entry, start: i64, end: i64, change: impl Fn(&mut Usage)) {
        for account in limited_accounts(state, entry) {
            let Some(timeline) = self.timelines.get_mut(&account) else { continue };
            Arc::make_mut(&mut timeline.total).update(start, end, &change);
            if let Some(flavor) = timeline.flavors.get_mut(&entry.server.flavor) {
                Arc::make_mut(flavor).update(start, end, &change);
            }
        }
    }

    /// Moves the expected end of a running server.
    pub fn set_expected_end(&mut self, state: &ClusterState, entry: &Entry, before: Option<i64>, end: Option<i64>) {
        let (before, end) = (before.unwrap_or(i64::MAX), end.unwrap_or(i64::MAX));
        self.update(state, entry, end, before, |usage| usage.total = usage.total.saturating_sub(entry.usage));
        self.update(state, entry, before, end, |usage| usage.total = usage.total.saturating_add(entry.usage));
    }

    /// Computes all timelines that another ledger has, so that attempts that start from this one can share them.
    pub fn ensure_timelines_like(&mut self, state: &ClusterState, other: &Self) {
        for (account, timeline) in &other.timelines {
            if !self.timelines.contains_key(account) {
                self.compute_timeline(state, *account, None);
            }
            for flavor in timeline.flavors.keys() {
                self.compute_timeline(state, *account, Some(flavor));
            }
        }
    }

    fn ensure_timeline(&mut self, state: &ClusterState, account: AccountId, entry: &Entry) {
        let flavor = is_flavor_limited(state, account, entry).then_some(entry.server.flavor.as_str());
        self.compute_timeline(state, account, flavor);
    }

    /// Computes the timeline of an account and of a flavor, unless they exist. Costs O(servers of the account).
    fn compute_timeline(&mut self, state: &ClusterState, id: AccountId, flavor: Option<&str>) {
        let Some(account) = state.account(id) else { return };
        let assigned_now = self.assigned(id);
        let assigned_devices = flavor.map_or(0, |flavor| self.assigned_devices(id, flavor));
        let assigned = self.assigned_ends.get(&id).map_or(&[][..], Vec::as_slice);
        let timeline = self.timelines.entry(id).or_insert_with(|| {
            let now = account.usage.total.saturating_add(assigned_now);
            UsageTimeline {
                total: Arc::new(usage_timeline(state, account, now, assigned, None)),
                flavors: BTreeMap::new(),
            }
        });
        let Some(flavor) = flavor.filter(|flavor| !timeline.flavors.contains_key(*flavor)) else { return };
        let devices = account.usage.devices(flavor).saturating_add(assigned_devices);
        let now = ResourceUsage { devices, ..ResourceUsage::default() };
        let of_flavor = usage_timeline(state, account, now, assigned, Some(flavor));
        timeline.flavors.insert(flavor.to_owned(), Arc::new(of_flavor));
    }

    /// Returns the first quota that a server would exceed in a window that starts now. Violations in `borrowed` are ignored
    /// until the next reservation of the account starts.
    pub fn violation(
        &self,
        state: &ClusterState,
        server: ServerIdx,
        entry: &Entry,
        window: Window,
        borrowed: &[QuotaViolation],
    ) -> Option<QuotaViolation> {
        accounts(entry).find_map(|account| {
            let borrows = borrowed.iter().any(|known| known.account == account);
            let is_borrowed = |resource: &QuotaResource| {
                borrowed.iter().any(|known| known.account == account && known.resource == *resource)
            };
            self.server_limit_violation(state, account, server)
                .or_else(|| self.violation_now(state, account, entry, is_borrowed))
                .or_else(|| self.violation_later(state, account, entry, window, borrows))
        })
    }

    /// Returns the first quota that a server would exceed in a window that starts later.
    pub fn violation_from(
        &mut self,
        state: &ClusterState,
        server: ServerIdx,
        entry: &Entry,
        window: Window,
    ) -> Option<QuotaViolation> {
        let mut all = accounts(entry);
        if let Some(violation) = all.find_map(|account| self.server_limit_violation(state, account, server)) {
            return Some(violation);
        }
        limited_accounts(state, entry).find_map(|account| {
            self.ensure_timeline(state, account, entry);
            self.violation_within(state, account, entry, window)
        })
    }

    /// Returns the earliest start, not before that of `earliest`, that quotas allow, if known.
    pub fn earliest_start(
        &mut self,
        state: &ClusterState,
        server: ServerIdx,
        entry: &Entry,
        earliest: Window,
    ) -> Option<i64> {
        let mut window = earliest;
        // Each account may move the start to a later time, which the other one must allow too.
        for _ in 0..MAX_START_SEARCH_STEPS {
            let before = window.start;
            for account in accounts(entry) {
                if self.server_limit_violation(state, account, server).is_some() {
                    return None;
                }
            }
            for account in limited_accounts(state, entry) {
                self.ensure_timeline(state, account, entry);
                let limits = &state.account(account)?.spec.limits;
                let (headroom, timeline) = (Headroom::new(limits, entry.usage), self.timelines.get(&account)?);
                window.start = timeline.total.earliest_window(window, |usage| headroom.fits(usage.total))?;
                if let Some(limit) = limits.flavors.get(&entry.server.flavor) {
                    let requested = entry.usage.devices;
                    let fits =
                        |usage: &Usage| requested == 0 || usage.total.devices.saturating_add(requested) <= *limit;
                    let flavor = timeline.flavors.get(&entry.server.flavor)?;
                    window.start = flavor.earliest_window(window, fits)?;
                }
            }
            if window.start == before {
                return Some(before);
            }
        }
        None
    }

    fn server_limit_violation(
        &self,
        state: &ClusterState,
        account: AccountId,
        server: ServerIdx,
    ) -> Option<QuotaViolation> {
        let before = *self.servers_before.get(&account)?.get(&server)?;
        let limit = state.account(account)?.spec.limits.servers?;
        (before >= limit).then(|| QuotaViolation {
            account,
            resource: QuotaResource::Servers,
            limit: limit.into(),
            used: before.into(),
            reserved: 0,
            requested: 1,
        })
    }

    fn violation_now(
        &self,
        state: &ClusterState,
        id: AccountId,
        entry: &Entry,
        is_ignored: impl Fn(&QuotaResource) -> bool,
    ) -> Option<QuotaViolation> {
        let account = state.account(id)?;
        let limits = &account.spec.limits;
        if !is_limited(limits) {
            return None;
        }
        let used = account.usage.total.saturating_add(self.assigned(id));
        let exceeded = find_exceeded_limit(limits, used, entry.usage, &is_ignored).or_else(|| {
            let flavor = &entry.server.flavor;
            let limit = *limits.flavors.get(flavor)?;
            let used = account.usage.devices(flavor).saturating_add(self.assigned_devices(id, flavor));
            exceeded_flavor_limit(flavor, limit, used, entry.usage).filter(|exceeded| !is_ignored(&exceeded.resource))
        });
        exceeded.map(|exceeded| exceeded.violation(id, 0))
    }

    /// Checks the time after now. Without reservations usage only decreases, so that `violation_now` is sufficient.
    fn violation_later(
        &self,
        state: &ClusterState,
        account: AccountId,
        entry: &Entry,
        window: Window,
        borrows: bool,
    ) -> Option<QuotaViolation> {
        let (first_reserved, _) = *self.reserved_starts.get(&account)?.first()?;
        // Borrowed quota must be free again when the next reservation starts.
        let (start, end) = (if borrows { first_reserved } else { window.start }, window.end());
        if start >= end {
            return None;
        }
        self.violation_within(state, account, entry, Window { start, duration: end.saturating_sub(start) })
    }

    /// Checks a window of a timeline that exists.
    fn violation_within(
        &self,
        state: &ClusterState,
        account: AccountId,
        entry: &Entry,
        window: Window,
    ) -> Option<QuotaViolation> {
        let limits = &state.account(account)?.spec.limits;
        let (headroom, timeline) = (Headroom::new(limits, entry.usage), self.timelines.get(&account)?);
        let usage = timeline.total.first_violation(window, |usage| headroom.fits(usage.total));
        let exceeded =
            usage.and_then(|usage| Some((find_exceeded_limit(limits, usage.total, entry.usage, |_| false)?, usage)));
        let exceeded = exceeded.or_else(|| {
            let flavor = &entry.server.flavor;
            let limit = *limits.flavors.get(flavor)?;
            let fits = |usage: &Usage| usage.total.devices.saturating_add(entry.usage.devices) <= limit;
            let usage = timeline.flavors.get(flavor)?.first_violation(window, fits)?;
            Some((exceeded_flavor_limit(flavor, limit, usage.total.devices, entry.usage)?, usage))
        });
        exceeded.map(|(exceeded, usage)| {
            let reserved = exceeded.resource.amount(usage.reserved);
            exceeded.violation(account, reserved)
        })
    }
}

impl ExceededLimit {
    fn violation(self, account: AccountId, reserved: i128) -> QuotaViolation {
        let Self { resource, limit, used, requested } = self;
        QuotaViolation { account, resource, limit, used, reserved, requested }
    }
}

/// Reports whether any resource is limited that running servers use.
pub(crate) fn is_limited(limits: &Limits) -> bool {
    limits.devices.is_some() || limits.cpu.is_some() || limits.memory.is_some() || !limits.flavors.is_empty()
}

/// Returns the accounts of a server that limit any resource.
pub(crate) fn limited_accounts<'w>(
    state: &'w ClusterState,
    entry: &Entry,
) -> impl Iterator<Item = AccountId> + use<'w> {
    accounts(entry).filter(|id| state.account(*id).is_some_and(|account| is_limited(&account.spec.limits)))
}

fn is_flavor_limited(state: &ClusterState, id: AccountId, entry: &Entry) -> bool {
    state.account(id).is_some_and(|account| account.spec.limits.flavors.contains_key(&entry.server.flavor))
}

/// Returns the usage of an account from now on, of all servers or those of one flavor.
fn usage_timeline(
    state: &ClusterState,
    account: &Account,
    now: ResourceUsage,
    assigned: &[EndOfRun],
    flavor: Option<&str>,
) -> Timeline<Usage> {
    let is_of_flavor = |entry: &&Entry| flavor.is_none_or(|flavor| entry.server.flavor == flavor);
    let running = account.running.iter().filter_map(|server| state.entry(*server)).filter(is_of_flavor);
    let running = running.filter_map(|entry| Some((entry.expected_end?, entry.usage)));
    let assigned = assigned.iter().filter(|end| end.time < i64::MAX);
    let assigned = assigned.filter_map(|end| Some((end.time, state.entry(end.server).filter(is_of_flavor)?.usage)));
    let mut ends: Vec<(i64, ResourceUsage)> = running.chain(assigned).collect();
    ends.sort_by_key(|(end, _)| *end);
    let mut timeline = Timeline::new(Usage { total: now, ..Usage::default() });
    for (end, released) in ends {
        timeline.append(end, |usage| Usage { total: usage.total.saturating_sub(released), ..*usage });
    }
    timeline
}
