//! Quotas of users and teams, over time. They hold when something is granted; whoever has something keeps it.

use std::collections::BTreeMap;

use super::World;
use super::measure;
use super::order::Arrival;
use super::purse::{Held, Purse};
use super::world::Entry;

/// A user or a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holder {
    User(u32),
    Team(u32),
}

/// What is added to the books while a plan is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    charges: BTreeMap<Holder, Vec<Charge>>,
    /// How many servers of the same holder came before, where servers are limited.
    before: BTreeMap<Holder, BTreeMap<u32, u32>>,
}

#[derive(Clone, Debug)]
struct Charge {
    from: i64,
    until: i64,
    what: Held,
    flavor: String,
}

/// A quota that a grant would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    pub(super) holder: Holder,
    pub(super) what: Limited,
    most: i128,
    used: i128,
    need: i128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Limited {
    Servers,
    Devices,
    /// Devices of this flavor.
    Flavor(String),
    Cpu,
    Memory,
}

/// Billionths in a thousandth and in one.
const MILLI: i128 = 1_000_000;
const WHOLE: i128 = 1_000_000_000;

pub(super) fn holders(entry: &Entry) -> impl Iterator<Item = Holder> + use<> {
    [Some(Holder::User(entry.user)), entry.team.map(Holder::Team)].into_iter().flatten()
}

impl World {
    pub(super) fn purse(&self, holder: Holder) -> Option<&Purse> {
        match holder {
            Holder::User(at) => self.users.get(at),
            Holder::Team(at) => self.teams.get(at),
        }
    }
}

impl Draft {
    /// Nobody but servers that hold nodes has anything yet.
    pub fn new(world: &World) -> Self {
        let users = world.users.all().map(|(at, purse)| (Holder::User(at), purse));
        let teams = world.teams.all().map(|(at, purse)| (Holder::Team(at), purse));
        let limited = users.chain(teams).filter(|(_, purse)| purse.account.limits.servers.is_some());
        let before = limited.map(|(holder, purse)| {
            let mut all: Vec<(u32, &Entry)> =
                purse.servers.iter().filter_map(|at| Some((*at, world.entry(*at)?))).collect();
            all.sort_by_key(|(_, entry)| Arrival::of(&entry.server));
            (holder, all.into_iter().map(|(at, _)| at).zip(0..).collect())
        });
        Self { charges: BTreeMap::new(), before: before.collect() }
    }

    /// Counts a grant or a planned start.
    pub fn charge(&mut self, entry: &Entry, from: i64, span: i64) {
        for holder in holders(entry) {
            let until = from.saturating_add(span);
            let flavor = entry.server.flavor.clone();
            self.charges.entry(holder).or_default().push(Charge { from, until, what: entry.need, flavor });
        }
    }

    /// The first quota that does not allow a server to start now, and stay for so long.
    pub fn excess(&self, world: &World, at: u32, entry: &Entry, now: i64, span: i64) -> Option<Excess> {
        holders(entry).find_map(|holder| {
            self.too_many(world, holder, at).or_else(|| self.too_much(world, holder, entry, now, span, true, None))
        })
    }

    /// The same apart from the one that was found already.
    pub fn excess_but(
        &self,
        world: &World,
        at: u32,
        entry: &Entry,
        now: i64,
        span: i64,
        but: &Excess,
    ) -> Option<Excess> {
        let others = holders(entry).filter(|holder| *holder != but.holder);
        let mut others = others.filter_map(|holder| self.too_much(world, holder, entry, now, span, true, None));
        let own = || self.too_much(world, but.holder, entry, now, span, true, Some(&but.what));
        let servers = || holders(entry).find_map(|holder| self.too_many(world, holder, at));
        others.next().or_else(own).or_else(servers)
    }

    /// The first time from `from` on at which quotas allow it, if that is known.
    pub fn gap(&self, world: &World, at: u32, entry: &Entry, from: i64, span: i64, now: i64) -> Option<i64> {
        let mut from = from;
        // Each holder may send us on to a later time, which the other one has to agree with.
        for _ in 0..16 {
            let mut moved = false;
            for holder in holders(entry) {
                if self.too_many(world, holder, at).is_some() {
                    return None;
                }
                let fits = |from: i64| self.too_much(world, holder, entry, from, span, from <= now, None).is_none();
                if !fits(from) {
                    from = self.ends(world, holder, from).into_iter().find(|end| fits(*end))?;
                    moved = true;
                }
            }
            if !moved {
                return Some(from);
            }
        }
        None
    }

    /// When something comes back, in order.
    fn ends(&self, world: &World, holder: Holder, after: i64) -> Vec<i64> {
        let runs = world.purse(holder).into_iter().flat_map(|purse| &purse.runs);
        let runs = runs.filter_map(|run| world.entry(*run)?.end);
        let charges = self.charges.get(&holder).into_iter().flatten().map(|charge| charge.until);
        let mut ends: Vec<i64> = runs.chain(charges).filter(|end| *end > after && *end < i64::MAX).collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    fn too_many(&self, world: &World, holder: Holder, at: u32) -> Option<Excess> {
        let before = *self.before.get(&holder)?.get(&at)?;
        let limit = world.purse(holder)?.account.limits.servers?;
        (before >= limit).then(|| Excess {
            holder,
            what: Limited::Servers,
            most: limit.into(),
            used: before.into(),
            need: 1,
        })
    }

    /// Whether a limit would be exceeded at any time of the stay.
    fn too_much(
        &self,
        world: &World,
        holder: Holder,
        entry: &Entry,
        from: i64,
        span: i64,
        is_now: bool,
        but: Option<&Limited>,
    ) -> Option<Excess> {
        let purse = world.purse(holder)?;
        let limits = &purse.account.limits;
        let of_flavor = limits.flavors.get(&entry.server.flavor);
        if limits.devices.is_none() && of_flavor.is_none() && limits.cpu.is_none() && limits.memory.is_none() {
            return None;
        }
        let until = from.saturating_add(span);
        let charges = self.charges.get(&holder).map_or(&[][..], Vec::as_slice);
        let begins = charges.iter().map(|charge| charge.from).filter(|at| *at > from && *at < until);
        begins.chain([from]).find_map(|at| {
            let run = |of: &dyn Fn(&Entry) -> bool| {
                let gone = purse.runs.iter().filter_map(|run| world.entry(*run)).filter(|run| of(run));
                // What is there now is there, whatever its end was to be.
                gone.filter(|run| is_now && at == from || run.end.is_none_or(|end| end > at))
                    .fold(Held::default(), |sum, run| sum.plus(run.need))
            };
            let drafted = |of: &dyn Fn(&Charge) -> bool| {
                let there = charges.iter().filter(|charge| charge.from <= at && at < charge.until);
                there.filter(|charge| of(charge)).fold(Held::default(), |sum, charge| sum.plus(charge.what))
            };
            let all = if is_now && at == from { purse.held } else { run(&|_| true) };
            let used = all.plus(drafted(&|_| true));
            let need = entry.need;
            let flavor = of_flavor.map(|most| {
                let of_it = run(&|run| run.server.flavor == entry.server.flavor)
                    .plus(drafted(&|charge| charge.flavor == entry.server.flavor));
                (
                    Limited::Flavor(entry.server.flavor.clone()),
                    i128::from(*most),
                    of_it.devices.into(),
                    need.devices.into(),
                )
            });
            let devices =
                limits.devices.map(|most| (Limited::Devices, most.into(), used.devices.into(), need.devices.into()));
            let cpu = limits.cpu.map(|most| (Limited::Cpu, most, nanos(used.cpu, MILLI), nanos(need.cpu, MILLI)));
            let memory =
                limits.memory.map(|most| (Limited::Memory, most, nanos(used.memory, WHOLE), nanos(need.memory, WHOLE)));
            let exceeded = [devices, flavor, cpu, memory].into_iter().flatten().find(|(what, most, used, need)| {
                // What asks for nothing exceeds nothing, also where the quota is below what is used.
                *need > 0 && used + need > *most && but != Some(what)
            });
            exceeded.map(|(what, most, used, need)| Excess { holder, what, most, used, need })
        })
    }

    /// Whether a team may borrow what it lacks: preemptible servers only, up to its own limit, from devices that other
    /// teams may hold and do not.
    pub fn may_borrow(&self, world: &World, entry: &Entry, excess: &Excess, now: i64) -> bool {
        let (Holder::Team(team), Limited::Devices) = (excess.holder, &excess.what) else { return false };
        if !entry.server.preemptible {
            return false;
        }
        let beyond = excess.used + excess.need - excess.most;
        let own = world.teams.get(team).and_then(|purse| purse.account.borrow);
        if own.is_some_and(|most| beyond > i128::from(most)) {
            return false;
        }
        let held = |at: u32, purse: &Purse| {
            let drafted = self.charges.get(&Holder::Team(at)).into_iter().flatten();
            let drafted = drafted.filter(|charge| charge.from <= now && now < charge.until);
            drafted.fold(purse.held, |sum, charge| sum.plus(charge.what)).devices
        };
        let (mut idle, mut lent) = (0_i128, 0_i128);
        for (at, purse) in world.teams.all().filter(|(at, _)| *at != team) {
            let Some(most) = purse.account.limits.devices else { continue };
            let left = i128::from(most) - i128::from(held(at, purse));
            if left > 0 { idle += left } else { lent -= left }
        }
        beyond <= idle - lent
    }
}

impl World {
    /// Whether a team holds more than its own, so that what its preemptible servers hold can be asked back.
    pub(super) fn is_borrowing(&self, team: u32) -> bool {
        let Some(purse) = self.teams.get(team) else { return false };
        purse.account.limits.devices.is_some_and(|most| purse.held.devices > most)
    }
}

fn nanos(amount: i64, each: i128) -> i128 {
    i128::from(amount) * each
}

fn saturated(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

impl Excess {
    pub(super) fn message(&self, world: &World) -> String {
        let holder = match self.holder {
            Holder::User(_) => "user",
            Holder::Team(_) => "team",
        };
        let name = world.purse(self.holder).map_or("", |purse| purse.account.name.as_str());
        let Self { what, most, used, need, .. } = self;
        let text = |amount: i128| match what {
            Limited::Servers | Limited::Devices | Limited::Flavor(_) => amount.to_string(),
            Limited::Cpu => measure::cpu(saturated(amount / MILLI)),
            Limited::Memory => measure::bytes_down(saturated(amount / WHOLE)),
        };
        let of = match what {
            Limited::Servers => {
                let servers = if *most == 1 { "server" } else { "servers" };
                return format!(
                    "The quota of {holder} {name} is {most} {servers}, sleeping ones included, and this is number {}: end \
                     an earlier one, or ask an administrator to raise the quota.",
                    used + 1,
                );
            }
            Limited::Devices if *most == 1 => " device".to_owned(),
            Limited::Devices => " devices".to_owned(),
            Limited::Flavor(flavor) => format!(" {flavor}"),
            Limited::Cpu => " CPU".to_owned(),
            Limited::Memory => " of memory".to_owned(),
        };
        let help = if need > most { "ask for less" } else { "end or hibernate another one" };
        let besides = if *used > 0 { format!(" besides the {} in use", text(*used)) } else { String::new() };
        format!(
            "The quota of {holder} {name} is {}{of}, and this server needs {}{besides}: {help}, or ask an administrator \
             to raise the quota.",
            text(*most),
            text(*need),
        )
    }
}
