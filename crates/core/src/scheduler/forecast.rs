//! When a server will probably start: the same plan, in a world where people leave when people like them usually do.

use std::collections::{BTreeMap, BTreeSet};

use super::event::{Account, Event, Running, Server, State};
use super::stays::{Given, Record};
use super::{Policy, World};

/// Two worlds that are told the same: in one everybody stays as long as they may, in the other as long as is likely.
#[derive(Clone, Debug, Default)]
pub struct Forecast {
    likely: World,
    /// When likely ends pass, by server: whoever is still there then is likely to stay a little longer.
    due: BTreeSet<(i64, String)>,
    ends: BTreeMap<String, Promised>,
}

#[derive(Clone, Copy, Debug)]
struct Promised {
    since: i64,
    end: i64,
    likely: i64,
}

/// When a server starts, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eta {
    /// Half of such promises are kept.
    pub p50: i64,
    /// Nine of ten are.
    pub p90: i64,
    /// No later than this, if nobody extends and nobody with a better right comes. Nothing if that is not known.
    pub latest: Option<i64>,
    /// To learn from later.
    pub given: Given,
}

impl Forecast {
    pub fn new() -> Self {
        Self::default()
    }

    /// Of a world that is there already. It looks at everybody as of now, where one that is told of changes keeps what it
    /// expected of somebody until that has passed.
    pub fn of(world: &World, half_life: i64, now: i64) -> Self {
        let mut forecast = Self::default();
        let nodes = world.nodes().map(|node| Event::Node(node.clone()));
        let servers = world.servers().map(|server| Event::Server(Box::new(server.clone())));
        let users = world.users().map(|account| {
            let used = world.used_by_user(&account.name, half_life, now);
            Event::User(Account { used, ..account.clone() })
        });
        let teams = world.teams().map(|account| {
            let used = world.used_by_team(&account.name, half_life, now);
            Event::Team(Account { used, ..account.clone() })
        });
        for event in nodes.chain(servers).chain(users).chain(teams) {
            forecast.apply(&event, world, half_life, now);
        }
        forecast
    }

    /// Takes note of a change, beside the world it belongs to.
    pub fn apply(&mut self, event: &Event, world: &World, half_life: i64, now: i64) {
        match event {
            Event::Server(server) => self.tell(server, world, half_life, now),
            Event::ServerGone(id) => {
                self.forget(id);
                self.likely.apply(event.clone(), half_life, now);
            }
            // What is learned is kept in one place.
            Event::Record { .. } | Event::Stay { .. } | Event::Waited { .. } | Event::Promise(_) => {}
            Event::Node(_)
            | Event::NodeGone(_)
            | Event::User(_)
            | Event::UserGone(_)
            | Event::Team(_)
            | Event::TeamGone(_) => self.likely.apply(event.clone(), half_life, now),
        }
    }

    fn tell(&mut self, server: &Server, world: &World, half_life: i64, now: i64) {
        self.forget(&server.id);
        let record = world.record(&server.flavor);
        let mut likely = server.clone();
        match &mut likely.state {
            State::Running(Running { since, end: Some(end), leaving: false, .. }) => {
                let expected =
                    since.saturating_add(stay(record, end.saturating_sub(*since), now.saturating_sub(*since)));
                let promised = Promised { since: *since, end: *end, likely: expected };
                self.ends.insert(server.id.clone(), promised);
                self.due.insert((expected, server.id.clone()));
                *end = expected;
            }
            State::Running(_) => {}
            State::Waiting | State::Resting => {
                likely.lifetime = server.lifetime.map(|lifetime| stay(record, lifetime, 0));
            }
        }
        self.likely.apply(Event::Server(Box::new(likely)), half_life, now);
    }

    fn forget(&mut self, id: &str) {
        if let Some(promised) = self.ends.remove(id) {
            self.due.remove(&(promised.likely, id.to_owned()));
        }
    }

    /// Those who stay longer than was likely are looked at again.
    fn catch_up(&mut self, world: &World, half_life: i64, now: i64) {
        while let Some((_, id)) = self.due.first().cloned().filter(|(at, _)| *at <= now) {
            let Some(promised) = self.ends.get(&id).copied() else {
                self.due.pop_first();
                continue;
            };
            if promised.likely >= promised.end {
                // It overstays; the world counts with that by itself.
                self.due.pop_first();
                continue;
            }
            if let Some(server) = world.get(&id) {
                self.tell(server, world, half_life, now.max(promised.since));
            } else {
                self.due.pop_first();
            }
        }
    }

    /// When each server that waits is likely to start, of those of whom anything can be said.
    pub fn starts(&mut self, world: &World, policy: &Policy, now: i64) -> BTreeMap<String, i64> {
        self.catch_up(world, policy.half_life, now);
        let plan = self.likely.sketch(policy, now);
        let granted = plan.grants.into_iter().map(|grant| (grant.id, now));
        granted.chain(self.likely.likely_starts(&plan.waits, policy, now)).collect()
    }
}

impl World {
    /// What to promise to a server that is likely to start at a time, and at the latest at another.
    pub fn eta(&self, id: &str, likely: i64, latest: Option<i64>, now: i64) -> Option<Eta> {
        let flavor = &self.get(id)?.flavor;
        let none = Record::default();
        let record = self.record(flavor).unwrap_or(&none);
        let most = latest.map(|latest| latest.saturating_sub(now).max(0));
        let given = record.promises.give(likely.saturating_sub(now), most);
        let (p50, p90) = (now.saturating_add(given.p50), now.saturating_add(given.p90));
        Some(Eta { p50, p90, latest, given })
    }
}

fn stay(record: Option<&Record>, lifetime: i64, already: i64) -> i64 {
    record.map_or_else(|| Record::default().stay(lifetime, already), |record| record.stay(lifetime, already))
}

#[cfg(test)]
mod tests {
    use super::super::event::Node;
    use super::super::fixtures::server;
    use super::*;

    #[test]
    fn one_made_of_a_world_expects_what_one_does_that_was_told_everything_now() {
        let policy = Policy::default();
        let (mut world, mut told) = (World::new(), Forecast::new());
        let asked = |name: &str, owner: &str, queued| {
            Box::new(Server { owner: owner.into(), lifetime: Some(7_200), ..server(name, queued) })
        };
        let mut runs = asked("runs", "ada", 0);
        let on = vec![("n1".to_owned(), runs.ask.each.clone())];
        runs.state = State::Running(Running { on, since: 0, end: Some(7_200), leaving: false });
        let node = Node { name: "n1".into(), capacity: runs.ask.each.clone(), ..Node::default() };
        let waiting = [asked("hers", "ada", 10), asked("his", "bob", 20)].map(Event::Server);
        for event in [Event::Node(node), Event::Server(runs)].into_iter().chain(waiting) {
            told.apply(&event, &world, policy.half_life, 600);
            world.apply(event, policy.half_life, 600);
        }
        let expected = told.starts(&world, &policy, 600);
        assert!(expected["hers"] > 600 && expected["hers"] < expected["his"], "{expected:?}");
        assert_eq!(Forecast::of(&world, policy.half_life, 600).starts(&world, &policy, 600), expected);
    }
}
