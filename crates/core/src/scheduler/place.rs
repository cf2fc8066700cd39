//! Which nodes a server gets: all it needs or none, on different nodes that agree on the topology.

use std::sync::Arc;

use super::event::Service;
use super::node::{NOW, Place};
use super::pass::Pass;
use super::plan::Choice;
use super::shape::{Group, Rank, Shape};
use super::world::Entry;

impl Pass<'_> {
    /// Nodes to start on now and stay for so long; `beside` what is kept for others, or as if nothing were.
    pub(super) fn nodes_now(&self, entry: &Entry, span: i64, beside: bool) -> Option<(Vec<u32>, Choice)> {
        let shape = self.world.shape_of(entry)?;
        let ask = &shape.ask;
        let needed = ask.nodes();
        let usable = |node: u32| {
            let kept = self.kept.get(&node).filter(|_| beside);
            let free = |place: &Place| kept.is_none_or(|kept| place.is_free(&ask.each, self.now, span, kept));
            (!beside || !self.blocked.contains(&node))
                && !self.is_refused(entry, node)
                && self.world.place(node).is_some_and(free)
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
        let mut found: Vec<(i64, u32)> = whole.take(needed).map(|turn| (turn.from.max(from), turn.node)).collect();
        let latest = found.get(needed - 1).map_or(i64::MAX, |(at, _)| *at);
        for (node, kept) in &self.kept {
            let room_from =
                shape.spot(*node).filter(|spot| spot.group.as_ref() == Some(value)).and_then(|spot| spot.from());
            // What cannot be before the others need not be looked at.
            if room_from.is_none_or(|at| at >= latest) || !usable(*node) {
                continue;
            }
            let at = self.world.place(*node).and_then(|place| place.gap(each, from, span, kept));
            found.extend(at.filter(|at| *at < latest).map(|at| (at, *node)));
        }
        // All of them at once: who is free earlier must be free then too.
        loop {
            found.sort_unstable();
            let (start, _) = *found.get(needed - 1)?;
            let misfit = found.iter().position(|(at, node)| {
                let free = |kept| self.world.place(*node).is_some_and(|place| place.is_free(each, start, span, kept));
                *at < start && self.kept.get(node).is_some_and(|kept| !free(kept))
            });
            let Some(misfit) = misfit else {
                return Some((start, found.iter().take(needed).map(|(_, node)| *node).collect()));
            };
            let (_, node) = found.swap_remove(misfit);
            let kept = self.kept.get(&node).map_or(&[][..], Vec::as_slice);
            let next = self.world.place(node).and_then(|place| place.gap(each, start, span, kept));
            found.extend(next.map(|next| (next, node)));
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
