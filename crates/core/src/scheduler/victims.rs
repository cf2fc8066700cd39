//! Whose leaving makes room for a server: the cheapest set of servers that may be asked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::{NOW, Place};
use super::order::Right;
use super::pass::Pass;
use super::preempt::{Asking, Lacks};
use super::shape::Shape;
use super::steps::Steps;
use super::world::Entry;
use crate::amounts::Amounts;

/// A node with those on it who may be asked, the least urgent and youngest first.
struct Candidate<'w> {
    node: u32,
    place: &'w Place,
    group: &'w Arc<str>,
    victims: Vec<Victim<'w>>,
    /// What it costs if the best of them is enough. It cannot cost less.
    least: Price,
}

/// How many ways are tried where those who would do may not all be asked.
const TRIES: usize = 8;

/// Somebody who must leave.
#[derive(Clone, Copy, Debug)]
struct Leaver<'w> {
    server: u32,
    entry: &'w Entry,
    right: Right,
    /// What the node has too little of if it stays.
    lacks: Lacks,
}

/// A server that may be asked.
type Victim<'w> = (u32, &'w Entry);

/// Those who leave by their ids, as numbers say nothing.
type ById<'w> = BTreeMap<&'w str, (u32, Right)>;

/// Who must leave each node that was looked at, if anybody's leaving makes room there.
type Known<'w> = BTreeMap<u32, Option<Vec<Leaver<'w>>>>;

/// Few are better than many, and those who came last lose least.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Price {
    victims: usize,
    devices: i64,
    came: Reverse<i64>,
    /// Of the node, so that no two are equal.
    name: Arc<str>,
}

impl Price {
    fn of(who: &[Leaver<'_>], place: &Place) -> Self {
        let devices = who.iter().fold(0_i64, |sum, leaver| sum.saturating_add(leaver.entry.need.devices));
        let came = who.iter().fold(0_i64, |sum, leaver| sum.saturating_add(since(leaver.entry)));
        Self { victims: who.len(), devices, came: Reverse(came), name: place.name.clone() }
    }

    /// Whoever of them must leave, it costs no less.
    fn least(victims: &[Victim<'_>], place: &Place) -> Self {
        let devices = victims.iter().map(|(_, entry)| entry.need.devices).min().unwrap_or(0);
        let came = victims.iter().map(|(_, entry)| since(entry)).max().unwrap_or(0);
        Self { victims: 1, devices, came: Reverse(came), name: place.name.clone() }
    }
}

/// What a node has too little of for a server, whenever in its time.
fn missing(outlook: &Steps<Amounts>, claimant: &Entry, (free_at, span): (i64, i64)) -> Option<Lacks> {
    let ask = &claimant.server.ask;
    let misfits = outlook.misfits(free_at, span, |free| free.holds(&ask.each));
    misfits.map(|free| Lacks::of(free, ask)).reduce(Lacks::or)
}

/// A server leaves a node from some time on, or stays after all.
fn change(
    outlook: &mut Steps<Amounts>,
    place: &Place,
    (server, entry): Victim<'_>,
    from: i64,
    how: fn(&mut Amounts, &Amounts),
) {
    if let Some(here) = place.taken_by(server) {
        outlook.change(from, entry.end.unwrap_or(i64::MAX), |free| how(free, here));
    }
}

fn since(entry: &Entry) -> i64 {
    entry.server.running().map_or(0, |running| running.since)
}

impl Pass<'_> {
    /// The cheapest set of servers whose leaving makes room for a server; nobody, if there is room anyway.
    pub(super) fn victims_for(&self, claimant: &Entry, span: i64, free_at: i64) -> Option<Vec<(u32, Right)>> {
        let shape = self.world.shape_of(claimant)?;
        let needed = shape.ask.nodes();
        let mut candidates = self.candidates(claimant, shape, free_at);
        candidates.sort_unstable_by(|one, two| one.least.cmp(&two.least));
        let mut best: Option<(usize, i64, ById<'_>)> = None;
        for (value, group) in shape.groups.iter().filter(|(_, group)| group.hope >= needed) {
            let free = group.nodes.iter().take_while(|turn| turn.from == NOW || turn.from <= free_at);
            let free = free.filter(|turn| {
                let kept = self.kept.get(&turn.node);
                !self.blocked.contains(&turn.node)
                    && kept.is_none_or(|outlook| missing(outlook, claimant, (free_at, span)).is_none())
                    && !self.is_refused(claimant, turn.node)
            });
            let free = free.take(needed).count();
            let in_group: Vec<&Candidate<'_>> =
                candidates.iter().filter(|candidate| candidate.group == value).collect();
            let chosen = self.cheapest_together(claimant, in_group, needed - free, (free_at, span));
            let Some(chosen) = chosen else { continue };
            let devices = chosen.keys().map(|price| price.devices).sum();
            let who = chosen.values().flatten();
            let who: ById<'_> =
                who.map(|leaver| (leaver.entry.server.id.as_str(), (leaver.server, leaver.right))).collect();
            let found = (who.len(), devices, who);
            best = best.into_iter().chain([found]).min();
        }
        best.map(|(_, _, who)| who.into_values().collect())
    }

    /// All nodes where enough devices would be free if everybody left who may be asked.
    fn candidates<'w>(&'w self, claimant: &Entry, shape: &'w Shape, free_at: i64) -> Vec<Candidate<'w>> {
        let mut rights = BTreeMap::new();
        let mut may_ask = |victim: u32| {
            let entry = self.world.entry(victim).filter(|_| !self.asked.victims.contains(&victim))?;
            // Who is gone by then need not be asked.
            let stays = entry.end.is_none_or(|end| end > free_at) && !self.is_spared(entry);
            let has = (entry.need.devices > 0, entry.need.cpu > 0, entry.need.memory > 0);
            let key = (entry.team, entry.server.priority, &entry.server.flavor, has);
            let right = || self.right(claimant, entry, &Asking::default());
            let may = stays && rights.entry(key).or_insert_with(right).is_some();
            may.then_some((victim, entry))
        };
        let device = shape.ask.device.as_deref().map(|device| (device, shape.ask.each.device(device)));
        let mut candidates = Vec::new();
        for (node, victims) in &self.world.preemptible_on {
            let Some(group) = shape.spot(*node).filter(|spot| spot.open).and_then(|spot| spot.group.as_ref()) else {
                continue;
            };
            let Some(place) = self.world.place(*node).filter(|_| !self.blocked.contains(node)) else { continue };
            let mut victims: Vec<Victim<'_>> = victims.iter().filter_map(|victim| may_ask(*victim)).collect();
            if victims.is_empty() {
                continue;
            }
            let leaves = |server: u32| victims.iter().any(|(victim, _)| *victim == server);
            let enough = device.is_none_or(|(device, need)| place.free_without(device, free_at, leaves) >= need);
            if !enough || self.is_refused(claimant, *node) {
                continue;
            }
            victims.sort_by(|(_, one), (_, two)| {
                let turn = |entry: &Entry| (entry.server.priority, Reverse(since(entry)));
                (turn(one), &one.server.id).cmp(&(turn(two), &two.server.id))
            });
            let least = Price::least(&victims, place);
            candidates.push(Candidate { node: *node, place, group, victims, least });
        }
        candidates
    }

    /// So many nodes on which it costs least and from which all may be asked together who must leave.
    fn cheapest_together<'w>(
        &self,
        claimant: &Entry,
        mut candidates: Vec<&Candidate<'w>>,
        nodes: usize,
        time: (i64, i64),
    ) -> Option<BTreeMap<Price, Vec<Leaver<'w>>>> {
        let mut known = Known::new();
        for _ in 0..TRIES {
            let chosen = self.cheapest(claimant, &candidates, nodes, time, &mut known);
            if chosen.len() < nodes {
                return None;
            }
            let Some(too_much) = self.too_much(claimant, &chosen).cloned() else { return Some(chosen) };
            candidates.retain(|candidate| candidate.place.name != too_much.name);
        }
        None
    }

    /// So many nodes on which it costs least, and who must leave each. The candidates come by what they cost at least, so
    /// most need not be looked at.
    fn cheapest<'w>(
        &self,
        claimant: &Entry,
        candidates: &[&Candidate<'w>],
        nodes: usize,
        time: (i64, i64),
        known: &mut Known<'w>,
    ) -> BTreeMap<Price, Vec<Leaver<'w>>> {
        let mut chosen: BTreeMap<Price, Vec<Leaver<'_>>> = BTreeMap::new();
        for candidate in candidates {
            let last = chosen.last_key_value().filter(|_| chosen.len() >= nodes);
            if nodes == 0 || last.is_some_and(|(price, _)| *price <= candidate.least) {
                break;
            }
            let who = known.entry(candidate.node).or_insert_with(|| self.must_leave(claimant, candidate, time));
            let Some(who) = who.clone() else { continue };
            chosen.insert(Price::of(&who, candidate.place), who);
            if chosen.len() > nodes {
                chosen.pop_last();
            }
        }
        chosen
    }

    /// Who must leave a node. Where nobody may be asked for more than its team borrows, or for what others give back, it
    /// matters who is asked first: if the usual turn leads nowhere one of each other kind begins. Not every set is tried.
    fn must_leave<'w>(&self, claimant: &Entry, candidate: &Candidate<'w>, time: (i64, i64)) -> Option<Vec<Leaver<'w>>> {
        let mut kinds = Vec::new();
        let is_new = |number: &usize| {
            let (_, entry) = candidate.victims[*number];
            let kind = (entry.team, entry.server.priority, &entry.server.flavor, entry.need);
            let new = !kinds.contains(&kind);
            if new {
                kinds.push(kind);
            }
            new
        };
        let mut firsts = (0..candidate.victims.len()).filter(is_new).take(TRIES);
        firsts.find_map(|first| self.leave_in_turn(claimant, candidate, first, time))
    }

    /// Who must leave a node, each only if the others are not enough, and by a right to what would be missing if it stayed.
    /// The turn begins with the `first` of its servers; the others follow as always.
    fn leave_in_turn<'w>(
        &self,
        claimant: &Entry,
        candidate: &Candidate<'w>,
        first: usize,
        time: (i64, i64),
    ) -> Option<Vec<Leaver<'w>>> {
        let mut spared = BTreeSet::new();
        for _ in 0..TRIES {
            let (who, outlook) = self.enough(claimant, candidate, first, &spared, time)?;
            match self.judge(claimant, candidate.place, who, outlook, time) {
                Ok(who) => return Some(who),
                Err(own) => spared.insert(own),
            };
        }
        None
    }

    /// Who of a node is enough, in turn, and what the node has when they are gone. Each has a right to something that is
    /// missing when its turn comes. Others who come later may turn out to give just that back: [`Self::judge`] finds whom
    /// that concerns, and they are spared the next time.
    fn enough<'w>(
        &self,
        claimant: &Entry,
        Candidate { node, place, victims, .. }: &Candidate<'w>,
        first: usize,
        spared: &BTreeSet<u32>,
        time: (i64, i64),
    ) -> Option<(Vec<Victim<'w>>, Steps<Amounts>)> {
        // Beside what is kept for those ahead.
        let mut outlook = self.kept.get(node).cloned().unwrap_or_else(|| place.outlook());
        let (mut who, mut asking) = (Vec::new(), Asking::default());
        let others = victims.iter().enumerate().filter(|(number, _)| *number != first).map(|(_, victim)| victim);
        let turn = victims.iter().skip(first).take(1).chain(others);
        for victim in turn.filter(|(server, _)| !spared.contains(server)) {
            let Some(lacks) = missing(&outlook, claimant, time) else { break };
            asking.lacks = lacks;
            if self.right(claimant, victim.1, &asking).is_some() {
                change(&mut outlook, place, *victim, time.0, Amounts::add);
                asking.also(victim.1);
                who.push(*victim);
            }
        }
        if who.is_empty() || missing(&outlook, claimant, time).is_some() {
            return None;
        }
        // Who came early in the turn may not be needed with those after it. Whoever stays gives nothing back, so the others
        // are asked for no more than before.
        let mut needed = Vec::new();
        while let Some(victim) = who.pop() {
            change(&mut outlook, place, victim, time.0, Amounts::take);
            if missing(&outlook, claimant, time).is_some() {
                change(&mut outlook, place, victim, time.0, Amounts::add);
                needed.push(victim);
            }
        }
        needed.reverse();
        Some((needed, outlook))
    }

    /// By which right each must leave, now that it is known who else does; or one that has none, because what is missing
    /// without it is its own.
    fn judge<'w>(
        &self,
        claimant: &Entry,
        place: &Place,
        who: Vec<Victim<'w>>,
        mut outlook: Steps<Amounts>,
        time: (i64, i64),
    ) -> Result<Vec<Leaver<'w>>, u32> {
        let (mut judged, mut asking) = (Vec::new(), Asking::default());
        for victim in who {
            change(&mut outlook, place, victim, time.0, Amounts::take);
            asking.lacks = missing(&outlook, claimant, time).unwrap_or_default();
            change(&mut outlook, place, victim, time.0, Amounts::add);
            let (server, entry) = victim;
            let right = self.right(claimant, entry, &asking).ok_or(server)?;
            asking.also(entry);
            judged.push(Leaver { server, entry, right, lacks: asking.lacks });
        }
        Ok(judged)
    }

    /// The first node with somebody who may not be asked besides those of the nodes before it.
    fn too_much<'a>(&self, claimant: &Entry, nodes: &'a BTreeMap<Price, Vec<Leaver<'_>>>) -> Option<&'a Price> {
        let (mut asking, mut asked) = (Asking::default(), BTreeSet::new());
        let mut may_all_be_asked = |who: &Vec<Leaver<'_>>| {
            who.iter().all(|leaver| {
                // A gang leaves all its nodes at once.
                if !asked.insert(leaver.server) {
                    return true;
                }
                asking.lacks = leaver.lacks;
                let may = self.right(claimant, leaver.entry, &asking).is_some();
                asking.also(leaver.entry);
                may
            })
        };
        nodes.iter().find(|(_, who)| !may_all_be_asked(who)).map(|(price, _)| price)
    }
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Priority;
    use proptest::prelude::*;

    use super::super::event::{Account, Event, Limits, Node, Running, Server, State};
    use super::super::fixtures::server;
    use super::super::{Policy, World};
    use super::*;

    const NOW_IS: i64 = 3_600;

    /// The same with a look at everybody on all nodes.
    fn plainly(pass: &Pass<'_>, claimant: &Entry, span: i64, free_at: i64) -> Option<Vec<(u32, Right)>> {
        let world = &*pass.world;
        let shape = world.shape_of(claimant)?;
        let needed = shape.ask.nodes();
        let may_ask = |at: &u32| {
            let entry = world.entry(*at).filter(|entry| entry.end.is_none_or(|end| end > free_at))?;
            (!pass.is_spared(entry) && !pass.asked.victims.contains(at)).then_some((*at, entry))
        };
        let has_a_right = |(_, entry): &(u32, &Entry)| pass.right(claimant, entry, &Asking::default()).is_some();
        let all: Vec<(u32, &Entry)> = world.preemptible.iter().filter_map(may_ask).filter(has_a_right).collect();
        let mut best = None;
        for (value, group) in shape.groups.iter().filter(|(_, group)| group.hope >= needed) {
            let usable = |node: &u32| !pass.blocked.contains(node) && !pass.is_refused(claimant, *node);
            let has_room = |node: &u32| {
                let outlook = pass.kept.get(node).cloned().unwrap_or_else(|| world.place(*node).unwrap().outlook());
                outlook.misfit(free_at, span, |free| free.holds(&claimant.server.ask.each)).is_none()
            };
            let free = group.nodes.iter().filter(|turn| turn.from <= free_at && has_room(&turn.node));
            let free = free.filter(|turn| usable(&turn.node)).count().min(needed);
            let mut costs = BTreeMap::new();
            for (node, place) in world.places().filter(|(node, _)| usable(node)) {
                if !shape.spot(node).is_some_and(|spot| spot.open && spot.group.as_ref() == Some(value)) {
                    continue;
                }
                let is_here =
                    |entry: &Entry| entry.server.running().unwrap().on.iter().any(|(on, _)| **on == *place.name);
                let mut victims: Vec<_> = all.iter().copied().filter(|(_, entry)| is_here(entry)).collect();
                victims
                    .sort_by_key(|(_, entry)| (entry.server.priority, Reverse(since(entry)), entry.server.id.clone()));
                let candidate = Candidate { node, place, group: value, victims, least: Price::of(&[], place) };
                let who = pass.must_leave(claimant, &candidate, (free_at, span));
                costs.extend(who.map(|who| (Price::of(&who, place), who)));
            }
            let together = (0..TRIES).find_map(|_| {
                let chosen: BTreeMap<_, _> = costs.clone().into_iter().take(needed - free).collect();
                match pass.too_much(claimant, &chosen) {
                    None => Some(chosen),
                    Some(too_much) => {
                        costs.remove(too_much);
                        None
                    }
                }
            });
            let Some(chosen) = together.filter(|chosen| chosen.len() + free >= needed) else { continue };
            let devices: i64 = chosen.keys().map(|price| price.devices).sum();
            let who = chosen.values().flatten();
            let who: BTreeMap<String, (u32, Right)> =
                who.map(|leaver| (leaver.entry.server.id.clone(), (leaver.server, leaver.right))).collect();
            best = best.into_iter().chain([(who.len(), devices, who)]).min();
        }
        best.map(|(_, _, who)| who.into_values().collect())
    }

    /// Whether some node has room for it when these are gone.
    fn fits_without(pass: &Pass<'_>, claimant: &Entry, gone: &[u32], free_at: i64) -> bool {
        let (world, ask) = (&*pass.world, &claimant.server.ask);
        let shape = world.shape_of(claimant).unwrap();
        let usable = |node: &u32| {
            !pass.blocked.contains(node)
                && !pass.is_refused(claimant, *node)
                && shape.spot(*node).is_some_and(|spot| spot.open)
        };
        world.places().filter(|(node, _)| usable(node)).any(|(node, place)| {
            let mut outlook = pass.kept.get(&node).cloned().unwrap_or_else(|| place.outlook());
            for server in gone {
                change(&mut outlook, place, (*server, world.entry(*server).unwrap()), free_at, Amounts::add);
            }
            outlook.misfit(free_at, claimant.server.span(), |free| free.holds(&ask.each)).is_none()
        })
    }

    /// Whether something is missing without it that it may be asked for, somewhere where it is.
    fn has_a_right(pass: &Pass<'_>, claimant: &Entry, victim: u32, gone: &[u32], free_at: i64) -> bool {
        let (world, ask) = (&*pass.world, &claimant.server.ask);
        world.places().filter(|(_, place)| place.taken_by(victim).is_some()).any(|(node, place)| {
            let mut outlook = pass.kept.get(&node).cloned().unwrap_or_else(|| place.outlook());
            for server in gone {
                change(&mut outlook, place, (*server, world.entry(*server).unwrap()), free_at, Amounts::add);
            }
            outlook.misfits(free_at, claimant.server.span(), |free| free.holds(&ask.each)).any(|free| {
                let asking = Asking { lacks: Lacks::of(free, ask), ..Asking::default() };
                pass.right(claimant, world.entry(victim).unwrap(), &asking).is_some()
            })
        })
    }

    fn check(pass: &Pass<'_>) -> Result<usize, TestCaseError> {
        let (mut found, free_at) = (0, NOW_IS + pass.policy.reclaim());
        for entry in pass.order.iter().filter_map(|at| pass.world.entry(*at)) {
            let fast = pass.victims_for(entry, entry.server.span(), free_at);
            prop_assert_eq!(&fast, &plainly(pass, entry, entry.server.span(), free_at));
            let Some(who) = fast.filter(|who| !who.is_empty()) else { continue };
            found += 1;
            // Nobody asks who fits beside what is kept for others.
            if entry.server.ask.nodes() == 1 && !fits_without(pass, entry, &[], free_at) {
                let all: Vec<u32> = who.iter().map(|(server, _)| *server).collect();
                prop_assert!(fits_without(pass, entry, &all, free_at));
                for needless in &all {
                    let others: Vec<u32> = all.iter().copied().filter(|one| one != needless).collect();
                    prop_assert!(!fits_without(pass, entry, &others, free_at), "{needless} need not leave");
                    prop_assert!(
                        has_a_right(pass, entry, *needless, &others, free_at),
                        "{needless} is asked for its own"
                    );
                }
            }
        }
        Ok(found)
    }

    /// Nodes, each with its zone; who runs on which of them, and who waits.
    fn world(policy: &Policy, nodes: &[(i64, bool)], runs: &[Made], waits: &[Made]) -> World {
        let mut world = World::new();
        let mut tell = |event| world.apply(event, policy.half_life, NOW_IS);
        for (number, (gpus, zone)) in nodes.iter().enumerate() {
            let mut capacity = Amounts::default().with_device("gpu", *gpus);
            (capacity.cpu, capacity.pods) = (gpus * 1_000, 100);
            let labels = [("zone".to_owned(), zone.to_string())].into();
            tell(Event::Node(Node { name: format!("n{number}"), labels, capacity, ..Node::default() }));
        }
        for team in ["t0", "t1"] {
            let limits = Limits { devices: Some(6), ..Limits::default() };
            tell(Event::Team(Account { name: team.into(), limits, ..Account::default() }));
        }
        for (number, made) in runs.iter().enumerate() {
            let mut one = made.server(&format!("r{number}"));
            one.ask.nodes = 1;
            let on = vec![(format!("n{}", made.place % nodes.len()), one.ask.each.clone())];
            let end = made.life.map(|life| NOW_IS + life);
            one.state = State::Running(Running { on, since: made.since, end, leaving: false });
            tell(Event::Server(Box::new(one)));
        }
        for (number, made) in waits.iter().enumerate() {
            tell(Event::Server(Box::new(made.server(&format!("w{number}")))));
        }
        world
    }

    #[derive(Clone, Debug)]
    struct Made {
        gpus: i64,
        nodes: u32,
        life: Option<i64>,
        since: i64,
        priority: usize,
        team: Option<usize>,
        preemptible: bool,
        place: usize,
    }

    impl Made {
        fn server(&self, id: &str) -> Server {
            let mut one = server(id, self.since);
            one.ask.each = one.ask.each.with_device("gpu", self.gpus);
            (one.ask.nodes, one.ask.topology) = (self.nodes, Some("zone".into()));
            one.team = self.team.map(|team| format!("t{team}"));
            one.priority = [Priority::Low, Priority::Normal, Priority::High][self.priority];
            (one.preemptible, one.lifetime) = (self.preemptible, self.life);
            one
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        let what = (1..5_i64, prop_oneof![4 => Just(1_u32), 1 => Just(2_u32)], prop::option::of(60..9_000_i64));
        let whose = (0..4_000_i64, 0..3_usize, prop::option::of(0..2_usize), prop::bool::weighted(0.7), 0..9_usize);
        (what, whose).prop_map(|((gpus, nodes, life), (since, priority, team, preemptible, place))| Made {
            gpus,
            nodes,
            life,
            since,
            priority,
            team,
            preemptible,
            place,
        })
    }

    proptest! {
        #[test]
        fn those_are_found_that_a_look_at_everybody_finds(
            nodes in prop::collection::vec((4..9_i64, any::<bool>()), 1..6),
            runs in prop::collection::vec(made(), 0..14), waits in prop::collection::vec(made(), 1..8),
        ) {
            let policy = Policy::default();
            let mut world = world(&policy, &nodes, &runs, &waits);
            let mut pass = Pass::new(&mut world, &policy, NOW_IS);
            check(&pass)?;
            // With what is kept for others, and some who leave already.
            pass.settle();
            check(&pass)?;
        }
    }

    #[test]
    fn some_are_found() {
        let run =
            |since| Made { gpus: 2, nodes: 1, life: None, since, priority: 0, team: None, preemptible: true, place: 0 };
        let claimant = Made { priority: 2, life: Some(60), preemptible: false, ..run(0) };
        let policy = Policy::default();
        let mut world = world(&policy, &[(4, false)], &[run(0), run(5)], &[claimant]);
        assert_eq!(check(&Pass::new(&mut world, &policy, NOW_IS)).unwrap(), 1);
    }

    #[test]
    fn a_node_that_is_kept_for_others_and_has_room_needs_nobody_to_leave() {
        let run = |gpus, life, preemptible, place| {
            let made = Made { gpus, nodes: 1, life, since: 0, priority: 0, team: None, preemptible, place };
            Made { priority: if preemptible { 0 } else { 2 }, ..made }
        };
        let runs = [run(2, None, true, 0), run(3, Some(100), false, 0), run(3, Some(5_000), true, 1)];
        // The first is to start on the first node, where there is room for one more of the gang behind it.
        let gang = Made { nodes: 2, since: 1, ..run(2, None, false, 0) };
        let policy = Policy::default();
        let plan =
            world(&policy, &[(8, false), (4, false)], &runs, &[run(4, None, false, 0), gang]).plan(&policy, NOW_IS);
        let asked: Vec<_> = plan.preemptions.iter().map(|one| (one.id.as_str(), one.by.as_str())).collect();
        assert_eq!(asked, [("r2", "w1")]);
    }
}
