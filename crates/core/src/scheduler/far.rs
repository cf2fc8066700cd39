//! When somebody is likely to start who waits too far back for a planned start: after the last one ahead whose start is
//! known, as soon as those in between have had their stay.

use std::collections::BTreeMap;

use super::event::Server;
use super::excess::{Excess, Limited};
use super::plan::{Stop, Wait};
use super::quota::{Holder, limited};
use super::world::Entry;
use super::{Policy, World};

/// Those who wait for the same, as far as they were looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// When the last one starts that is known to.
    last: Option<i64>,
    /// What those behind it hold for as long as they stay, in thousandths of device seconds.
    work: i128,
    /// What those of them hold of whom nobody knows how long they stay.
    held: i128,
}

#[derive(Default)]
struct Lines<'w> {
    flavors: BTreeMap<&'w str, Line>,
    holders: BTreeMap<Holder, Line>,
}

impl World {
    /// The likely starts of everybody who waits in a plan of this world. Nothing is said of those who were looked at and
    /// got no start: nobody knows when that is.
    pub(super) fn likely_starts(&self, waits: &[Wait], policy: &Policy, now: i64) -> Vec<(String, i64)> {
        let (mut lines, mut planned) = (Lines::default(), 0);
        let mut starts = Vec::with_capacity(waits.len());
        for wait in waits {
            let Some(entry) = self.find(&wait.id).and_then(|at| self.entry(at)) else { continue };
            let is_far = wait.start.is_none() && planned >= policy.planned() && entry.server.is_due(now);
            planned += usize::from(wait.start.is_some() && !entry.server.is_booking());
            let start = if is_far { lines.start(self, entry, &wait.stop, now) } else { wait.start };
            let Some(start) = start else { continue };
            starts.push((wait.id.clone(), start));
            if is_far {
                lines.follow(self, entry, now);
            } else if entry.server.is_due(now) {
                lines.start_at(self, entry, start, now);
            }
        }
        starts
    }

    /// From when on there is room for a server, as far as the ends of others are known.
    fn first_room(&self, entry: &Entry, now: i64) -> Option<i64> {
        let shape = self.shape_of(entry)?;
        let groups = shape.groups.values().filter(|group| group.nodes.len() >= shape.ask.nodes());
        groups.filter_map(|group| Some(group.nodes.first()?.from.max(now))).min()
    }

    /// When somebody is likely to leave a user or a team something of what they hold.
    fn first_end(&self, holder: Holder, now: i64) -> Option<i64> {
        let runs = self.purse(holder)?.runs.iter();
        runs.filter_map(|run| self.entry(*run)?.end).map(|end| end.max(now)).min()
    }
}

impl<'w> Lines<'w> {
    fn start(&mut self, world: &'w World, entry: &'w Entry, stop: &Stop, now: i64) -> Option<i64> {
        let by_quota = match stop {
            Stop::Never | Stop::Refused | Stop::Booked(_) => return None,
            Stop::Quota(excess) => Some(self.of(world, excess.holder, now).start(may_hold(excess)?)?),
            Stop::NoRoom | Stop::Behind | Stop::TooLong | Stop::Barred => None,
        };
        let line = self.flavors.entry(&entry.server.flavor).or_default();
        line.last = line.last.or_else(|| world.first_room(entry, now));
        let by_nodes = line.start(world.shape_of(entry)?.capacity())?;
        Some(by_quota.map_or(by_nodes, |by_quota| by_quota.max(by_nodes)))
    }

    fn of(&mut self, world: &World, holder: Holder, now: i64) -> &mut Line {
        self.holders.entry(holder).or_insert_with(|| Line { last: world.first_end(holder, now), ..Line::default() })
    }

    /// A server whose start is known.
    fn start_at(&mut self, world: &World, entry: &'w Entry, start: i64, now: i64) {
        let line = self.flavors.entry(&entry.server.flavor).or_default();
        line.last = line.last.max(Some(start));
        for holder in limited(world, entry) {
            let line = self.of(world, holder, now);
            line.last = line.last.max(Some(start));
        }
    }

    /// A server that comes behind all whose starts are known.
    fn follow(&mut self, world: &World, entry: &'w Entry, now: i64) {
        self.flavors.entry(&entry.server.flavor).or_default().follow(&entry.server);
        for holder in limited(world, entry) {
            self.of(world, holder, now).follow(&entry.server);
        }
    }
}

impl Line {
    /// When the next one starts, where so much is used at a time.
    fn start(&self, capacity: i128) -> Option<i64> {
        let capacity = capacity - self.held;
        if capacity <= 0 {
            return None;
        }
        Some(self.last?.saturating_add(i64::try_from(self.work / capacity).unwrap_or(i64::MAX)))
    }

    fn follow(&mut self, server: &Server) {
        let cost = i128::from(server.ask.cost());
        match server.lifetime {
            Some(stay) => self.work += cost * i128::from(stay),
            None => self.held += cost,
        }
    }
}

/// How much a quota allows at a time, in thousandths of a device. Nothing if what it asks for is more, or it is a quota of
/// something that is not given back as stays end.
fn may_hold(excess: &Excess) -> Option<i128> {
    let devices = matches!(excess.what, Limited::Devices | Limited::Flavor(_));
    (devices && excess.need <= excess.most).then_some(excess.most * 1_000)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::event::{Account, Event, Limits, Node, Running, Server, State};
    use super::super::fixtures::server;
    use super::super::forecast::Forecast;
    use super::super::{Policy, World};

    const HOUR: i64 = 3_600;

    /// Two devices, one taken for an hour and one for two; everybody waits for one, for an hour. The first two are planned.
    fn starts(more: Vec<Server>, who: &str, limits: Limits) -> BTreeMap<String, i64> {
        let policy = Policy { depth: 2, ..Policy::default() };
        let (mut world, mut forecast) = (World::new(), Forecast::new());
        let runs = [("one", 1), ("two", 2)].map(|(name, hours)| {
            let asked = server(name, 0);
            let on = vec![("n1".to_owned(), asked.ask.each.clone())];
            let state = State::Running(Running { on, since: 0, end: Some(hours * HOUR), leaving: true });
            Server { state, lifetime: Some(hours * HOUR), owner: "eve".into(), ..asked }
        });
        let each = &runs[0].ask.each;
        let node = Node { name: "n1".into(), capacity: each.plus(each), ..Node::default() };
        let account = Account { name: who.into(), limits, ..Account::default() };
        let waits = (0..6).map(|number| Server { lifetime: Some(HOUR), ..server(&format!("w{number}"), number) });
        let servers = runs.into_iter().chain(waits).chain(more).map(|server| Event::Server(Box::new(server)));
        for event in [Event::Node(node), Event::User(account)].into_iter().chain(servers) {
            forecast.apply(&event, &world, policy.half_life, 0);
            world.apply(event, policy.half_life, 0);
        }
        forecast.starts(&world, &policy, 0)
    }

    #[test]
    fn who_is_too_far_back_to_be_planned_starts_as_those_ahead_have_had_their_stay() {
        let starts = starts(Vec::new(), "joe", Limits::default());
        let of = |number: i64| starts[&format!("w{number}")];
        // The first takes over from the one, the second from the first.
        let stay = of(1) - of(0);
        assert!(of(0) == HOUR && (HOUR / 2..=HOUR).contains(&stay), "{starts:?}");
        // From then on one starts every half stay, as there are two devices.
        assert_eq!([2, 3, 4, 5].map(of), [0, 1, 2, 3].map(|ahead| of(1) + ahead * stay / 2), "{starts:?}");
    }

    #[test]
    fn nothing_is_said_where_nobody_knows() {
        let joes = |name: &str, queued| Server { owner: "joe".into(), lifetime: Some(HOUR), ..server(name, queued) };
        let mut large = joes("large", 10);
        large.ask.each = large.ask.each.with_device("gpu", 3);
        let mut greedy = joes("greedy", 11);
        greedy.ask.each = greedy.ask.each.with_device("gpu", 2);
        let booked = Server { not_before: Some(90 * HOUR), owner: "bob".into(), ..joes("booked", 12) };
        let more = vec![large, greedy, booked, joes("last", 13)];
        let starts = starts(more, "joe", Limits { devices: Some(1), ..Limits::default() });
        assert!(!starts.contains_key("large") && !starts.contains_key("greedy"), "{starts:?}");
        assert_eq!(starts["booked"], 90 * HOUR);
        assert!(starts["last"] > starts["w5"] && starts["last"] < 9 * HOUR, "{starts:?}");
    }

    #[test]
    fn who_waits_for_a_quota_waits_for_those_of_the_same_holder() {
        let more = || (10..22).map(|number| Server { lifetime: Some(HOUR), ..server(&format!("e{number}"), number) });
        let more = || more().map(|asked| Server { owner: "eve".into(), ..asked }).collect();
        let free = starts(more(), "eve", Limits::default());
        // She has two and may have one.
        let limited = starts(more(), "eve", Limits { devices: Some(1), ..Limits::default() });
        assert!(limited["e21"] > free["e21"] + HOUR / 2, "{limited:?} {free:?}");
        assert_eq!(limited["w5"], free["w5"]);
    }
}
