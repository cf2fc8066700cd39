//! Quotas of users and teams, over time. They hold when something is granted; whoever has something keeps it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::World;
use super::event::Limits;
use super::excess::{Ceiling, Excess, Limited, first_excess, flavor_excess};
use super::later::MOST_TRIES;
use super::order::Arrival;
use super::pass::Slot;
use super::purse::{Held, Purse};
use super::steps::Steps;
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
    /// What was granted in this plan.
    granted: BTreeMap<Holder, Held>,
    by_flavor: BTreeMap<Holder, BTreeMap<String, i64>>,
    /// The same one by one, with their ends.
    ends: BTreeMap<Holder, Vec<(i64, u32)>>,
    /// What is held from now on, of those for whom a later start is planned or looked for.
    outlook: BTreeMap<Holder, Ahead>,
    /// When those who are planned start.
    starts: BTreeMap<Holder, BTreeSet<(i64, u32)>>,
    /// How many servers of the same holder run or came before, where servers are limited.
    before: Arc<BTreeMap<Holder, BTreeMap<u32, u32>>>,
}

/// What somebody holds from now on, in all and of flavors that are limited. Looks share it until one of them plans something.
#[derive(Clone, Debug)]
struct Ahead {
    all: Arc<Steps<Load>>,
    flavors: BTreeMap<String, Arc<Steps<Load>>>,
}

/// What somebody holds at a time, and how much of it is only kept for servers that wait.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    held: Held,
    kept: Held,
}

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
            // Who holds nodes counts before everybody who does not, whenever it came.
            all.sort_by_key(|(_, entry)| (entry.server.running().is_none(), Arrival::of(&entry.server)));
            (holder, all.into_iter().map(|(at, _)| at).zip(0..).collect())
        });
        Self { before: Arc::new(before.collect()), ..Self::default() }
    }

    /// Counts a grant.
    pub fn grant(&mut self, world: &World, at: u32, entry: &Entry, now: i64) {
        let end = now.saturating_add(entry.server.span());
        for holder in limited(world, entry) {
            let granted = self.granted.entry(holder).or_default();
            *granted = granted.plus(entry.need);
            if is_limited_by_flavor(world, holder, entry) {
                let flavors = self.by_flavor.entry(holder).or_default();
                *flavors.entry(entry.server.flavor.clone()).or_default() += entry.need.devices;
            }
            self.ends.entry(holder).or_default().push((end, at));
        }
        self.change(world, entry, (i64::MIN, end), |load| load.held = load.held.plus(entry.need));
    }

    /// Counts a planned start.
    pub fn plan(&mut self, world: &World, at: u32, entry: &Entry, slot: &Slot) {
        for holder in limited(world, entry) {
            self.starts.entry(holder).or_default().insert((slot.start, at));
            self.look_ahead(world, holder, entry);
        }
        self.change(world, entry, (slot.start, slot.until), |load| {
            (load.held, load.kept) = (load.held.plus(entry.need), load.kept.plus(entry.need));
        });
    }

    /// Takes a planned start back.
    pub fn unplan(&mut self, world: &World, at: u32, entry: &Entry, slot: &Slot) {
        for holder in limited(world, entry) {
            if let Some(starts) = self.starts.get_mut(&holder) {
                starts.remove(&(slot.start, at));
            }
        }
        self.change(world, entry, (slot.start, slot.until), |load| {
            (load.held, load.kept) = (load.held.minus(entry.need), load.kept.minus(entry.need));
        });
    }

    /// What somebody was granted in this plan.
    pub fn granted_to(&self, holder: Holder) -> Held {
        self.granted.get(&holder).copied().unwrap_or_default()
    }

    /// The same of one thing. Of a flavor only where that is limited.
    pub fn granted_of(&self, holder: Holder, what: &Limited) -> i128 {
        match what {
            Limited::Flavor(flavor) => {
                let granted = self.by_flavor.get(&holder).and_then(|flavors| flavors.get(flavor));
                granted.copied().unwrap_or_default().into()
            }
            Limited::Servers | Limited::Devices | Limited::Cpu | Limited::Memory => what.of(self.granted_to(holder)),
        }
    }

    /// Changes what is held between two times, of those for whom that is worked out.
    fn change(&mut self, world: &World, entry: &Entry, (from, until): (i64, i64), how: impl Fn(&mut Load)) {
        for holder in limited(world, entry) {
            let Some(ahead) = self.outlook.get_mut(&holder) else { continue };
            Arc::make_mut(&mut ahead.all).change(from, until, &how);
            if let Some(steps) = ahead.flavors.get_mut(&entry.server.flavor) {
                Arc::make_mut(steps).change(from, until, &how);
            }
        }
    }

    /// A server that runs is expected to end at another time than before.
    pub fn expect(&mut self, world: &World, entry: &Entry, before: Option<i64>, end: Option<i64>) {
        let (before, end) = (before.unwrap_or(i64::MAX), end.unwrap_or(i64::MAX));
        self.change(world, entry, (end, before), |load| load.held = load.held.minus(entry.need));
        self.change(world, entry, (before, end), |load| load.held = load.held.plus(entry.need));
    }

    /// Works out what those hold from now on of whom another draft needed to know. Whoever begins with this one finds it.
    pub fn look_ahead_like(&mut self, world: &World, other: &Self) {
        for (holder, ahead) in &other.outlook {
            if !self.outlook.contains_key(holder) {
                self.look_ahead_of(world, *holder, None);
            }
            for flavor in ahead.flavors.keys() {
                self.look_ahead_of(world, *holder, Some(flavor));
            }
        }
    }

    /// Works out what somebody holds from now on. It is needed for few of them, and costs as much as they have servers.
    fn look_ahead(&mut self, world: &World, holder: Holder, entry: &Entry) {
        let flavor = is_limited_by_flavor(world, holder, entry).then_some(entry.server.flavor.as_str());
        self.look_ahead_of(world, holder, flavor);
    }

    fn look_ahead_of(&mut self, world: &World, holder: Holder, flavor: Option<&str>) {
        let Some(purse) = world.purse(holder) else { return };
        let granted = self.ends.get(&holder).map_or(&[][..], Vec::as_slice);
        let now = purse.held.all.plus(self.granted_to(holder));
        let ahead = self.outlook.entry(holder).or_insert_with(|| {
            let all = Arc::new(outlook(world, purse, now, granted, None));
            Ahead { all, flavors: BTreeMap::new() }
        });
        let Some(flavor) = flavor.filter(|flavor| !ahead.flavors.contains_key(*flavor)) else { return };
        let granted_of = self.by_flavor.get(&holder).and_then(|flavors| flavors.get(flavor)).copied();
        let now = purse.held.of_flavor(flavor).saturating_add(granted_of.unwrap_or_default());
        let steps = outlook(world, purse, Held { devices: now, ..Held::default() }, granted, Some(flavor));
        ahead.flavors.insert(flavor.to_owned(), Arc::new(steps));
    }

    /// The first quota that does not allow a server to start now, and stay for so long. Those that were found already may be
    /// left out, because they are lent; then they count only from the next planned start on.
    pub fn excess(
        &self,
        world: &World,
        at: u32,
        entry: &Entry,
        now: i64,
        span: i64,
        lent: &[Excess],
    ) -> Option<Excess> {
        holders(entry).find_map(|holder| {
            let borrows = lent.iter().any(|lent| lent.holder == holder);
            let is_lent = |what: &Limited| lent.iter().any(|lent| lent.holder == holder && lent.what == *what);
            self.too_many(world, holder, at)
                .or_else(|| self.too_much_now(world, holder, entry, is_lent))
                .or_else(|| self.too_much_later(world, holder, entry, now, span, borrows))
        })
    }

    /// The first quota that does not allow a server to start at a later time, and stay for so long.
    pub fn excess_from(&mut self, world: &World, at: u32, entry: &Entry, from: i64, span: i64) -> Option<Excess> {
        if let Some(excess) = holders(entry).find_map(|holder| self.too_many(world, holder, at)) {
            return Some(excess);
        }
        limited(world, entry).find_map(|holder| {
            self.look_ahead(world, holder, entry);
            self.too_much_from(world, holder, entry, from, span)
        })
    }

    /// The first time from `from` on at which quotas allow it, if that is known.
    pub fn gap(&mut self, world: &World, at: u32, entry: &Entry, from: i64, span: i64) -> Option<i64> {
        let mut from = from;
        // Each holder may send us on to a later time, which the other one has to agree with.
        for _ in 0..MOST_TRIES {
            let before = from;
            for holder in holders(entry) {
                if self.too_many(world, holder, at).is_some() {
                    return None;
                }
            }
            for holder in limited(world, entry) {
                self.look_ahead(world, holder, entry);
                let limits = &world.purse(holder)?.account.limits;
                let (ceiling, ahead) = (Ceiling::under(limits, entry.need), self.outlook.get(&holder)?);
                from = ahead.all.gap(from, span, |load| ceiling.is_above(load.held))?;
                if let Some(most) = limits.flavors.get(&entry.server.flavor) {
                    // As everywhere, what asks for nothing exceeds nothing.
                    let need = entry.need.devices;
                    let fits = |load: &Load| need == 0 || load.held.devices.saturating_add(need) <= *most;
                    from = ahead.flavors.get(&entry.server.flavor)?.gap(from, span, fits)?;
                }
            }
            if from == before {
                return Some(from);
            }
        }
        None
    }

    fn too_many(&self, world: &World, holder: Holder, at: u32) -> Option<Excess> {
        let before = *self.before.get(&holder)?.get(&at)?;
        let limit = world.purse(holder)?.account.limits.servers?;
        (before >= limit).then(|| Excess {
            holder,
            what: Limited::Servers,
            most: limit.into(),
            used: before.into(),
            kept: 0,
            need: 1,
        })
    }

    fn too_much_now(
        &self,
        world: &World,
        holder: Holder,
        entry: &Entry,
        but: impl Fn(&Limited) -> bool,
    ) -> Option<Excess> {
        let purse = world.purse(holder)?;
        let limits = &purse.account.limits;
        if !is_limited(limits) {
            return None;
        }
        let used = purse.held.all.plus(self.granted_to(holder));
        let found = first_excess(limits, used, entry.need, &but).or_else(|| {
            let flavor = &entry.server.flavor;
            let most = *limits.flavors.get(flavor)?;
            let granted = self.by_flavor.get(&holder).and_then(|flavors| flavors.get(flavor)).copied();
            let used = purse.held.of_flavor(flavor).saturating_add(granted.unwrap_or_default());
            flavor_excess(flavor, most, used, entry.need).filter(|(what, ..)| !but(what))
        });
        found.map(|(what, most, used, need)| Excess { holder, what, most, used, kept: 0, need })
    }

    /// Where nothing is planned what is held only gets less, so now is the worst time.
    fn too_much_later(
        &self,
        world: &World,
        holder: Holder,
        entry: &Entry,
        now: i64,
        span: i64,
        borrows: bool,
    ) -> Option<Excess> {
        let (first, _) = *self.starts.get(&holder)?.first()?;
        // What is lent now must be back when it is planned for.
        let from = if borrows { first } else { now };
        let until = now.saturating_add(span);
        if from >= until {
            return None;
        }
        self.too_much_from(world, holder, entry, from, until.saturating_sub(from))
    }

    /// What is exceeded in a time, of somebody for whom that is worked out.
    fn too_much_from(&self, world: &World, holder: Holder, entry: &Entry, from: i64, span: i64) -> Option<Excess> {
        let limits = &world.purse(holder)?.account.limits;
        let (ceiling, ahead) = (Ceiling::under(limits, entry.need), self.outlook.get(&holder)?);
        let misfit = ahead.all.misfit(from, span, |load| ceiling.is_above(load.held));
        let found = misfit.and_then(|load| Some((first_excess(limits, load.held, entry.need, |_| false)?, load)));
        let found = found.or_else(|| {
            let flavor = &entry.server.flavor;
            let most = *limits.flavors.get(flavor)?;
            let fits = |load: &Load| load.held.devices.saturating_add(entry.need.devices) <= most;
            let load = ahead.flavors.get(flavor)?.misfit(from, span, fits)?;
            Some((flavor_excess(flavor, most, load.held.devices, entry.need)?, load))
        });
        found.map(|((what, most, used, need), load)| {
            let kept = what.of(load.kept);
            Excess { holder, what, most, used, kept, need }
        })
    }
}

pub(super) fn is_limited(limits: &Limits) -> bool {
    limits.devices.is_some() || limits.cpu.is_some() || limits.memory.is_some() || !limits.flavors.is_empty()
}

/// Those who answer for a server and may not hold as much as they like.
pub(super) fn limited<'w>(world: &'w World, entry: &Entry) -> impl Iterator<Item = Holder> + use<'w> {
    holders(entry).filter(|holder| world.purse(*holder).is_some_and(|purse| is_limited(&purse.account.limits)))
}

/// Whether devices of a server's flavor are limited by themselves.
fn is_limited_by_flavor(world: &World, holder: Holder, entry: &Entry) -> bool {
    world.purse(holder).is_some_and(|purse| purse.account.limits.flavors.contains_key(&entry.server.flavor))
}

fn outlook(world: &World, purse: &Purse, now: Held, granted: &[(i64, u32)], flavor: Option<&str>) -> Steps<Load> {
    let is_of = |entry: &&Entry| flavor.is_none_or(|flavor| entry.server.flavor == flavor);
    let runs = purse.runs.iter().filter_map(|run| world.entry(*run)).filter(is_of);
    let runs = runs.filter_map(|run| Some((run.end?, run.need)));
    let granted = granted.iter().filter(|(end, _)| *end < i64::MAX);
    let granted = granted.filter_map(|(end, at)| Some((*end, world.entry(*at).filter(is_of)?.need)));
    let mut ends: Vec<(i64, Held)> = runs.chain(granted).collect();
    ends.sort_by_key(|(end, _)| *end);
    let mut steps = Steps::new(Load { held: now, ..Load::default() });
    for (end, what) in ends {
        steps.then(end, |load| Load { held: load.held.minus(what), ..*load });
    }
    steps
}
