//! One look at everybody who waits, in their order. Each gets nodes now, or keeps room for a later start from everybody
//! behind it: so a later one may start first only where it delays nobody's planned start.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{Shares, Turn};
use super::plan::{Choice, Plan, Preemption, Stop};
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
    pub planned: BTreeMap<u32, Slot>,
    /// Nodes kept as a whole for somebody of whom nobody knows when it can start.
    pub blocked: BTreeSet<u32>,
    pub granted: Vec<Granted>,
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

pub(super) struct Granted {
    pub server: u32,
    pub nodes: Vec<u32>,
    pub choice: Choice,
    pub backfilled: bool,
    pub borrowed: bool,
}

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
    pub(super) fn settle(&mut self, order: &[u32]) -> Vec<Option<(Stop, Option<i64>)>> {
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

    pub(super) fn is_refused(&self, entry: &Entry, node: u32) -> bool {
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
    pub(super) fn forget_plans(&mut self) {
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

    pub(super) fn undo_expected(&mut self) {
        for (server, end) in std::mem::take(&mut self.expected).into_iter().rev() {
            self.world.expect(server, end);
        }
    }
}

fn entry_is_booked(world: &World, at: u32) -> bool {
    world.entry(at).is_some_and(|entry| entry.server.booked)
}
