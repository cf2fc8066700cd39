//! Idle quota that is lent: after everybody else, and only to servers that can be asked to give it back.

use super::World;
use super::excess::{Excess, Limited};
use super::pass::{Pass, Waiting};
use super::plan::{Choice, Stop};
use super::quota::{Draft, Holder};
use super::world::Entry;

impl Pass<'_> {
    /// Those whom only their team's quota stops may use what others leave idle, after everybody else.
    pub(super) fn lend(&mut self, waits: &[Waiting]) {
        let by_quota = |(at, wait): (&u32, &Waiting)| matches!(wait, Some((Stop::Quota(_), _))).then_some(*at);
        let stopped: Vec<u32> = self.order.iter().zip(waits).filter_map(by_quota).collect();
        for at in stopped {
            if !self.world.entry(at).is_some_and(|entry| self.gives_back(entry)) {
                continue;
            }
            // What it would borrow now it need not have later.
            let slot = self.unplan(at);
            if let Some((nodes, choice)) = self.nodes_lent(at) {
                self.grant(at, nodes, choice, true, true);
            } else if let Some(slot) = slot {
                self.keep(at, slot);
            }
        }
    }

    /// Whether a server could start now, and be asked to leave again: one that was asked too often is left alone, so what
    /// it had its owners would not get back.
    fn gives_back(&self, entry: &Entry) -> bool {
        let server = &entry.server;
        server.preemptible
            && server.preemptions < self.policy.most_preemptions
            && !server.barred
            && server.is_due(self.now)
    }

    /// Where somebody can start now who borrows what its team lacks.
    fn nodes_lent(&self, at: u32) -> Option<(Vec<u32>, Choice)> {
        let entry = self.world.entry(at)?;
        let span = entry.server.span();
        let mut lent: Vec<Excess> = Vec::new();
        // Others may have borrowed since. Of all things that it lacks it must be allowed to borrow each.
        while let Some(excess) = self.draft.excess(self.world, at, entry, self.now, span, &lent) {
            let again = lent.iter().any(|known| known.what == excess.what);
            if again || !self.draft.may_borrow(self.world, &excess) {
                return None;
            }
            lent.push(excess);
        }
        if lent.is_empty() { None } else { self.nodes_now(entry, span, true) }
    }
}

impl Draft {
    /// Whether a team may borrow what it lacks: up to its own limit, from what other teams may hold of the same thing and do
    /// not.
    fn may_borrow(&self, world: &World, excess: &Excess) -> bool {
        let Excess { what, used, need, most, .. } = excess;
        let Holder::Team(team) = excess.holder else { return false };
        let (beyond, own) = (used + need - most, world.teams.get(team).and_then(|purse| purse.account.borrow));
        let allowed = match what {
            // A server that others do not have is nothing that lies idle.
            Limited::Servers => false,
            Limited::Devices | Limited::Flavor(_) => own.is_none_or(|own| beyond <= i128::from(own)),
            // The limit is of devices. Who may borrow none of them borrows nothing.
            Limited::Cpu | Limited::Memory => own.is_none_or(|own| own > 0),
        };
        if !allowed {
            return false;
        }
        let (mut idle, mut borrowed) = (0_i128, 0_i128);
        for (at, purse) in world.teams.all().filter(|(at, _)| *at != team) {
            let Some(most) = what.most(&purse.account.limits) else { continue };
            let left = most - purse.held.of(what) - self.granted_of(Holder::Team(at), what);
            if left > 0 { idle += left } else { borrowed -= left }
        }
        beyond <= idle - borrowed
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Account, Event, Limits, Node, Server};
    use super::super::fixtures::server;
    use super::super::{Policy, World};

    #[test]
    fn who_cannot_be_asked_to_leave_any_more_borrows_nothing() {
        let policy = Policy::default();
        for (preemptions, lent) in [(policy.most_preemptions - 1, true), (policy.most_preemptions, false)] {
            let mut world = World::new();
            let mut tell = |event| world.apply(event, policy.half_life, 0);
            let asked = Server { team: Some("poor".into()), preemptible: true, preemptions, ..server("s", 0) };
            tell(Event::Node(Node { name: "n1".into(), capacity: asked.ask.each.clone(), ..Node::default() }));
            for (name, devices) in [("poor", 0), ("rich", 8)] {
                let limits = Limits { devices: Some(devices), ..Limits::default() };
                tell(Event::Team(Account { name: name.into(), limits, ..Account::default() }));
            }
            tell(Event::Server(Box::new(asked)));
            let plan = world.plan(&policy, 0);
            assert_eq!(plan.grants.iter().map(|grant| grant.borrowed).collect::<Vec<_>>(), vec![true; lent.into()]);
        }
    }
}
