//! One look at everybody who waits, in their order. Each gets nodes now, or keeps room for a later start from everybody
//! behind it: so a later one may start first only where it delays nobody's planned start.
//!
//! What holds for every plan, and what tests check from outside:
//!
//! - A slot holds nodes, and quota of its user and team, for all of its time; nodes kept for somebody with no known time hold
//!   that quota too. Each is the earliest there is beside what
//!   runs, what was granted, and the slots ahead of it; of equally early ones it is the one remembered. So it depends on
//!   nothing behind it, and as long as nothing ahead takes more it can only become earlier.
//! - The last look of a plan changes nothing: it grants nothing, asks nobody to leave, promises no booking. All that
//!   earlier looks decided was in its world from the beginning. The next plan of the same facts begins with the same
//!   look, so it comes to the same.
//! - What is decided in a look that is abandoned is not decided.

use std::collections::{BTreeMap, BTreeSet};

use super::event::Server;
use super::order::{Shares, Turn};
use super::plan::{Choice, Plan, Stop};
use super::preempt::{Asked, Askers, Claim};
use super::quota::Draft;
use super::resume::Paused;
use super::steps::Steps;
use super::world::Entry;
use super::{Policy, World};
use crate::amounts::Amounts;

pub(super) struct Pass<'w> {
    pub world: &'w mut World,
    pub policy: &'w Policy,
    pub now: i64,
    /// Everybody who waits, first come first.
    pub order: Vec<u32>,
    pub draft: Draft,
    /// The same with nothing but the first so many grants, which a look began with.
    pub books: (usize, Draft),
    /// Nodes on which room is kept for planned starts, with what that leaves.
    pub kept: BTreeMap<u32, Steps<Amounts>>,
    /// Planned starts, by server.
    pub planned: BTreeMap<u32, Slot>,
    /// The same as the last look found them that was not abandoned.
    before: Option<BTreeMap<u32, Slot>>,
    /// Servers of which nobody knows when they can start, with the nodes that are kept for them as a whole.
    pub blocking: BTreeMap<u32, Vec<u32>>,
    pub blocked: BTreeSet<u32>,
    pub granted: Vec<Granted>,
    /// Bookings whose time is promised from now on.
    pub booked: BTreeSet<u32>,
    /// Who is promised a booking changed since the order was found.
    pub reorder: bool,
    /// Whom others were asked to leave for, the latest last. On paper they leave.
    pub claims: Vec<Claim>,
    pub asked: Asked,
    /// Those for whom somebody would leave in vain, as things are.
    pub given_up: BTreeSet<u32>,
    /// For whom others left when `given_up` was found.
    settled: Vec<u32>,
    /// How many looks were abandoned, and how many servers were looked at in vain.
    pub abandoned: usize,
    pub spent: usize,
    /// How many wait, as far as is known when a look begins.
    pub pending: usize,
    /// How many servers were looked at in this look.
    looked_at: usize,
    /// How many of them wait.
    pub passed: usize,
    /// What it may cost in this look that those who wait for nodes ask others to leave.
    pub toll: usize,
    /// What stopped a server of each kind, and for how long it would have stayed. Room only shrinks in a look, so this
    /// stops everybody of the kind who stays as long.
    pub stopped: Vec<Option<(i64, Stop)>>,
    /// Who found nobody to ask to leave, and for how long it would have stayed. Others like it who stay as long need not
    /// look: what is granted in a look is within quotas, so it gives nobody a right; and if less room did, the first of them
    /// would take what is made free.
    pub nobody: BTreeMap<Askers, i64>,
    /// The look in which somebody was asked to leave last.
    pub paused: Option<Paused>,
}

/// How far a look has come.
pub(super) struct Look {
    /// How many were granted their nodes before.
    pub granted: usize,
    already: BTreeSet<u32>,
    /// What those said who were looked at.
    waits: Vec<Waiting>,
    planned: usize,
    somebody_waits: bool,
    passed: usize,
    toll: usize,
}

/// What stops somebody, and when it starts if that is known; nothing for those that start now.
pub(super) type Waiting = Option<(Stop, Option<i64>)>;

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
    /// It may ask these to leave, and would start sooner.
    Ask(Claim),
}

pub(super) fn plan(world: &mut World, policy: &Policy, now: i64, promise: bool) -> Plan {
    let mut pass = Pass::new(world, policy, now);
    let waits = pass.settle();
    pass.finish(waits, promise)
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

impl<'w> Pass<'w> {
    pub(super) fn new(world: &'w mut World, policy: &'w Policy, now: i64) -> Self {
        world.notice_overdue(now);
        let draft = Draft::new(world);
        let stopped = vec![None; world.shapes.len()];
        Self {
            order: in_order(world, policy, now),
            world,
            policy,
            now,
            books: (0, draft.clone()),
            draft,
            kept: BTreeMap::new(),
            planned: BTreeMap::new(),
            before: None,
            blocking: BTreeMap::new(),
            blocked: BTreeSet::new(),
            granted: Vec::new(),
            booked: BTreeSet::new(),
            reorder: false,
            claims: Vec::new(),
            asked: Asked::default(),
            given_up: BTreeSet::new(),
            settled: Vec::new(),
            abandoned: 0,
            spent: 0,
            pending: 0,
            looked_at: 0,
            passed: 0,
            toll: 0,
            stopped,
            nobody: BTreeMap::new(),
            paused: None,
        }
    }

    /// Looks until there is nothing more to decide. Those ahead of somebody for whom others leave may use what is left of
    /// their room; who borrows does so after everybody else; a booking that is promised comes first; and what people are
    /// told is what is so when all have started.
    pub(super) fn settle(&mut self) -> Vec<Waiting> {
        loop {
            let before = self.granted.len();
            if let Some(waits) = self.look() {
                let news = self.granted.len() > before || self.promise_bookings(&waits);
                if news {
                    self.given_up.clear();
                } else if self.ask_again() {
                    self.spent += self.looked_at;
                } else {
                    self.lend(&waits);
                    if self.granted.len() == before {
                        return waits;
                    }
                    self.given_up.clear();
                }
                self.before = Some(std::mem::take(&mut self.planned));
            } else {
                self.abandoned += 1;
                self.spent += self.looked_at;
                self.take_back(before);
            }
            self.put_in_order();
            self.forget_plans();
        }
    }

    /// Looks at each server once, and says what stops those that stay. Nothing if the look was abandoned, because somebody
    /// is asked to leave now, or is not any more.
    fn look(&mut self) -> Option<Vec<Waiting>> {
        let order = std::mem::take(&mut self.order);
        let waits = self.look_at(&order);
        self.order = order;
        waits
    }

    fn look_at(&mut self, order: &[u32]) -> Option<Vec<Waiting>> {
        let mut look = self.resume().unwrap_or_else(|| Look {
            granted: self.granted.len(),
            already: self.granted.iter().map(|granted| granted.server).collect(),
            waits: Vec::with_capacity(order.len()),
            planned: 0,
            somebody_waits: false,
            passed: 0,
            toll: 0,
        });
        self.pending = order.len() - look.already.len();
        (self.looked_at, self.passed, self.toll) = (0, look.passed, look.toll);
        for at in order.iter().skip(look.waits.len()) {
            self.looked_at += 1;
            if look.already.contains(at) {
                look.waits.push(None);
                continue;
            }
            (look.passed, look.toll) = (self.passed, self.toll);
            match self.verdict(*at, look.planned) {
                Verdict::Start(nodes, choice) => {
                    self.grant(*at, nodes, choice, look.somebody_waits, false);
                    look.waits.push(None);
                }
                Verdict::Wait(stop, start) => {
                    if let Some(claim) = self.in_vain(*at, start) {
                        self.withdraw(claim);
                        return None;
                    }
                    let server = self.world.entry(*at).map(|entry| &entry.server);
                    let due = server.is_some_and(|server| server.is_due(self.now));
                    // Bookings have planned starts besides, also when their time has come: nobody loses one for that.
                    let booking = server.is_some_and(Server::is_booking);
                    look.planned += usize::from(start.is_some() && !booking);
                    self.passed += 1;
                    look.somebody_waits |= due && stop != Stop::Never;
                    look.waits.push(Some((stop, start)));
                }
                Verdict::Ask(claim) => {
                    self.ask(claim);
                    self.pause(*at, look);
                    return None;
                }
            }
        }
        self.paused = None;
        Some(look.waits)
    }

    /// Bookings whose time is free come first from now on, with the room they have. Says whether there are new ones.
    fn promise_bookings(&mut self, waits: &[Waiting]) -> bool {
        let is_new = |(at, wait): (&u32, &Waiting)| {
            let (Stop::Booked(_), Some(start)) = wait.as_ref()? else { return None };
            let server = &self.world.entry(*at)?.server;
            (!server.booked && server.not_before == Some(*start)).then_some(*at)
        };
        let new: Vec<u32> = self.order.iter().zip(waits).filter_map(is_new).collect();
        for at in &new {
            self.world.set_booked(*at, true);
        }
        self.booked.extend(&new);
        self.lean_on_claims(&new);
        self.reorder |= !new.is_empty();
        !new.is_empty()
    }

    /// Bookings that were promised come first, and others not any more.
    fn put_in_order(&mut self) {
        if std::mem::take(&mut self.reorder) {
            self.world.waiting = std::mem::take(&mut self.order);
            self.order = in_order(self.world, self.policy, self.now);
        }
    }

    /// Whether those who gave up asking others to leave should try again, because others did not give up, or everybody was
    /// to start elsewhere then. The next plan would.
    fn ask_again(&mut self) -> bool {
        let claimants = self.claimants();
        let moved = claimants != self.settled || self.before.as_ref() != Some(&self.planned);
        let changed = moved && !self.given_up.is_empty();
        self.settled = claimants;
        if changed {
            self.given_up.clear();
        }
        changed
    }

    fn verdict(&mut self, at: u32, planned: usize) -> Verdict {
        let Some(entry) = self.world.entry(at) else { return Verdict::Wait(Stop::Never, None) };
        let span = entry.server.span();
        let booked_for = entry.server.not_before.filter(|at| *at > self.now);
        if let Some(from) = booked_for {
            let (stop, start) = self.booking(at, from, span);
            return Verdict::Wait(stop, start);
        }
        if let Some(excess) = self.draft.excess(self.world, at, entry, self.now, span, &[]) {
            // Whoever is stopped by a quota waits for nobody's nodes; where its end is known they are kept from then on.
            let start = if self.is_planned(at, planned) { self.keep_later(at, self.now, span) } else { None };
            return Verdict::Wait(Stop::Quota(excess), start);
        }
        if !self.could_ever(entry) {
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
        match self.wait_for_nodes(at, span, planned) {
            Ok(start) => Verdict::Wait(stop, start),
            Err(claim) => Verdict::Ask(claim),
        }
    }

    /// What is said of a booking whose time has not come: that it is promised, or why it is not. What no node could hold,
    /// or no quota allows then, is not a matter of who else comes.
    fn booking(&mut self, at: u32, from: i64, span: i64) -> (Stop, Option<i64>) {
        let Some(entry) = self.world.entry(at) else { return (Stop::Never, None) };
        let promised = entry.server.booked;
        if !promised && !self.could_ever(entry) {
            return (Stop::Never, None);
        }
        let excess = if promised { None } else { self.draft.excess_from(self.world, at, entry, from, span) };
        let start = self.keep_later(at, from, span);
        (excess.map_or_else(|| Stop::Booked(promised || start == Some(from)), Stop::Quota), start)
    }

    /// Whether enough nodes could hold it if they were empty and well.
    fn could_ever(&self, entry: &Entry) -> bool {
        let needed = entry.server.ask.nodes();
        self.world.shape_of(entry).is_some_and(|shape| shape.groups.values().any(|group| group.could >= needed))
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

    pub(super) fn grant(&mut self, at: u32, nodes: Vec<u32>, choice: Choice, backfilled: bool, borrowed: bool) {
        let Some(entry) = self.world.entry(at) else { return };
        let span = entry.server.span();
        self.draft.grant(self.world, at, entry, self.now);
        let each = entry.server.ask.each.clone();
        let end = entry.server.lifetime.map(|_| self.now.saturating_add(span));
        for node in &nodes {
            if let Some(kept) = self.kept.get_mut(node) {
                kept.change(i64::MIN, end.unwrap_or(i64::MAX), |free| free.take(&each));
            }
        }
        let granted = Granted { server: at, nodes, choice, backfilled, borrowed };
        self.put(&granted);
        self.granted.push(granted);
    }

    /// On paper it is there.
    pub(super) fn put(&mut self, granted: &Granted) {
        let Some(entry) = self.world.entry(granted.server) else { return };
        let each = entry.server.ask.each.clone();
        let end = entry.server.lifetime.map(|_| self.now.saturating_add(entry.server.span()));
        for node in &granted.nodes {
            self.world.change_at(*node, |place| place.put(granted.server, &each, end));
        }
    }

    /// Takes back what was granted since.
    pub(super) fn take_back(&mut self, since: usize) -> Vec<Granted> {
        let granted: Vec<Granted> = self.granted.drain(since..).collect();
        for Granted { server, nodes, .. } in &granted {
            for node in nodes {
                self.world.change_at(*node, |place| place.remove(*server));
            }
        }
        granted
    }

    /// For another look: what was granted stays, what was only planned is planned anew.
    fn forget_plans(&mut self) {
        self.kept.clear();
        self.planned.clear();
        self.blocking.clear();
        self.blocked.clear();
        let (counted, books) = &mut self.books;
        for granted in self.granted.iter().skip(*counted) {
            if let Some(entry) = self.world.entry(granted.server) {
                books.grant(self.world, granted.server, entry, self.now);
            }
        }
        *counted = self.granted.len();
        books.look_ahead_like(self.world, &self.draft);
        self.draft = books.clone();
        self.stopped.iter_mut().for_each(|stopped| *stopped = None);
        self.nobody.clear();
    }

    /// Where and when a server was to start so far.
    pub(super) fn remembered(&self, at: u32) -> Option<&Slot> {
        match &self.before {
            Some(before) => before.get(&at),
            None => self.world.promised.slot(at),
        }
    }
}
