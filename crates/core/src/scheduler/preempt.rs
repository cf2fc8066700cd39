//! Who gives way: preemptible servers that use quota of others, or are less urgent. They get notice, an orderly stop, and
//! their place back; and nobody is asked who would get it back at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::node::NOW;
use super::order::Right;
use super::pass::Pass;
use super::plan::Preemption;
use super::shape::Shape;
use super::world::Entry;
use crate::amounts::Amounts;

/// What it takes to make room on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Few are better than many, and those who came last lose least.
    victims: usize,
    devices: i64,
    name: Arc<str>,
    node: u32,
    who: Vec<u32>,
}

impl Pass<'_> {
    /// Plans a start by asking others to leave, if that is sooner than waiting for them. Says when it starts.
    pub(super) fn reclaim(&mut self, at: u32, span: i64) -> Option<i64> {
        if self.world.preemptible.is_empty() {
            return None;
        }
        let entry = self.world.entry(at).filter(|entry| !entry.server.barred)?.clone();
        let free_at = self.now.saturating_add(self.policy.reclaim());
        if self.find_later(at, self.now, span).is_some_and(|(start, _)| start <= free_at) {
            return None;
        }
        let by = entry.server.id.clone();
        let victims = self.victims_for(&entry, span, free_at)?;
        let rights: Vec<Right> =
            victims.iter().filter_map(|victim| self.right_over(&entry, self.world.entry(*victim)?)).collect();
        let before = self.expected.len();
        for victim in &victims {
            let end = self.world.entry(*victim).and_then(|entry| entry.end);
            self.expected.push((*victim, end));
            self.free_early(*victim, free_at, end, Amounts::plus);
            self.world.expect(*victim, Some(free_at));
        }
        // On paper first: somebody's quota or a booking may still stand in the way.
        if self.find_later(at, self.now, span).is_none_or(|(start, _)| start > free_at) {
            let undone: Vec<_> = self.expected.drain(before..).rev().collect();
            for (victim, end) in undone {
                self.free_early(victim, free_at, end, Amounts::minus);
                self.world.expect(victim, end);
            }
            return None;
        }
        for (victim, right) in victims.into_iter().zip(rights) {
            let Some(loser) = self.world.entry(victim) else { continue };
            let stop = self.now.saturating_add(self.policy.notice.max(0));
            let id = loser.server.id.clone();
            self.preemptions.push(Preemption { id, by: by.clone(), right, stop, end: free_at });
        }
        self.keep_later(at, self.now, span)
    }

    /// Where room is kept already, what somebody leaves early is free from then on.
    fn free_early(&mut self, victim: u32, from: i64, end: Option<i64>, how: impl Fn(&Amounts, &Amounts) -> Amounts) {
        let on = self.world.entry(victim).and_then(|entry| entry.server.running()).map(|running| running.on.clone());
        for (node, what) in on.into_iter().flatten() {
            let kept = self.world.node_named(&node).and_then(|node| self.kept.get_mut(&node));
            if let Some(kept) = kept {
                kept.change(from, end.unwrap_or(i64::MAX), |free| how(free, &what));
            }
        }
    }

    /// By which right one may ask for what another one has.
    fn right_over(&self, claimant: &Entry, holder: &Entry) -> Option<Right> {
        let running = holder.server.running().filter(|running| !running.leaving)?;
        let spared = !holder.server.preemptible
            || holder.server.preemptions >= self.policy.most_preemptions
            || self.now.saturating_sub(running.since) < self.policy.least_run;
        if spared || running.on.is_empty() {
            return None;
        }
        // Who has quota of its own may have it back from whoever borrows.
        let has_quota =
            |team: u32| self.world.teams.get(team).is_some_and(|purse| purse.account.limits.devices.is_some());
        let owns = claimant.team.is_some_and(|team| has_quota(team) && !self.world.is_borrowing(team));
        if owns && holder.team != claimant.team && holder.team.is_some_and(|team| self.borrows_still(team)) {
            return Some(Right::Quota);
        }
        let urgent = self.policy.preempt_for_priority && claimant.server.priority > holder.server.priority;
        urgent.then_some(Right::Priority)
    }

    /// Whether a team still holds more than its own when all have left who were asked to.
    fn borrows_still(&self, team: u32) -> bool {
        let Some(purse) = self.world.teams.get(team) else { return false };
        let asked: BTreeSet<u32> = self.expected.iter().map(|(server, _)| *server).collect();
        let leaving =
            asked.iter().filter_map(|server| self.world.entry(*server)).filter(|entry| entry.team == Some(team));
        let held = leaving.fold(purse.held.devices, |held, entry| held.saturating_sub(entry.need.devices));
        purse.account.limits.devices.is_some_and(|most| held > most)
    }

    /// The cheapest set of servers whose leaving makes room for a server.
    fn victims_for(&self, claimant: &Entry, span: i64, free_at: i64) -> Option<Vec<u32>> {
        let shape = self.world.shape_of(claimant)?;
        let needed = shape.ask.nodes();
        let asked: BTreeSet<u32> = self.expected.iter().map(|(server, _)| *server).collect();
        let mut by_node: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for victim in self.world.preemptible.iter().filter(|victim| !asked.contains(victim)) {
            let Some(entry) = self.world.entry(*victim).filter(|entry| self.right_over(claimant, entry).is_some())
            else {
                continue;
            };
            let on = entry.server.running().into_iter().flat_map(|running| &running.on);
            for node in on.filter_map(|(name, _)| self.world.node_named(name)) {
                by_node.entry(node).or_default().push(*victim);
            }
        }
        let mut best: Option<(usize, i64, Vec<u32>)> = None;
        for (value, group) in shape.groups.iter().filter(|(_, group)| group.hope >= needed) {
            let free = group.nodes.iter().take_while(|turn| turn.from == NOW || turn.from <= free_at);
            let free = free.filter(|turn| {
                !self.blocked.contains(&turn.node)
                    && !self.kept.contains_key(&turn.node)
                    && !self.is_refused(claimant, turn.node)
            });
            let free = free.take(needed).count();
            let mut costs: Vec<Cost> = by_node
                .iter()
                .filter(|(node, _)| {
                    shape.spot(**node).is_some_and(|spot| spot.open && spot.group.as_ref() == Some(value))
                })
                .filter(|(node, _)| !self.blocked.contains(node) && !self.is_refused(claimant, **node))
                .filter_map(|(node, victims)| self.cost(shape, *node, victims, free_at, span))
                .collect();
            costs.sort();
            let chosen: Vec<Cost> = costs.into_iter().take(needed - free).collect();
            if chosen.len() + free < needed || chosen.is_empty() {
                continue;
            }
            let devices = chosen.iter().map(|cost| cost.devices).sum();
            let who: BTreeSet<u32> = chosen.into_iter().flat_map(|cost| cost.who).collect();
            let found = (who.len(), devices, who.into_iter().collect::<Vec<_>>());
            best = best.into_iter().chain([found]).min();
        }
        best.map(|(_, _, who)| who)
    }

    /// Who must leave a node, the least urgent and youngest first, each only if it helps.
    fn cost(&self, shape: &Shape, node: u32, victims: &[u32], free_at: i64, span: i64) -> Option<Cost> {
        let place = self.world.place(node)?;
        let each = &shape.ask.each;
        let mut victims: Vec<(u32, &Entry)> =
            victims.iter().filter_map(|victim| Some((*victim, self.world.entry(*victim)?))).collect();
        victims.sort_by_key(|(_, entry)| {
            let since = entry.server.running().map_or(0, |running| running.since);
            (entry.server.priority, std::cmp::Reverse(since), entry.server.id.clone())
        });
        // Beside what is kept for those ahead.
        let outlook = self.kept.get(&node).cloned().unwrap_or_else(|| place.outlook());
        let mut gain = Amounts::default();
        let enough = |gain: &Amounts| outlook.misfit(free_at, span, |free| free.plus(gain).holds(each)).is_none();
        let (mut who, mut devices) = (Vec::new(), 0_i64);
        for (victim, entry) in victims {
            if enough(&gain) {
                break;
            }
            let here = place.servers().find(|(server, _)| *server == victim).map(|(_, what)| what.clone());
            gain = gain.plus(&here.unwrap_or_default());
            who.push(victim);
            devices = devices.saturating_add(entry.need.devices);
        }
        (enough(&gain) && !who.is_empty()).then(|| Cost {
            victims: who.len(),
            devices,
            name: place.name.clone(),
            node,
            who,
        })
    }
}
