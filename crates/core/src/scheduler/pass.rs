//! One look at everybody who waits, in their order. Each gets nodes now, or keeps room for a later start from everybody
//! behind it: so a later one may start first only where it delays nobody's planned start.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{Shares, Turn};
use super::plan::{Choice, Grant, Plan, Preemption, Stop, Wait};
use super::policy::Backfill;
use super::quota::Draft;
use super::steps::Steps;
use super::world::Entry;
use super::{Policy, World};
use crate::amounts::Amounts;

pub(super) struct Pass<'w> {
    pub world: &'w mut World,
    pub policy: &'w Policy,
    pub now: i64,
    pub draft: Draft,
    /// Nodes on which room is kept for planned starts, with what that leaves.
    pub kept: BTreeMap<u32, Steps<Amounts>>,
    /// Planned starts, by server.
    planned: BTreeMap<u32, Slot>,
    /// Nodes kept as a whole for somebody of whom nobody knows when it can start.
    pub blocked: BTreeSet<u32>,
    granted: Vec<Granted>,
    pub preemptions: Vec<Preemption>,
    /// Ends that were changed on paper, as they were.
    pub expected: Vec<(u32, Option<i64>)>,
    /// What stopped a server of each kind, and for how long it would have stayed. Room only shrinks in a pass, so this
    /// stops everybody of the kind who stays as long.
    stopped: Vec<Option<(i64, Stop)>>,
}

/// Where and when somebody is to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub start: i64,
    pub until: i64,
    pub nodes: Vec<u32>,
}

struct Granted {
    server: u32,
    nodes: Vec<u32>,
    choice: Choice,
    backfilled: bool,
    borrowed: bool,
}

/// Nodes and quotas send each other on to later times until both agree. Each time is one at which something ends, so they
/// do; this only bounds what an absurd world may cost.
pub(super) const MOST_TRIES: usize = 10_000;

/// Who could stay for so many seconds is told that a shorter lifetime would do; less is of use to nobody.
const USEFUL: i64 = 900;

/// What is found for one server.
enum Verdict {
    Start(Vec<u32>, Choice),
    Wait(Stop, Option<i64>),
}

pub(super) fn plan(world: &mut World, policy: &Policy, now: i64, promise: bool) -> Plan {
    world.notice_overdue(now);
    let order = in_order(world, policy, now);
    let draft = Draft::new(world);
    let stopped = vec![None; world.shapes.len()];
    let mut pass = Pass {
        world,
        policy,
        now,
        draft,
        kept: BTreeMap::new(),
        planned: BTreeMap::new(),
        blocked: BTreeSet::new(),
        granted: Vec::new(),
        preemptions: Vec::new(),
        expected: Vec::new(),
        stopped,
    };
    let waits = pass.settle(&order);
    let plan = pass.finish(&order, waits, promise);
    world.waiting = order;
    plan
}

/// Everybody who waits, first come first. They are sorted from the last order, which is nearly right.
fn in_order(world: &mut World, policy: &Policy, now: i64) -> Vec<u32> {
    let mut order = std::mem::take(&mut world.waiting);
    let share = |purse: Option<&super::purse::Purse>| {
        purse.map_or(0, |purse| purse.share(now, policy.half_life, policy.share_step))
    };
    let users: Vec<i64> = world.users.all().map(|(_, purse)| share(Some(purse))).collect();
    let teams: Vec<i64> = world.teams.all().map(|(_, purse)| share(Some(purse))).collect();
    let of = |all: &[i64], at: u32| usize::try_from(at).ok().and_then(|at| all.get(at)).copied().unwrap_or_default();
    let mut turns: Vec<(Turn<'_>, u32)> = order
        .iter()
        .filter_map(|at| {
            let entry = world.entry(*at).filter(|entry| entry.server.waits())?;
            let user = of(&users, entry.user);
            // Who has no team is a team of one.
            let shares = Shares { user, team: entry.team.map_or(user, |team| of(&teams, team)) };
            Some((Turn::of(&entry.server, shares, policy, now), *at))
        })
        .collect();
    turns.sort();
    turns.dedup_by_key(|(_, at)| *at);
    order.clear();
    order.extend(turns.into_iter().map(|(_, at)| at));
    order
}

impl Pass<'_> {
    /// Grants until nothing more can be granted. A grant can use up the quota of an earlier server that waits for nodes
    /// with no known time; it then waits for the quota and no longer for its nodes. And what people are told is what is so
    /// when all have started. So the last look is always one that grants nothing, and the next plan, which begins where
    /// this one ended, has nothing to add.
    fn settle(&mut self, order: &[u32]) -> Vec<Option<(Stop, Option<i64>)>> {
        loop {
            let before = self.granted.len();
            let waits = self.look(order);
            if self.granted.len() == before {
                let waits = self.lend(order, waits);
                if self.granted.len() == before {
                    return waits;
                }
            }
            self.forget_plans();
        }
    }

    /// Looks at each server once, and says what stops those that stay.
    fn look(&mut self, order: &[u32]) -> Vec<Option<(Stop, Option<i64>)>> {
        let already: BTreeSet<u32> = self.granted.iter().map(|granted| granted.server).collect();
        let (mut planned, mut somebody_waits) = (0, false);
        let mut waits = Vec::with_capacity(order.len());
        for at in order {
            if already.contains(at) {
                waits.push(None);
                continue;
            }
            match self.verdict(*at, planned) {
                Verdict::Start(nodes, choice) => {
                    self.grant(*at, nodes, choice, somebody_waits, false);
                    waits.push(None);
                }
                Verdict::Wait(stop, start) => {
                    planned += usize::from(start.is_some());
                    somebody_waits |= !matches!(stop, Stop::Never | Stop::Booked(_));
                    waits.push(Some((stop, start)));
                }
            }
        }
        waits
    }

    /// Those whom only their team's quota stops may use what others leave idle, after everybody else.
    fn lend(&mut self, order: &[u32], waits: Vec<Option<(Stop, Option<i64>)>>) -> Vec<Option<(Stop, Option<i64>)>> {
        let lend = |(at, wait): (&u32, Option<(Stop, Option<i64>)>)| {
            let Some((Stop::Quota(excess), start)) = wait else { return wait };
            let due = |entry: &Entry| {
                let server = &entry.server;
                server.preemptible && !server.barred && server.not_before.is_none_or(|at| at <= self.now)
            };
            if !self.world.entry(*at).is_some_and(due) {
                return Some((Stop::Quota(excess), start));
            }
            // What it would borrow now it need not have later.
            self.unplan(*at);
            let entry = self.world.entry(*at);
            let nodes = entry.and_then(|entry| {
                let span = entry.server.span();
                // Others may have borrowed since.
                let excess = self.draft.excess(self.world, *at, entry, self.now, span, None)?;
                let lent = self.draft.may_borrow(self.world, entry, &excess);
                let only = lent && self.draft.excess(self.world, *at, entry, self.now, span, Some(&excess)).is_none();
                if only { self.nodes_now(entry, span, true) } else { None }
            });
            if let Some((nodes, choice)) = nodes {
                self.grant(*at, nodes, choice, true, true);
                return None;
            }
            let span = self.world.entry(*at).map_or(0, |entry| entry.server.span());
            let start = start.and_then(|_| self.keep_later(*at, self.now, span));
            Some((Stop::Quota(excess), start))
        };
        order.iter().zip(waits).map(lend).collect()
    }

    fn verdict(&mut self, at: u32, planned: usize) -> Verdict {
        let Some(entry) = self.world.entry(at) else { return Verdict::Wait(Stop::Never, None) };
        let span = entry.server.span();
        let booked_for = entry.server.not_before.filter(|at| *at > self.now);
        if let Some(from) = booked_for {
            let start = self.keep_later(at, from, span);
            let promised = entry_is_booked(self.world, at) || start == Some(from);
            return Verdict::Wait(Stop::Booked(promised), start);
        }
        if let Some(excess) = self.draft.excess(self.world, at, entry, self.now, span, None) {
            // Whoever is stopped by a quota waits for nobody's nodes; where its end is known they are kept from then on.
            let start = if self.is_planned(at, planned) { self.keep_later(at, self.now, span) } else { None };
            return Verdict::Wait(Stop::Quota(excess), start);
        }
        let Some(shape) = self.world.shape_of(entry) else { return Verdict::Wait(Stop::Never, None) };
        let needed = entry.server.ask.nodes();
        if shape.groups.values().all(|group| group.could < needed) {
            return Verdict::Wait(Stop::Never, None);
        }
        let ordinary = entry.server.unfit.is_empty() && !entry.server.barred;
        let kind = usize::try_from(entry.shape).unwrap_or(usize::MAX);
        let known = self.stopped.get(kind).and_then(Option::as_ref).filter(|(least, _)| ordinary && span >= *least);
        let stop = if let Some((_, stop)) = known {
            stop.clone()
        } else {
            if !entry.server.barred
                && let Some((nodes, choice)) =
                    self.promised_now(at, entry, span).or_else(|| self.nodes_now(entry, span, true))
            {
                return Verdict::Start(nodes, choice);
            }
            let stop = self.why_not(entry);
            if let Some(known) = self.stopped.get_mut(kind).filter(|_| ordinary) {
                *known = Some((span, stop.clone()));
            }
            stop
        };
        let start = self.wait_for_nodes(at, span, planned);
        Verdict::Wait(stop, start)
    }

    /// Whether a server gets a planned start: if it is near enough, or was promised one before others came in ahead.
    fn is_planned(&self, at: u32, planned: usize) -> bool {
        let promised = self.policy.backfill == Backfill::Planned && self.world.promised.slot(at).is_some();
        planned < self.policy.planned() || promised
    }

    /// Keeps what a server waits for from everybody behind it.
    fn wait_for_nodes(&mut self, at: u32, span: i64, planned: usize) -> Option<i64> {
        if self.policy.backfill == Backfill::None {
            self.block(at);
            return None;
        }
        if !self.is_planned(at, planned) {
            return None;
        }
        let start = self.reclaim(at, span).or_else(|| self.keep_later(at, self.now, span));
        if start.is_none() {
            self.block(at);
        }
        start
    }

    /// Keeps the first room there is from some time on.
    pub fn keep_later(&mut self, at: u32, from: i64, span: i64) -> Option<i64> {
        let (start, nodes) = self.find_later(at, from, span)?;
        // What was promised stays as it is, unless it can be earlier: so nobody behind is moved without need.
        let nodes = self.promised_at(at, start, span).unwrap_or(nodes);
        let entry = self.world.entry(at)?;
        let until = start.saturating_add(span);
        let each = &entry.server.ask.each;
        for node in &nodes {
            let Some(place) = self.world.place(*node) else { continue };
            let kept = self.kept.entry(*node).or_insert_with(|| place.outlook());
            kept.change(start, until, |free| free.minus(each));
        }
        self.draft.plan(self.world, entry, start, span);
        self.planned.insert(at, Slot { start, until, nodes });
        Some(start)
    }

    /// Gives back what was kept for a server.
    fn unplan(&mut self, at: u32) {
        let (Some(slot), Some(entry)) = (self.planned.remove(&at), self.world.entry(at)) else { return };
        let each = &entry.server.ask.each;
        for node in &slot.nodes {
            if let Some(kept) = self.kept.get_mut(node) {
                kept.change(slot.start, slot.until, |free| free.plus(each));
            }
        }
        self.draft.unplan(self.world, entry, slot.start, slot.until.saturating_sub(slot.start));
    }

    /// The first time at which both nodes and quotas allow it.
    pub fn find_later(&mut self, at: u32, from: i64, span: i64) -> Option<(i64, Vec<u32>)> {
        let booked = self.world.entry(at)?.server.not_before.is_some();
        // Whoever could start now would; who is barred may in the next plan.
        let mut from = from.max(self.now.saturating_add(i64::from(!booked)));
        for _ in 0..MOST_TRIES {
            let entry = self.world.entry(at)?;
            let allowed = self.draft.gap(self.world, at, entry, from, span)?;
            let (start, nodes) = self.nodes_later(entry, allowed, span)?;
            let entry = self.world.entry(at)?;
            if self.draft.gap(self.world, at, entry, start, span)? == start {
                return Some((start, nodes));
            }
            from = start;
        }
        None
    }

    /// Keeps all nodes a server waits for, of which nobody knows when they are free.
    fn block(&mut self, at: u32) {
        let Some(entry) = self.world.entry(at) else { return };
        let Some(shape) = self.world.shape_of(entry) else { return };
        let needed = entry.server.ask.nodes();
        let hope = shape.spots().filter(|(node, spot)| spot.hope && !self.is_refused(entry, *node));
        let mut groups: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (node, spot) in hope {
            if let Some(group) = &spot.group {
                groups.entry(group.clone()).or_default().push(node);
            }
        }
        let kept: Vec<u32> = groups.into_values().filter(|nodes| nodes.len() >= needed).flatten().collect();
        self.blocked.extend(kept);
    }

    pub fn is_refused(&self, entry: &Entry, node: u32) -> bool {
        !entry.server.unfit.is_empty()
            && self.world.place(node).is_some_and(|place| entry.server.unfit.contains_key(&*place.name))
    }

    fn why_not(&self, entry: &Entry) -> Stop {
        let needed = entry.server.ask.nodes();
        let shape = self.world.shape_of(entry);
        if entry.server.barred {
            return Stop::Barred;
        }
        if !entry.server.unfit.is_empty() {
            let mut groups: BTreeMap<_, usize> = BTreeMap::new();
            let hope = shape.into_iter().flat_map(super::shape::Shape::spots).filter(|(_, spot)| spot.hope);
            let (mut any, mut willing) = (BTreeMap::<_, usize>::new(), false);
            for (node, spot) in hope {
                if let Some(group) = &spot.group {
                    *any.entry(group.clone()).or_default() += 1;
                    if !self.is_refused(entry, node) {
                        *groups.entry(group.clone()).or_default() += 1;
                    }
                }
            }
            willing |= groups.values().any(|count| *count >= needed);
            if !willing && any.values().any(|count| *count >= needed) {
                return Stop::Refused;
            }
        }
        if entry.server.lifetime.is_some() && self.nodes_now(entry, USEFUL, true).is_some() {
            Stop::TooLong
        } else if self.nodes_now(entry, 1, false).is_some() {
            Stop::Behind
        } else {
            Stop::NoRoom
        }
    }

    fn grant(&mut self, at: u32, nodes: Vec<u32>, choice: Choice, backfilled: bool, borrowed: bool) {
        let Some(entry) = self.world.entry(at) else { return };
        let span = entry.server.span();
        self.draft.grant(self.world, entry, self.now, span);
        let each = entry.server.ask.each.clone();
        let end = entry.server.lifetime.map(|_| self.now.saturating_add(span));
        for node in &nodes {
            self.world.change_at(*node, |place| place.put(at, &each, end));
            if let Some(kept) = self.kept.get_mut(node) {
                kept.change(i64::MIN, end.unwrap_or(i64::MAX), |free| free.minus(&each));
            }
        }
        self.granted.push(Granted { server: at, nodes, choice, backfilled, borrowed });
    }

    /// For another look: what was granted stays, what was only planned is planned anew.
    fn forget_plans(&mut self) {
        self.kept.clear();
        self.planned.clear();
        self.blocked.clear();
        self.undo_expected();
        self.preemptions.clear();
        self.draft = Draft::new(self.world);
        for granted in &self.granted {
            if let Some(entry) = self.world.entry(granted.server) {
                self.draft.grant(self.world, entry, self.now, entry.server.span());
            }
        }
        self.stopped.iter_mut().for_each(|stopped| *stopped = None);
    }

    pub fn undo_expected(&mut self) {
        for (server, end) in std::mem::take(&mut self.expected).into_iter().rev() {
            self.world.expect(server, end);
        }
    }

    /// Takes back from the world what was only on paper, and puts the plan into words.
    fn finish(mut self, order: &[u32], waits: Vec<Option<(Stop, Option<i64>)>>, promise: bool) -> Plan {
        self.undo_expected();
        for granted in &self.granted {
            for node in &granted.nodes {
                self.world.change_at(*node, |place| place.remove(granted.server));
            }
        }
        let Self { world, policy, now, granted, preemptions, mut planned, .. } = self;
        let mut plan = Plan { preemptions, ..Plan::default() };
        if promise {
            let starting = granted.iter().map(|granted| {
                let span = world.entry(granted.server).map_or(0, |entry| entry.server.span());
                let slot = Slot { start: now, until: now.saturating_add(span), nodes: granted.nodes.clone() };
                (granted.server, slot)
            });
            let starting: BTreeMap<u32, Slot> = starting.collect();
            let slots = order
                .iter()
                .zip(&waits)
                .map(|(at, wait)| (*at, if wait.is_some() { planned.remove(at) } else { starting.get(at).cloned() }));
            let slots: Vec<(u32, Option<Slot>)> = slots.collect();
            let mut promised = std::mem::take(&mut world.promised);
            plan.moved = promised.note(slots, now, |at| world.entry(at).map(|entry| entry.server.id.clone()));
            world.promised = promised;
        }
        for Granted { server, nodes, choice, backfilled, borrowed } in granted {
            let Some(id) = world.entry(server).map(|entry| entry.server.id.clone()) else { continue };
            let mut nodes: Vec<String> =
                nodes.iter().filter_map(|node| world.place(*node)).map(|place| place.node.name.clone()).collect();
            // In the order of names, which tells people more than ours.
            nodes.sort();
            plan.grants.push(Grant { id, nodes, choice, backfilled, borrowed });
        }
        let mut position = 0;
        for (at, wait) in order.iter().zip(waits) {
            let (Some((stop, start)), Some(entry)) = (wait, world.entry(*at)) else { continue };
            let server = &entry.server;
            let competes = !matches!(stop, Stop::Booked(_));
            position += u32::from(competes);
            let next_level = next_level(server.queued, policy, now);
            plan.again = earlier(plan.again, next_level);
            plan.again = earlier(plan.again, server.not_before.filter(|at| *at > now));
            if !competes && !server.booked && start == server.not_before {
                plan.booked.push(server.id.clone());
            }
            let position = competes.then_some(position);
            plan.waits.push(Wait { id: server.id.clone(), position, start, stop });
        }
        plan
    }
}

fn entry_is_booked(world: &World, at: u32) -> bool {
    world.entry(at).is_some_and(|entry| entry.server.booked)
}

/// When a server that waits counts as more urgent.
fn next_level(queued: i64, policy: &Policy, now: i64) -> Option<i64> {
    let step = policy.ageing.max(1);
    let levels = now.saturating_sub(queued).max(0) / step;
    queued.checked_add(levels.checked_add(1)?.checked_mul(step)?)
}

fn earlier(one: Option<i64>, two: Option<i64>) -> Option<i64> {
    one.into_iter().chain(two).min()
}
