//! Users and teams: what they may hold, what they hold, and what they used lately.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Account, Ask, Used};
use super::excess::Limited;
use super::world::Entry;

#[derive(Clone, Debug, Default)]
pub(super) struct Purses {
    ids: BTreeMap<String, u32>,
    all: Vec<Purse>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Purse {
    pub account: Account,
    /// Its servers that hold nodes.
    pub runs: BTreeSet<u32>,
    /// All its servers, sleeping ones included.
    pub servers: BTreeSet<u32>,
    pub held: Holding,
    /// The part of that of servers on their way out.
    pub leaving: Holding,
    /// What that costs in a second, in thousandths of a device.
    pub cost: i64,
    pub used: Used,
}

/// Amounts that quotas speak about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub devices: i64,
    pub cpu: i64,
    pub memory: i64,
}

impl Held {
    pub fn of(ask: &Ask) -> Self {
        Self { devices: ask.devices(), cpu: ask.in_all(ask.each.cpu), memory: ask.in_all(ask.each.memory) }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            devices: self.devices.saturating_add(other.devices),
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }

    pub fn minus(self, other: Self) -> Self {
        Self {
            devices: self.devices.saturating_sub(other.devices),
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }
}

/// What some servers hold, and their devices by flavor.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding {
    pub all: Held,
    flavors: BTreeMap<String, i64>,
}

impl Holding {
    pub fn add(&mut self, entry: &Entry) {
        self.all = self.all.plus(entry.need);
        self.count(entry, entry.need.devices);
    }

    pub fn remove(&mut self, entry: &Entry) {
        self.all = self.all.minus(entry.need);
        self.count(entry, -entry.need.devices);
    }

    fn count(&mut self, entry: &Entry, devices: i64) {
        if devices == 0 {
            return;
        }
        let of_flavor = self.flavors.entry(entry.server.flavor.clone()).or_default();
        *of_flavor = of_flavor.saturating_add(devices);
        if *of_flavor == 0 {
            self.flavors.remove(&entry.server.flavor);
        }
    }

    /// How many devices of a flavor.
    pub fn of_flavor(&self, flavor: &str) -> i64 {
        self.flavors.get(flavor).copied().unwrap_or_default()
    }

    /// How much of something that can be limited.
    pub fn of(&self, what: &Limited) -> i128 {
        match what {
            Limited::Flavor(flavor) => self.of_flavor(flavor).into(),
            Limited::Servers | Limited::Devices | Limited::Cpu | Limited::Memory => what.of(self.all),
        }
    }
}

impl Purses {
    /// Whoever was not heard of has no limits.
    pub fn find(&mut self, name: &str) -> u32 {
        if let Some(at) = self.ids.get(name) {
            return *at;
        }
        let at = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.ids.insert(name.to_owned(), at);
        let account = Account { name: name.to_owned(), ..Account::default() };
        self.all.push(Purse { account, ..Purse::default() });
        at
    }

    pub fn named(&self, name: &str) -> Option<&Purse> {
        self.get(*self.ids.get(name)?)
    }

    pub fn get(&self, at: u32) -> Option<&Purse> {
        self.all.get(usize::try_from(at).ok()?)
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut Purse> {
        self.all.get_mut(usize::try_from(at).ok()?)
    }

    pub fn all(&self) -> impl Iterator<Item = (u32, &Purse)> {
        (0_u32..).zip(&self.all)
    }
}

impl Purse {
    pub fn set(&mut self, account: Account) {
        if let Some(used) = account.used {
            self.used = used;
        }
        self.account = account;
    }

    /// Counts a server that holds nodes.
    pub fn hold(&mut self, entry: &Entry) {
        self.held.add(entry);
        self.cost = self.cost.saturating_add(entry.server.ask.cost());
        if is_leaving(entry) {
            self.leaving.add(entry);
        }
    }

    /// Counts it no more.
    pub fn release(&mut self, entry: &Entry) {
        self.held.remove(entry);
        self.cost = self.cost.saturating_sub(entry.server.ask.cost());
        if is_leaving(entry) {
            self.leaving.remove(entry);
        }
    }

    pub fn used_at(&self, now: i64, half_life: i64) -> Used {
        self.used.until(now, self.cost, half_life)
    }

    /// What it used for its weight, in steps that count.
    pub fn share(&self, now: i64, half_life: i64, step: i64) -> i64 {
        let weight = i64::from(self.account.weight.max(1));
        self.used_at(now, half_life).amount / weight / step.max(1).saturating_mul(1_000)
    }
}

fn is_leaving(entry: &Entry) -> bool {
    entry.server.running().is_some_and(|running| running.leaving)
}

#[cfg(test)]
mod tests {
    use super::super::event::{Event, Running, Server, State};
    use super::super::fixtures::server;
    use super::super::world::World;

    /// What is kept count of is what a count of all servers comes to.
    fn check(world: &World) {
        for purse in world.users.all().chain(world.teams.all()).map(|(_, purse)| purse) {
            let runs = || purse.runs.iter().filter_map(|at| world.entry(*at));
            for flavor in ["big", "small"] {
                let of_flavor = runs().filter(|run| run.server.flavor == flavor);
                let of_flavor: i64 = of_flavor.map(|run| run.need.devices).sum();
                assert_eq!(purse.held.of_flavor(flavor), of_flavor, "{flavor} of {}", purse.account.name);
                let leaving = runs().filter(|run| run.server.flavor == flavor && super::is_leaving(run));
                let leaving: i64 = leaving.map(|run| run.need.devices).sum();
                assert_eq!(purse.leaving.of_flavor(flavor), leaving, "{flavor} of {}", purse.account.name);
            }
            let leaving: i64 = runs().filter(|run| super::is_leaving(run)).map(|run| run.need.devices).sum();
            assert_eq!(purse.leaving.all.devices, leaving, "{}", purse.account.name);
        }
    }

    #[test]
    fn what_is_held_is_counted_by_flavor_and_by_who_leaves() {
        let mut world = World::new();
        let mut counted = 0;
        for step in 0_i64..200 {
            let id = format!("s{}", step * 7 % 11);
            let event = if step % 5 == 4 {
                Event::ServerGone(id)
            } else {
                let running = Running { on: Vec::new(), since: step, end: None, leaving: step % 3 == 0 };
                let mut told = Server { owner: format!("u{}", step % 2), ..server(&id, step) };
                told.ask.each = told.ask.each.with_device("gpu", step % 4);
                told.flavor = ["big", "small"][usize::from(step % 8 > 3)].into();
                told.team = (step % 6 > 2).then(|| "team".into());
                told.state = if step % 7 == 0 { State::Waiting } else { State::Running(running) };
                Event::Server(Box::new(told))
            };
            world.apply(event, 1_000, step);
            check(&world);
            counted +=
                world.teams.named("team").map_or(0, |team| team.leaving.all.devices * team.held.of_flavor("big"));
        }
        assert!(counted > 0, "nobody ever had anything to count");
    }
}
