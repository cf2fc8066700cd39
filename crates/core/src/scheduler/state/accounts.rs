//! Users and teams: their quota, current usage and decayed past usage.

use std::collections::{BTreeMap, BTreeSet};

use super::Entry;
use super::arena::{AccountIdx, Handle, ServerIdx};
use crate::scheduler::Policy;
use crate::scheduler::cycle::quota::violation::QuotaResource;
use crate::scheduler::event::{AccountSpec, DecayedUsage, Request};

#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    by_name: BTreeMap<String, AccountIdx>,
    accounts: Vec<Account>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountKind {
    User,
    Team,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub spec: AccountSpec,
    /// Servers that hold nodes.
    pub running: BTreeSet<ServerIdx>,
    /// All servers, including hibernated ones.
    pub servers: BTreeSet<ServerIdx>,
    pub usage: UsageByFlavor,
    /// The part of `usage` that belongs to terminating servers.
    pub terminating_usage: UsageByFlavor,
    /// Fair-share usage per second, in millidevices.
    pub usage_rate: i64,
    pub decayed_usage: DecayedUsage,
}

/// Amounts of the resources that quotas limit: devices, millicores, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceUsage {
    pub devices: i64,
    pub cpu: i64,
    pub memory: i64,
}

impl ResourceUsage {
    pub fn new(request: &Request) -> Self {
        Self {
            devices: request.devices(),
            cpu: request.total(request.per_node.cpu),
            memory: request.total(request.per_node.memory),
        }
    }

    pub fn saturating_add(self, other: Self) -> Self {
        Self {
            devices: self.devices.saturating_add(other.devices),
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            devices: self.devices.saturating_sub(other.devices),
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }
}

/// Usage of a set of servers, with devices by flavor.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsageByFlavor {
    pub total: ResourceUsage,
    devices: BTreeMap<String, i64>,
}

impl UsageByFlavor {
    pub fn add(&mut self, entry: &Entry) {
        self.total = self.total.saturating_add(entry.usage);
        self.add_devices(&entry.server.flavor, entry.usage.devices);
    }

    pub fn remove(&mut self, entry: &Entry) {
        self.total = self.total.saturating_sub(entry.usage);
        self.add_devices(&entry.server.flavor, -entry.usage.devices);
    }

    fn add_devices(&mut self, flavor: &str, devices: i64) {
        if devices == 0 {
            return;
        }
        let sum = self.devices.entry(flavor.to_owned()).or_default();
        *sum = sum.saturating_add(devices);
        if *sum == 0 {
            self.devices.remove(flavor);
        }
    }

    /// Returns the number of devices of a flavor.
    pub fn devices(&self, flavor: &str) -> i64 {
        self.devices.get(flavor).copied().unwrap_or_default()
    }

    pub fn amount(&self, resource: &QuotaResource) -> i128 {
        match resource {
            QuotaResource::Flavor(flavor) => self.devices(flavor).into(),
            QuotaResource::Servers | QuotaResource::Devices | QuotaResource::Cpu | QuotaResource::Memory => {
                resource.amount(self.total)
            }
        }
    }
}

impl Accounts {
    /// Returns the account's index; unknown accounts are created without limits.
    pub fn find_or_create(&mut self, name: &str) -> AccountIdx {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = AccountIdx::from_position(self.accounts.len());
        self.by_name.insert(name.to_owned(), index);
        let spec = AccountSpec { name: name.to_owned(), ..AccountSpec::default() };
        self.accounts.push(Account { spec, ..Account::default() });
        index
    }

    pub fn set_spec(&mut self, spec: AccountSpec) {
        let index = self.find_or_create(&spec.name);
        if let Some(account) = self.get_mut(index) {
            account.set_spec(spec);
        }
    }

    pub fn by_name(&self, name: &str) -> Option<&Account> {
        self.get(*self.by_name.get(name)?)
    }

    pub fn get(&self, index: AccountIdx) -> Option<&Account> {
        self.accounts.get(index.position())
    }

    pub fn get_mut(&mut self, index: AccountIdx) -> Option<&mut Account> {
        self.accounts.get_mut(index.position())
    }

    pub fn iter(&self) -> impl Iterator<Item = (AccountIdx, &Account)> {
        self.accounts.iter().enumerate().map(|(position, account)| (AccountIdx::from_position(position), account))
    }
}

impl Account {
    fn set_spec(&mut self, spec: AccountSpec) {
        if let Some(usage) = spec.usage {
            self.decayed_usage = usage;
        }
        self.spec = spec;
    }

    /// Adds a server that holds nodes.
    pub fn add_usage(&mut self, entry: &Entry) {
        self.usage.add(entry);
        self.usage_rate = self.usage_rate.saturating_add(entry.server.request.usage_rate());
        if is_terminating(entry) {
            self.terminating_usage.add(entry);
        }
    }

    pub fn remove_usage(&mut self, entry: &Entry) {
        self.usage.remove(entry);
        self.usage_rate = self.usage_rate.saturating_sub(entry.server.request.usage_rate());
        if is_terminating(entry) {
            self.terminating_usage.remove(entry);
        }
    }

    /// Returns the decayed usage at a later time.
    pub fn usage_at(&self, now: i64, usage_half_life: i64) -> DecayedUsage {
        self.decayed_usage.advance(now, self.usage_rate, usage_half_life)
    }

    /// Returns the decayed usage per weight, in units of [`Policy::fair_share_resolution`].
    pub fn fair_share(&self, policy: &Policy, now: i64) -> i64 {
        let (weight, resolution) = (i64::from(self.spec.weight.max(1)), policy.fair_share_resolution.max(1));
        self.usage_at(now, policy.usage_half_life).amount / weight / resolution.saturating_mul(1_000)
    }
}

fn is_terminating(entry: &Entry) -> bool {
    entry.server.running().is_some_and(|running| running.terminating)
}

#[cfg(test)]
mod tests {
    use crate::scheduler::ClusterState;
    use crate::scheduler::event::{Event, RunInfo, Server, ServerState};
    use crate::scheduler::fixtures::server;

    /// Compares the incremental counters with sums over all servers.
    fn check(state: &ClusterState) {
        for account in state.users.iter().chain(state.teams.iter()).map(|(_, account)| account) {
            let running = || account.running.iter().filter_map(|server| state.entry(*server));
            for flavor in ["big", "small"] {
                let devices = running().filter(|run| run.server.flavor == flavor);
                let devices: i64 = devices.map(|run| run.usage.devices).sum();
                assert_eq!(account.usage.devices(flavor), devices, "{flavor} of {}", account.spec.name);
                let terminating = running().filter(|run| run.server.flavor == flavor && super::is_terminating(run));
                let terminating: i64 = terminating.map(|run| run.usage.devices).sum();
                assert_eq!(account.terminating_usage.devices(flavor), terminating, "{flavor} of {}", account.spec.name);
            }
            let terminating = running().filter(|run| super::is_terminating(run));
            let terminating: i64 = terminating.map(|run| run.usage.devices).sum();
            assert_eq!(account.terminating_usage.total.devices, terminating, "{}", account.spec.name);
        }
    }

    #[test]
    fn incremental_usage_equals_sum_over_servers() {
        let mut state = ClusterState::new();
        let mut counted = 0;
        for step in 0_i64..200 {
            let id = format!("s{}", step * 7 % 11);
            let event = if step % 5 == 4 {
                Event::ServerDeleted(id)
            } else {
                let running = RunInfo { nodes: Vec::new(), started_at: step, end: None, terminating: step % 3 == 0 };
                let mut server = Server { owner: format!("u{}", step % 2), ..server(&id, step) };
                server.request.per_node = server.request.per_node.with_device("gpu", step % 4);
                server.flavor = ["big", "small"][usize::from(step % 8 > 3)].into();
                server.team = (step % 6 > 2).then(|| "team".into());
                server.state = if step % 7 == 0 { ServerState::Pending } else { ServerState::Running(running) };
                Event::Server(Box::new(server))
            };
            state.apply(event, 1_000, step);
            check(&state);
            let team = state.teams.by_name("team");
            counted += team.map_or(0, |team| team.terminating_usage.total.devices * team.usage.devices("big"));
        }
        assert!(counted > 0, "no account had terminating usage");
    }
}
