//! From what was found on paper to the plan as a value.

use std::collections::BTreeMap;

use super::Policy;
use super::pass::{Granted, Pass, Slot, Waiting};
use super::plan::{Grant, Plan, Wait};
use super::promise::Stake;

impl Pass<'_> {
    /// Takes back from the world what was only on paper, and puts the plan into words.
    pub(super) fn finish(mut self, waits: Vec<Waiting>, promise: bool) -> Plan {
        let next_victim = self.next_victim(&waits);
        let preemptions = self.preemptions();
        for granted in &self.granted {
            for node in &granted.nodes {
                self.world.change_at(*node, |place| place.remove(granted.server));
            }
        }
        for booked in &self.booked {
            self.world.set_booked(*booked, false);
        }
        let Self { world, policy, now, order, granted, booked, mut planned, mut blocking, .. } = self;
        let mut plan = Plan { preemptions, again: next_victim, ..Plan::default() };
        if promise {
            let starting = granted.iter().map(|granted| {
                let span = world.entry(granted.server).map_or(0, |entry| entry.server.span());
                let slot = Slot { start: now, until: now.saturating_add(span), nodes: granted.nodes.clone() };
                (granted.server, slot)
            });
            planned.extend(starting);
            let stakes = order.iter().map(|at| {
                let slot = planned.remove(at).map(Stake::Slot);
                (*at, slot.or_else(|| blocking.remove(at).map(Stake::Nodes)))
            });
            let mut promised = std::mem::take(&mut world.promised);
            plan.moved = promised.note(stakes, now, |at| world.entry(at).map(|entry| entry.server.id.clone()));
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
        // Places are among those who wait for the same: who waits alone for one flavor is not behind others' queue.
        let mut places: BTreeMap<&str, u32> = BTreeMap::new();
        for (at, wait) in order.iter().zip(waits) {
            let (Some((stop, start)), Some(entry)) = (wait, world.entry(*at)) else { continue };
            let server = &entry.server;
            let next_level = next_level(server.queued, policy, now);
            plan.again = earlier(plan.again, next_level);
            plan.again = earlier(plan.again, server.not_before.filter(|at| *at > now));
            if booked.contains(at) && start == server.not_before {
                plan.booked.push(server.id.clone());
            }
            let position = server.is_due(now).then(|| {
                let place = places.entry(server.flavor.as_str()).or_default();
                *place += 1;
                *place
            });
            plan.waits.push(Wait { id: server.id.clone(), position, start, stop });
        }
        world.waiting = order;
        plan
    }
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
