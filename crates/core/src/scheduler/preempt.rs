//! Who gives way: preemptible servers that use quota of others, or are less urgent. They get notice, an orderly stop, and
//! their place back; and nobody is asked who would get it back at once.
//!
//! Whoever is asked leaves on paper at once, and everybody is looked at again: those ahead may use what is left of the
//! room. A claim stands if then its server starts when all are gone, and nobody ahead of it starts later than before.

use std::collections::{BTreeMap, BTreeSet};

use odc_api::v1alpha1::Priority;

use super::event::Ask;
use super::excess::Limited;
use super::order::Right;
use super::pass::{Pass, Waiting};
use super::plan::{Preemption, Stop};
use super::policy::Backfill;
use super::purse::{Held, Holding};
use super::quota::{Holder, is_limited};
use super::world::Entry;
use crate::amounts::Amounts;

/// Servers that leave for another one.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    by: u32,
    victims: Vec<Victim>,
    /// When those ahead, and the server itself, are to start at the latest.
    limits: BTreeMap<u32, i64>,
    /// Bookings that were promised since, and may count on the room.
    booked: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Victim {
    server: u32,
    right: Right,
    /// When it would have ended.
    end: Option<i64>,
}

/// What all claims come to so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub victims: BTreeSet<u32>,
    /// What the victims hold, by team.
    held: BTreeMap<u32, Holding>,
    /// The earliest of all limits of a server.
    limits: BTreeMap<u32, i64>,
}

/// Those who may ask the same servers, and start at the same time if they get what they ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Askers {
    shape: u32,
    team: Option<u32>,
    /// Of one whose own quota has a say in when it starts.
    user: Option<u32>,
    priority: Priority,
    flavor: String,
}

impl Askers {
    fn of(pass: &Pass<'_>, entry: &Entry) -> Self {
        let limits = pass.world.users.get(entry.user).map(|purse| &purse.account.limits);
        let limited = limits.is_some_and(|limits| is_limited(limits) || limits.servers.is_some());
        let (priority, flavor) = (entry.server.priority, entry.server.flavor.clone());
        Self { shape: entry.shape, team: entry.team, user: limited.then_some(entry.user), priority, flavor }
    }
}

/// Claims can come and go; where they do so for ever nobody else is asked.
const MOST_ABANDONED: usize = 1_000;
/// For claims a plan may look again at so many times as many servers as wait.
const AGAIN: usize = 4;
/// Where fewer wait they cost as little as so many.
const FEW: usize = 10_000;

impl Pass<'_> {
    /// Whom a server can ask to leave, if that is sooner than what it would get otherwise.
    pub(super) fn claim(&mut self, at: u32, span: i64, otherwise: Option<i64>) -> Option<Claim> {
        let free_at = self.all_gone();
        let asked = self.given_up.contains(&at) || self.claims.iter().any(|claim| claim.by == at);
        if self.world.preemptible.is_empty()
            || otherwise.is_some_and(|start| start <= free_at)
            || asked
            || self.abandoned > MOST_ABANDONED
            || self.spent > self.budget().saturating_mul(2)
        {
            return None;
        }
        let entry = self.world.entry(at).filter(|entry| !entry.server.barred)?;
        let askers = Askers::of(self, entry);
        if self.nobody.get(&askers).is_some_and(|least| span >= *least) {
            return None;
        }
        let Some(victims) = self.victims_for(entry, span, free_at) else {
            if entry.server.unfit.is_empty() {
                self.nobody.insert(askers, span);
            }
            return None;
        };
        if victims.is_empty() {
            return None;
        }
        let victims = victims.into_iter();
        let victim = |(server, right)| Victim { server, right, end: self.world.entry(server).and_then(|one| one.end) };
        let victims = victims.map(victim).collect();
        let planned = self.planned.iter().map(|(server, slot)| (*server, slot.start));
        let granted = self.granted.iter().map(|granted| (granted.server, self.now));
        let limits = planned.chain(granted).chain([(at, free_at)]).collect();
        Some(Claim { by: at, victims, limits, booked: Vec::new() })
    }

    /// Whether a server is near enough to the head of the queue to ask others to leave. Each that does costs two looks at
    /// all ahead of it at most: one to see what comes of it, and what is left of the one it broke off if that is nothing. All
    /// those looks together cost no more than a few at everybody. Who is near depends on nothing but who waits, so the next
    /// plan finds the same ones near, and nobody new to ask.
    pub(super) fn is_near(&mut self) -> bool {
        self.toll = self.toll.saturating_add(2 * (self.passed + 1));
        self.toll <= self.budget()
    }

    fn budget(&self) -> usize {
        AGAIN * self.pending.max(FEW)
    }

    /// When the next one can be asked to leave that has not run for long enough yet, if somebody waits who might ask it.
    pub(super) fn next_victim(&self, waits: &[Waiting]) -> Option<i64> {
        if self.policy.backfill == Backfill::None {
            return None;
        }
        let for_nodes = |(at, wait): (&u32, &Waiting)| {
            let (stop, _) = wait.as_ref()?;
            let for_nodes = matches!(stop, Stop::NoRoom | Stop::Behind | Stop::TooLong | Stop::Refused);
            self.world.entry(*at).filter(|_| for_nodes).map(|entry| entry.server.priority)
        };
        let highest = self.order.iter().zip(waits).filter_map(for_nodes).max()?;
        let might_be_asked = |entry: &Entry| {
            let server = &entry.server;
            let team = entry.team.and_then(|team| self.world.teams.get(team));
            let borrows = team.is_some_and(|purse| is_limited(&purse.account.limits));
            server.preemptible
                && server.preemptions < self.policy.most_preemptions
                && (borrows || self.policy.preempt_for_priority && server.priority < highest)
        };
        let running = self.world.preemptible.iter().filter_map(|at| {
            let entry = self.world.entry(*at)?;
            Some((entry, entry.server.running()?.since))
        });
        // Who starts now is one of them from now on.
        let granted = self.granted.iter().filter_map(|granted| Some((self.world.entry(granted.server)?, self.now)));
        let all = running.chain(granted).filter(|(entry, _)| might_be_asked(entry));
        all.map(|(_, since)| since.saturating_add(self.policy.least_run)).filter(|at| *at > self.now).min()
    }

    /// When those who are asked now are gone.
    fn all_gone(&self) -> i64 {
        self.now.saturating_add(self.policy.reclaim())
    }

    /// Lets those who are asked leave, on paper.
    pub(super) fn ask(&mut self, claim: Claim) {
        let free_at = self.all_gone();
        for victim in &claim.victims {
            self.expect(victim.server, Some(free_at));
            self.asked.victims.insert(victim.server);
            if let Some((team, entry)) = self.world.entry(victim.server).and_then(|entry| Some((entry.team?, entry))) {
                self.asked.held.entry(team).or_default().add(entry);
            }
        }
        self.asked.bound(&claim);
        self.claims.push(claim);
    }

    /// Which claim is in vain, or harms somebody ahead of it, because a server starts when it does.
    pub(super) fn in_vain(&self, at: u32, start: Option<i64>) -> Option<usize> {
        let later = |most: &i64| start.is_none_or(|start| start > *most);
        if !self.asked.limits.get(&at).is_some_and(later) {
            return None;
        }
        self.claims.iter().rposition(|claim| claim.limits.get(&at).is_some_and(later))
    }

    /// Nobody leaves for this claim. Its server would only make it again, and whoever asked because of it would, too; it may
    /// when all others have asked.
    pub(super) fn withdraw(&mut self, claim: usize) {
        let last = claim + 1 == self.claims.len();
        let claim = self.claims.remove(claim);
        self.given_up.insert(claim.by);
        // What was promised while they were to leave may be impossible if they stay.
        for booking in claim.booked.iter().filter(|booking| self.booked.remove(booking)) {
            self.world.set_booked(*booking, false);
            self.reorder = true;
        }
        self.give_up(claim.by, last && !self.reorder);
        self.let_stay(&claim);
    }

    /// Bookings are promised with the room of those who leave.
    pub(super) fn lean_on_claims(&mut self, booked: &[u32]) {
        self.claims.iter_mut().for_each(|claim| claim.booked.extend(booked));
    }

    /// For whom others leave.
    pub(super) fn claimants(&self) -> Vec<u32> {
        self.claims.iter().map(|claim| claim.by).collect()
    }

    /// A server is expected to be gone at another time, on paper and in what looks begin with.
    fn expect(&mut self, at: u32, end: Option<i64>) {
        if let Some(entry) = self.world.entry(at) {
            self.books.1.expect(self.world, entry, entry.end, end);
        }
        self.world.expect(at, end);
    }

    fn let_stay(&mut self, claim: &Claim) {
        for victim in claim.victims.iter().rev() {
            self.expect(victim.server, victim.end);
            self.asked.victims.remove(&victim.server);
            if let Some((team, entry)) = self.world.entry(victim.server).and_then(|entry| Some((entry.team?, entry))) {
                self.asked.held.entry(team).or_default().remove(entry);
            }
        }
        self.asked.limits.clear();
        self.claims.iter().for_each(|claim| self.asked.bound(claim));
    }

    /// What all claims come to. In the world everybody is as before.
    pub(super) fn preemptions(&mut self) -> Vec<Preemption> {
        let (stop, end) = (self.now.saturating_add(self.policy.notice.max(0)), self.all_gone());
        let mut preemptions = Vec::new();
        for claim in std::mem::take(&mut self.claims) {
            self.let_stay(&claim);
            let id = |at: u32| self.world.entry(at).map(|entry| entry.server.id.clone());
            let Some(by) = id(claim.by) else { continue };
            preemptions.extend(claim.victims.iter().filter_map(|victim| {
                Some(Preemption { id: id(victim.server)?, by: by.clone(), right: victim.right, stop, end })
            }));
        }
        preemptions
    }

    /// Whether somebody is not asked to leave, whoever asks.
    pub(super) fn is_spared(&self, holder: &Entry) -> bool {
        let Some(running) = holder.server.running().filter(|running| !running.leaving) else { return true };
        // Nobody leaves in the second it started in, whatever the policy: the plan that started it had the same facts.
        !holder.server.preemptible
            || holder.server.preemptions >= self.policy.most_preemptions
            || self.now.saturating_sub(running.since) < self.policy.least_run.max(1)
            || running.on.is_empty()
    }

    /// By which right one may ask for what another one has, who is not spared. It depends on nothing of the holder but its
    /// team, priority and flavor, and which things it has.
    pub(super) fn right(&self, claimant: &Entry, holder: &Entry, asking: &Asking) -> Option<Right> {
        // Who has quota of its own of something may have it back from whoever borrows that, if that is what is missing: a
        // team that borrows a little memory does not lose devices of its own for it.
        let teams = claimant.team.zip(holder.team).filter(|(one, other)| one != other);
        let owns = teams.is_some_and(|(one, other)| {
            let back = asking.back.get(&other);
            let mut missing = shared(claimant, holder).filter(|what| asking.lacks.has(what));
            missing.any(|what| self.has_own(one, &what) && self.borrows_still(other, &what, back))
        });
        let urgent = self.policy.preempt_for_priority && claimant.server.priority > holder.server.priority;
        if owns { Some(Right::Quota) } else { urgent.then_some(Right::Priority) }
    }

    fn has_own(&self, team: u32, what: &Limited) -> bool {
        let purse = self.world.teams.get(team);
        purse.is_some_and(|purse| what.most(&purse.account.limits).is_some()) && !self.borrows_still(team, what, None)
    }

    /// Whether a team holds more of something than its own when all have started who are to, and all have left who were
    /// asked to, or would be besides.
    fn borrows_still(&self, team: u32, what: &Limited, back: Option<&Holding>) -> bool {
        let Some(purse) = self.world.teams.get(team) else { return false };
        let Some(most) = what.most(&purse.account.limits) else { return false };
        let asked = self.asked.held.get(&team).map_or(0, |asked| asked.of(what));
        let held = purse.held.of(what) + self.draft.granted_of(Holder::Team(team), what);
        held - purse.leaving.of(what) - asked - back.map_or(0, |back| back.of(what)) > most
    }
}

/// What a claim comes to while it is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Asking {
    pub lacks: Lacks,
    /// What those give back who are asked already, by team.
    pub back: BTreeMap<u32, Holding>,
}

impl Asking {
    pub fn also(&mut self, entry: &Entry) {
        if let Some(team) = entry.team {
            self.back.entry(team).or_default().add(entry);
        }
    }
}

/// What a place has too little of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacks {
    devices: bool,
    cpu: bool,
    memory: bool,
}

/// Where nobody has looked yet it may be anything.
impl Default for Lacks {
    fn default() -> Self {
        Self { devices: true, cpu: true, memory: true }
    }
}

impl Lacks {
    pub fn of(free: &Amounts, ask: &Ask) -> Self {
        let device = ask.device.as_deref();
        Self {
            devices: device.is_some_and(|device| free.device(device) < ask.each.device(device)),
            cpu: free.cpu < ask.each.cpu,
            memory: free.memory < ask.each.memory,
        }
    }

    pub fn or(self, other: Self) -> Self {
        Self { devices: self.devices || other.devices, cpu: self.cpu || other.cpu, memory: self.memory || other.memory }
    }

    fn has(self, what: &Limited) -> bool {
        match what {
            Limited::Devices | Limited::Flavor(_) => self.devices,
            Limited::Cpu => self.cpu,
            Limited::Memory => self.memory,
            Limited::Servers => false,
        }
    }
}

impl Asked {
    fn bound(&mut self, claim: &Claim) {
        for (server, limit) in &claim.limits {
            let earliest = self.limits.entry(*server).or_insert(*limit);
            *earliest = (*earliest).min(*limit);
        }
    }
}

/// What quotas speak about that two servers both need.
fn shared(one: &Entry, other: &Entry) -> impl Iterator<Item = Limited> {
    let both = |amount: fn(&Held) -> i64| amount(&one.need) > 0 && amount(&other.need) > 0;
    let devices = both(|need| need.devices);
    let flavor = devices && one.server.flavor == other.server.flavor;
    let shared = [
        devices.then_some(Limited::Devices),
        flavor.then(|| Limited::Flavor(one.server.flavor.clone())),
        both(|need| need.cpu).then_some(Limited::Cpu),
        both(|need| need.memory).then_some(Limited::Memory),
    ];
    shared.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::super::event::{Account, Event, Limits, Node, Running, Server, State};
    use super::super::fixtures::server;
    use super::super::{Policy, World};
    use super::*;

    const NOW: i64 = 3_600;
    const VICTIMS: i64 = 300;
    const AHEAD: i64 = 3_000;

    /// A full node of preemptible servers, many who wait for a quota, and behind them as many as could ask for a place.
    fn world(policy: &Policy) -> World {
        let mut world = World::new();
        let mut tell = |event| world.apply(event, policy.half_life, NOW);
        let mut capacity = Amounts::default().with_device("gpu", VICTIMS);
        (capacity.cpu, capacity.pods) = (VICTIMS * 1_000, VICTIMS);
        tell(Event::Node(Node { name: "n1".into(), capacity, ..Node::default() }));
        let limits = Limits { devices: Some(0), ..Limits::default() };
        tell(Event::User(Account { name: "ada".into(), limits, ..Account::default() }));
        for number in 0..VICTIMS {
            let mut low = Server { preemptible: true, priority: Priority::Low, ..server(&format!("low{number}"), 0) };
            low.owner = "eve".into();
            let on = vec![("n1".to_owned(), low.ask.each.clone())];
            low.state = State::Running(Running { on, since: 0, end: None, leaving: false });
            tell(Event::Server(Box::new(low)));
        }
        for number in 0..AHEAD {
            tell(Event::Server(Box::new(server(&format!("none{number}"), number))));
        }
        for number in 0..VICTIMS {
            let asks = Server { lifetime: Some(NOW), ..server(&format!("asks{number}"), AHEAD + number) };
            tell(Event::Server(Box::new(Server { owner: "bob".into(), ..asks })));
        }
        world
    }

    #[test]
    fn asking_costs_a_few_looks_and_a_second_plan_asks_nobody_else() {
        let policy = Policy::default();
        let mut world = world(&policy);
        let mut pass = Pass::new(&mut world, &policy, NOW);
        let waits = pass.settle();
        assert!(pass.spent <= AGAIN * FEW, "looked at {} servers again", pass.spent);
        let plan = pass.finish(waits, true);
        assert!(!plan.preemptions.is_empty());
        for preemption in &plan.preemptions {
            let mut asked = world.get(&preemption.id).unwrap().clone();
            asked.preemptions += 1;
            if let State::Running(running) = &mut asked.state {
                (running.end, running.leaving) = (Some(preemption.end), true);
            }
            world.apply(Event::Server(Box::new(asked)), policy.half_life, NOW);
        }
        let second = world.plan(&policy, NOW);
        assert_eq!((&second.preemptions, &second.waits), (&Vec::new(), &plan.waits));
    }

    /// Servers on a node with 8 devices and 200 cores: who runs, by id, devices and cores, all of team `a`; and what `b` asks
    /// for. Gives who is asked to leave, and by which right.
    fn asked(a: Limits, runs: &[(&str, i64, i64)], what: (i64, i64)) -> Vec<(String, Right)> {
        let runs: Vec<_> = runs.iter().map(|(id, devices, cores)| ("a", *id, *devices, *cores)).collect();
        asked_of(&[("a", a)], &runs, what)
    }

    /// The same of several teams.
    fn asked_of(
        teams: &[(&str, Limits)],
        runs: &[(&str, &str, i64, i64)],
        (devices, cores): (i64, i64),
    ) -> Vec<(String, Right)> {
        let policy = Policy::default();
        let mut world = World::new();
        let mut tell = |event| world.apply(event, policy.half_life, NOW);
        let made = |id: &str, team: &str, devices: i64, cores: i64| {
            let mut one = Server { team: Some(team.into()), lifetime: Some(NOW), ..server(id, 0) };
            one.owner = team.into();
            one.ask.each = Amounts::default().with_device("gpu", devices);
            (one.ask.each.cpu, one.ask.each.pods) = (cores * 1_000, 1);
            one
        };
        let mut capacity = Amounts::default().with_device("gpu", 8);
        (capacity.cpu, capacity.pods) = (200_000, 100);
        tell(Event::Node(Node { name: "n1".into(), capacity, ..Node::default() }));
        let b = Limits { devices: Some(8), cpu: Some(200 * 1_000_000_000), ..Limits::default() };
        for (name, limits) in teams.iter().cloned().chain([("b", b)]) {
            tell(Event::Team(Account { name: name.into(), limits, ..Account::default() }));
        }
        for (team, id, devices, cores) in runs {
            let mut one = Server { preemptible: true, ..made(id, team, *devices, *cores) };
            let on = vec![("n1".to_owned(), one.ask.each.clone())];
            one.state = State::Running(Running { on, since: 0, end: None, leaving: false });
            tell(Event::Server(Box::new(one)));
        }
        tell(Event::Server(Box::new(made("back", "b", devices, cores))));
        let plan = world.plan(&policy, NOW);
        plan.preemptions.into_iter().map(|preemption| (preemption.id, preemption.right)).collect()
    }

    #[test]
    fn only_what_is_missing_is_asked_back() {
        let cores = |cores: i128| Limits { devices: Some(8), cpu: Some(cores * 1_000_000_000), ..Limits::default() };
        // It borrows cores, of which there are enough, and has devices of its own.
        assert_eq!(asked(cores(8), &[("own", 4, 40)], (8, 8)), []);
        // It borrows the cores that are missing.
        assert_eq!(asked(cores(8), &[("lent", 1, 190)], (1, 20)), [("lent".into(), Right::Quota)]);
        // They are its own.
        assert_eq!(asked(cores(190), &[("own", 1, 190)], (1, 20)), []);
    }

    #[test]
    fn who_found_nobody_speaks_for_those_who_stay_as_long() {
        let policy = Policy::default();
        let mut world = world(&policy);
        let mut pass = Pass::new(&mut world, &policy, NOW);
        let asks = |at: &u32| pass.world.entry(*at).is_some_and(|entry| entry.server.id == "asks1");
        let at = pass.order.iter().copied().find(asks).unwrap();
        assert!(pass.claim(at, NOW, None).is_some());
        let askers = Askers::of(&pass, pass.world.entry(at).unwrap());
        pass.nobody.insert(askers, NOW);
        assert!(pass.claim(at, NOW, None).is_none());
        assert!(pass.claim(at, NOW - 1, None).is_some());
    }

    #[test]
    fn it_counts_what_is_missing_in_the_end() {
        let limits = |devices, cores: i128| Limits {
            devices: Some(devices),
            cpu: Some(cores * 1_000_000_000),
            ..Limits::default()
        };
        let teams = [("a", limits(4, 8)), ("c", limits(0, 0))];
        // The first borrows cores only, and the second everything.
        let runs = [("a", "x", 4, 40), ("c", "y", 4, 160)];
        // Cores are missing at first, but not when the second is gone; then the first would lose devices of its own.
        assert_eq!(asked_of(&teams, &runs, (8, 100)), []);
        assert_eq!(asked_of(&teams, &runs, (4, 100)), [("y".into(), Right::Quota)]);
        // Its cores are missing, too.
        assert_eq!(asked_of(&teams, &runs, (8, 180)).len(), 2);
        // The last has what is missing, and need not leave as long as the first seems to be enough.
        let runs = [("a", "x", 2, 40), ("c", "y", 2, 160), ("c", "z1", 2, 0), ("c", "z2", 2, 0)];
        let who: Vec<String> = asked_of(&teams, &runs, (6, 100)).into_iter().map(|(id, _)| id).collect();
        assert_eq!(who, ["y", "z1", "z2"]);
        // The second gives back all the cores, so that the first is asked for its own; the third does not.
        let runs = [("a", "x", 4, 60), ("c", "y", 2, 100), ("c", "z", 2, 20)];
        let who: Vec<String> = asked_of(&teams, &runs, (6, 80)).into_iter().map(|(id, _)| id).collect();
        assert_eq!(who, ["x", "z"]);
    }

    #[test]
    fn nobody_loses_more_than_it_borrows() {
        let runs = [("a1", 2, 1), ("a2", 2, 1), ("a3", 2, 1), ("a4", 2, 1)];
        let own = |devices| Limits { devices: Some(devices), ..Limits::default() };
        // It borrows one device: the server that has it leaves, and no other.
        assert_eq!(asked(own(7), &runs, (2, 1)).len(), 1);
        assert_eq!(asked(own(7), &runs, (4, 1)), []);
        assert_eq!(asked(own(4), &runs, (4, 1)).len(), 2);
        // Two devices are lent, and it takes one server of five to get four; the small ones would use up the right.
        let runs = [("a", 1, 1), ("b", 1, 1), ("c", 5, 1)];
        assert_eq!(asked(own(5), &runs, (5, 1)), [("c".into(), Right::Quota)]);
        // The large one goes first, and then the usual turn goes on.
        let runs = [("a", 1, 1), ("b", 1, 1), ("c", 4, 1), ("d", 1, 1)];
        assert_eq!(asked(own(5), &runs, (5, 1)), [("c".into(), Right::Quota)]);
    }

    #[test]
    fn nobody_leaves_who_is_not_needed() {
        let own = |devices| Limits { devices: Some(devices), ..Limits::default() };
        assert_eq!(asked(own(0), &[("a", 1, 1), ("b", 7, 1)], (7, 1)), [("b".into(), Right::Quota)]);
        assert_eq!(asked(own(0), &[("a", 1, 1), ("b", 7, 1)], (1, 1)), [("a".into(), Right::Quota)]);
    }
}
