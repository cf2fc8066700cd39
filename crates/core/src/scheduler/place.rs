//! Which nodes a server gets: all it needs or none, on different nodes that agree on the topology.

use std::sync::Arc;

use super::event::Service;
use super::node::NOW;
use super::pass::Pass;
use super::plan::Choice;
use super::shape::{Group, Rank, Shape, Spot};
use super::steps::Steps;
use super::world::Entry;
use crate::amounts::Amounts;

impl Pass<'_> {
    /// Nodes to start on now and stay for so long; `beside` what is kept for others, or as if nothing were.
    pub(super) fn nodes_now(&self, entry: &Entry, span: i64, beside: bool) -> Option<(Vec<u32>, Choice)> {
        let shape = self.world.shape_of(entry)?;
        let ask = &shape.ask;
        let needed = ask.nodes();
        let usable = |node: u32| {
            let kept = self.kept.get(&node).filter(|_| beside);
            (!beside || !self.blocked.contains(&node))
                && !self.is_refused(entry, node)
                && kept.is_none_or(|kept| kept.misfit(self.now, span, |free| free.holds(&ask.each)).is_none())
        };
        // The tightest group that will do, so that large ones stay whole for large gangs.
        let mut groups: Vec<(&Arc<str>, &Group)> =
            shape.groups.iter().filter(|(_, group)| group.now >= needed).collect();
        groups.sort_by_key(|(value, group)| (group.now, *value));
        groups.into_iter().find_map(|(_, group)| {
            let with_room = group.nodes.iter().take_while(|turn| turn.from == NOW).map(|turn| turn.node);
            let nodes: Vec<u32> = with_room.filter(|node| usable(*node)).take(needed).collect();
            (nodes.len() == needed).then(|| {
                let choice = self.choice(shape, &nodes);
                (nodes, choice)
            })
        })
    }

    /// The nodes a server was promised for about now, if it can have them.
    pub(super) fn promised_now(&self, at: u32, entry: &Entry, span: i64) -> Option<(Vec<u32>, Choice)> {
        let slot = self.remembered(at).filter(|slot| slot.start <= self.now)?;
        let shape = self.world.shape_of(entry)?;
        let has_room = |node: &u32| {
            let fits =
                |kept: &Steps<Amounts>| kept.misfit(self.now, span, |free| free.holds(&shape.ask.each)).is_none();
            shape.spot(*node).is_some_and(|spot| spot.from() == Some(NOW))
                && !self.blocked.contains(node)
                && !self.is_refused(entry, *node)
                && self.kept.get(node).is_none_or(fits)
        };
        let whole = slot.nodes.len() == shape.ask.nodes() && agree(shape, &slot.nodes);
        (whole && slot.nodes.iter().all(has_room)).then(|| (slot.nodes.clone(), self.choice(shape, &slot.nodes)))
    }

    /// The nodes a server was promised for a time, if it can still have them then.
    pub(super) fn promised_at(&self, at: u32, start: i64, span: i64) -> Option<Vec<u32>> {
        let slot = self.remembered(at).filter(|slot| slot.start == start)?;
        let entry = self.world.entry(at)?;
        let shape = self.world.shape_of(entry)?;
        let has_room = |node: &u32| {
            let from = shape.spot(*node).and_then(Spot::from);
            from.is_some_and(|from| from <= start)
                && !self.blocked.contains(node)
                && !self.is_refused(entry, *node)
                && self.is_expected(*node)
                && self
                    .kept
                    .get(node)
                    .is_none_or(|kept| kept.misfit(start, span, |free| free.holds(&shape.ask.each)).is_none())
        };
        let whole = slot.nodes.len() == shape.ask.nodes() && agree(shape, &slot.nodes);
        (whole && slot.nodes.iter().all(has_room)).then(|| slot.nodes.clone())
    }

    fn choice(&self, shape: &Shape, nodes: &[u32]) -> Choice {
        let ranks = || nodes.iter().filter_map(|node| self.world.place(*node)).map(|place| Rank::of(&shape.ask, place));
        if shape.ask.shared_label().is_some() {
            Choice::TightestGroup
        } else if ranks().any(|rank| rank.wasteful) {
            Choice::DeviceNode
        } else if ranks().any(|rank| rank.whole) {
            Choice::WholeNode
        } else {
            Choice::Fullest
        }
    }

    /// The first time from `from` on, and the nodes to start on then and stay for so long, beside what is kept.
    pub(super) fn nodes_later(&self, entry: &Entry, from: i64, span: i64) -> Option<(i64, Vec<u32>)> {
        let shape = self.world.shape_of(entry)?;
        let needed = shape.ask.nodes();
        let groups = shape.groups.iter().filter(|(_, group)| group.nodes.len() >= needed);
        let found = groups.filter_map(|(value, group)| {
            let (start, nodes) = self.group_later(entry, shape, value, from, span)?;
            Some((start, group.nodes.len(), value, nodes))
        });
        found.min_by_key(|(start, size, value, _)| (*start, *size, *value)).map(|(start, _, _, nodes)| (start, nodes))
    }

    fn group_later(
        &self,
        entry: &Entry,
        shape: &Shape,
        value: &Arc<str>,
        from: i64,
        span: i64,
    ) -> Option<(i64, Vec<u32>)> {
        let (group, needed, each) = (shape.groups.get(value)?, shape.ask.nodes(), &shape.ask.each);
        let usable =
            |node: u32| !self.blocked.contains(&node) && !self.is_refused(entry, node) && self.is_expected(node);
        // Where nothing is kept, room that is there stays.
        let whole = group.nodes.iter().filter(|turn| !self.kept.contains_key(&turn.node) && usable(turn.node));
        // Of two at the same time the name decides, whatever their numbers are.
        let mut found: Vec<(i64, &str, u32)> =
            whole.take(needed).map(|turn| (turn.from.max(from), &*turn.name, turn.node)).collect();
        let latest = found.get(needed - 1).map_or(i64::MAX, |(at, ..)| *at);
        for (node, kept) in &self.kept {
            let room_from = shape.spot(*node).filter(|spot| spot.group.as_ref() == Some(value)).and_then(Spot::from);
            // What cannot be before the others need not be looked at.
            if room_from.is_none_or(|at| at > latest) || !usable(*node) {
                continue;
            }
            let at = kept.gap(from, span, |free| free.holds(each));
            let name = self.world.place(*node).map_or("", |place| &*place.name);
            found.extend(at.filter(|at| *at <= latest).map(|at| (at, name, *node)));
        }
        // All of them at once: who is free earlier must be free then too.
        loop {
            found.sort_unstable();
            let (start, ..) = *found.get(needed - 1)?;
            let misfit = found.iter().position(|(at, _, node)| {
                let misfit = |kept: &Steps<Amounts>| kept.misfit(start, span, |free| free.holds(each)).is_some();
                *at < start && self.kept.get(node).is_some_and(misfit)
            });
            let Some(misfit) = misfit else {
                return Some((start, found.iter().take(needed).map(|(.., node)| *node).collect()));
            };
            let (_, name, node) = found.swap_remove(misfit);
            let next = self.kept.get(&node).and_then(|kept| kept.gap(start, span, |free| free.holds(each)));
            found.extend(next.map(|next| (next, name, node)));
        }
    }

    /// Whether a node that takes nobody now is still expected back.
    fn is_expected(&self, node: u32) -> bool {
        self.world.place(node).is_some_and(|place| match place.node.service {
            Service::Open => true,
            Service::Back(at) => at > self.now,
            Service::Closed => false,
        })
    }
}

/// Whether all nodes are of one group.
fn agree(shape: &Shape, nodes: &[u32]) -> bool {
    let group = |node: &u32| shape.spot(*node).and_then(|spot| spot.group.clone());
    let first = nodes.first().and_then(group);
    first.is_some() && nodes.iter().all(|node| group(node) == first)
}
