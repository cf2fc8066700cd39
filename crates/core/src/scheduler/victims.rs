//! Whose leaving makes room for a server: the cheapest set of servers that may be asked.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::node::{NOW, Place};
use super::pass::Pass;
use super::shape::Shape;
use super::steps::Steps;
use super::world::Entry;
use crate::amounts::Amounts;

/// A node with those on it who may be asked, the least urgent and youngest first.
struct Candidate<'w> {
    node: u32,
    place: &'w Place,
    group: &'w Arc<str>,
    victims: Vec<(u32, &'w Entry)>,
    /// What it costs if the first one is enough. It cannot cost less.
    least: Price,
}

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
    fn of(who: &[(u32, &Entry)], place: &Place) -> Self {
        let devices = who.iter().fold(0_i64, |sum, (_, entry)| sum.saturating_add(entry.need.devices));
        let came = who.iter().fold(0_i64, |sum, (_, entry)| sum.saturating_add(since(entry)));
        Self { victims: who.len(), devices, came: Reverse(came), name: place.name.clone() }
    }
}

fn since(entry: &Entry) -> i64 {
    entry.server.running().map_or(0, |running| running.since)
}

impl Pass<'_> {
    /// The cheapest set of servers whose leaving makes room for a server.
    pub(super) fn victims_for(&self, claimant: &Entry, span: i64, free_at: i64) -> Option<Vec<u32>> {
        let shape = self.world.shape_of(claimant)?;
        let needed = shape.ask.nodes();
        let mut candidates = self.candidates(claimant, shape, free_at);
        candidates.sort_unstable_by(|one, two| one.least.cmp(&two.least));
        // By their ids, as numbers say nothing.
        let mut best: Option<(usize, i64, BTreeMap<&str, u32>)> = None;
        for (value, group) in shape.groups.iter().filter(|(_, group)| group.hope >= needed) {
            let free = group.nodes.iter().take_while(|turn| turn.from == NOW || turn.from <= free_at);
            let free = free.filter(|turn| {
                !self.blocked.contains(&turn.node)
                    && !self.kept.contains_key(&turn.node)
                    && !self.is_refused(claimant, turn.node)
            });
            let free = free.take(needed).count();
            let in_group = candidates.iter().filter(|candidate| candidate.group == value);
            let chosen = self.cheapest(in_group, needed - free, &shape.ask.each, (free_at, span));
            if chosen.len() + free < needed || chosen.is_empty() {
                continue;
            }
            let devices = chosen.keys().map(|price| price.devices).sum();
            let who: BTreeMap<&str, u32> =
                chosen.values().copied().flatten().map(|(at, entry)| (entry.server.id.as_str(), *at)).collect();
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
            let key = (entry.team, entry.server.priority);
            let may = stays && rights.entry(key).or_insert_with(|| self.right(claimant, entry)).is_some();
            may.then_some((victim, entry))
        };
        let device = shape.ask.device.as_deref().map(|device| (device, shape.ask.each.device(device)));
        let mut candidates = Vec::new();
        for (node, victims) in &self.world.preemptible_on {
            let Some(group) = shape.spot(*node).filter(|spot| spot.open).and_then(|spot| spot.group.as_ref()) else {
                continue;
            };
            let Some(place) = self.world.place(*node).filter(|_| !self.blocked.contains(node)) else { continue };
            let mut victims: Vec<(u32, &Entry)> = victims.iter().filter_map(|victim| may_ask(*victim)).collect();
            let leaves = |server: u32| victims.iter().any(|(victim, _)| *victim == server);
            let enough = device.is_none_or(|(device, need)| place.free_without(device, free_at, leaves) >= need);
            if victims.is_empty() || !enough || self.is_refused(claimant, *node) {
                continue;
            }
            victims.sort_by(|(_, one), (_, two)| {
                let turn = |entry: &Entry| (entry.server.priority, Reverse(since(entry)));
                (turn(one), &one.server.id).cmp(&(turn(two), &two.server.id))
            });
            let least = Price::of(victims.get(..1).unwrap_or_default(), place);
            candidates.push(Candidate { node: *node, place, group, victims, least });
        }
        candidates
    }

    /// So many nodes on which it costs least, and who must leave each. The candidates come by what they cost at least, so
    /// most need not be looked at.
    fn cheapest<'a, 'w: 'a>(
        &self,
        candidates: impl Iterator<Item = &'a Candidate<'w>>,
        nodes: usize,
        each: &Amounts,
        time: (i64, i64),
    ) -> BTreeMap<Price, &'a [(u32, &'w Entry)]> {
        let mut chosen: BTreeMap<Price, &[(u32, &Entry)]> = BTreeMap::new();
        for candidate in candidates {
            let last = chosen.last_key_value().filter(|_| chosen.len() >= nodes);
            if nodes == 0 || last.is_some_and(|(price, _)| *price <= candidate.least) {
                break;
            }
            let Some(who) = self.must_leave(candidate, each, time) else { continue };
            chosen.insert(Price::of(who, candidate.place), who);
            if chosen.len() > nodes {
                chosen.pop_last();
            }
        }
        chosen
    }

    /// Who must leave a node, each only if those before it are not enough.
    fn must_leave<'a, 'w>(
        &self,
        candidate: &'a Candidate<'w>,
        each: &Amounts,
        (free_at, span): (i64, i64),
    ) -> Option<&'a [(u32, &'w Entry)]> {
        let Candidate { node, place, victims, .. } = candidate;
        // Beside what is kept for those ahead.
        let mut outlook = self.kept.get(node).cloned().unwrap_or_else(|| place.outlook());
        let enough = |outlook: &Steps<Amounts>| outlook.misfit(free_at, span, |free| free.holds(each)).is_none();
        let mut leave = 0;
        for (victim, entry) in victims {
            if enough(&outlook) {
                break;
            }
            let here = place.servers().find(|(server, _)| server == victim).map(|(_, what)| what.clone());
            let here = here.unwrap_or_default();
            outlook.change(free_at, entry.end.unwrap_or(i64::MAX), |free| free.add(&here));
            leave += 1;
        }
        let who = victims.get(..leave).filter(|who| !who.is_empty())?;
        enough(&outlook).then_some(who)
    }
}
