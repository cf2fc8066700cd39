//! Users and teams: what they may hold, what they hold, and what they used lately.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Account, Ask, Used};

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
    pub held: Held,
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

    pub fn used_at(&self, now: i64, half_life: i64) -> Used {
        self.used.until(now, self.cost, half_life)
    }

    /// What it used for its weight, in steps that count.
    pub fn share(&self, now: i64, half_life: i64, step: i64) -> i64 {
        let weight = i64::from(self.account.weight.max(1));
        self.used_at(now, half_life).amount / weight / step.max(1).saturating_mul(1_000)
    }
}
