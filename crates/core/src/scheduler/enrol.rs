//! Servers: told of, changed and forgotten, with everything that counts them.

use super::World;
use super::event::{Server, Service, State, Used};
use super::purse::Held;
use super::world::Entry;

/// One that overstays its end is expected to be gone after another minute, and again.
const OVERDUE: i64 = 60;

impl World {
    pub(super) fn set_server(&mut self, server: Server, half_life: i64, now: i64) {
        if self.get(&server.id).is_some_and(|known| *known == server) {
            return;
        }
        let before = self.ids.get(&server.id).copied();
        if let Some((at, old)) = before.and_then(|at| Some((at, self.entry(at)?))) {
            let stays_longer = self.stays_longer(at, &old.server, &server);
            let refused = server.unfit.keys().any(|node| !old.server.unfit.contains_key(node));
            let same = is_same_request(&old.server, &server);
            if stays_longer {
                self.promised.somebody_stays_longer();
            }
            if refused {
                self.promised.capacity_shrank();
            }
            // Who asks for something else was promised something else.
            if !same {
                self.promised.forget(at);
            }
            self.unlink(at, half_life, now);
        }
        let at = before.unwrap_or_else(|| {
            let at = self.free.pop().unwrap_or_else(|| {
                self.entries.push(None);
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            });
            self.ids.insert(server.id.clone(), at);
            at
        });
        self.link(at, server, half_life, now);
    }

    /// Whether a server holds its nodes for longer than was known, or holds some that nobody planned for it.
    fn stays_longer(&self, at: u32, old: &Server, new: &Server) -> bool {
        let Some(new) = new.running() else { return false };
        let known = match old.running() {
            Some(old) => Some(old.end.unwrap_or(i64::MAX)),
            None => self.promised.granted_until(at),
        };
        known.is_none_or(|known| new.end.unwrap_or(i64::MAX) > known)
    }

    /// A booking is promised, or only on paper.
    pub(super) fn set_booked(&mut self, at: u32, booked: bool) {
        let slot = usize::try_from(at).ok().and_then(|at| self.entries.get_mut(at));
        if let Some(entry) = slot.and_then(Option::as_mut) {
            entry.server.booked = booked;
        }
    }

    pub(super) fn remove_server(&mut self, id: &str, half_life: i64, now: i64) {
        let Some(at) = self.ids.remove(id) else { return };
        self.unlink(at, half_life, now);
        self.promised.forget(at);
        if let Some(slot) = usize::try_from(at).ok().and_then(|at| self.entries.get_mut(at)) {
            *slot = None;
            self.free.push(at);
        }
    }

    fn link(&mut self, at: u32, server: Server, half_life: i64, now: i64) {
        let user = self.users.find(&server.owner);
        let team = server.team.as_ref().map(|team| self.teams.find(team));
        let end = server.running().and_then(|running| running.end);
        let shape = if server.waits() {
            self.waiting.push(at);
            self.shapes.join(&server.ask, &self.places)
        } else {
            u32::MAX
        };
        let entry = Entry { need: Held::of(&server.ask), user, team, shape, end, server };
        if let Some(running) = entry.server.running() {
            for (node, what) in &running.on {
                self.change(node, |place| place.put(at, what, end));
            }
            self.ends.extend(end.map(|end| (end, at)));
            if entry.server.preemptible && !running.leaving {
                self.preemptible.insert(at);
                for node in running.on.iter().filter_map(|(node, _)| self.node_named(node)).collect::<Vec<_>>() {
                    self.preemptible_on.entry(node).or_default().insert(at);
                }
            }
        }
        self.charge(at, &entry, half_life, now);
        if let Some(slot) = usize::try_from(at).ok().and_then(|at| self.entries.get_mut(at)) {
            *slot = Some(entry);
        }
    }

    /// Takes a server out of everything that counts it.
    fn unlink(&mut self, at: u32, half_life: i64, now: i64) {
        let slot = usize::try_from(at).ok().and_then(|at| self.entries.get_mut(at));
        let Some(entry) = slot.and_then(Option::take) else { return };
        if entry.server.waits() {
            // Its number stays in `waiting` until the next plan, which looks at all of them anyway.
            self.shapes.leave(entry.shape);
        }
        if let Some(running) = entry.server.running() {
            for (node, _) in &running.on {
                self.change(node, |place| place.remove(at));
            }
            if let Some(end) = entry.end {
                self.ends.remove(&(end, at));
            }
            if self.preemptible.remove(&at) {
                for node in running.on.iter().filter_map(|(node, _)| self.node_named(node)).collect::<Vec<_>>() {
                    if let Some(servers) = self.preemptible_on.get_mut(&node) {
                        servers.remove(&at);
                        if servers.is_empty() {
                            self.preemptible_on.remove(&node);
                        }
                    }
                }
            }
        }
        for purse in [self.users.get_mut(entry.user), entry.team.and_then(|team| self.teams.get_mut(team))] {
            let Some(purse) = purse else { continue };
            purse.servers.remove(&at);
            if purse.runs.remove(&at) {
                purse.used = purse.used_at(now, half_life);
                purse.release(&entry);
            }
        }
    }

    fn charge(&mut self, at: u32, entry: &Entry, half_life: i64, now: i64) {
        let runs = matches!(entry.server.state, State::Running(_));
        for purse in [self.users.get_mut(entry.user), entry.team.and_then(|team| self.teams.get_mut(team))] {
            let Some(purse) = purse else { continue };
            purse.servers.insert(at);
            if runs && purse.runs.insert(at) {
                purse.used = Used { at: now.max(purse.used.at), ..purse.used_at(now, half_life) };
                purse.hold(entry);
            }
        }
    }

    /// Servers that should be gone and are not are expected a little later. Nodes that should be back and are not are
    /// expected no more.
    pub(super) fn notice_overdue(&mut self, now: i64) {
        let is_overdue = |node: &u32| {
            self.place(*node).is_some_and(|place| matches!(place.node.service, Service::Back(at) if at <= now))
        };
        if self.promised.places().any(|(_, _, slot)| slot.nodes.iter().any(is_overdue)) {
            self.promised.capacity_shrank();
        }
        while let Some((end, at)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.pop_first();
            let Some(promised) = self.entry(at).and_then(|entry| entry.server.running()?.end) else { continue };
            // Counted from the promise, so that it does not depend on when somebody looked.
            let late = now.saturating_sub(promised) / OVERDUE + 1;
            let next = promised.saturating_add(late.saturating_mul(OVERDUE)).max(end.saturating_add(1));
            self.promised.somebody_stays_longer();
            self.expect(at, Some(next));
        }
    }

    /// A server is expected to be gone at another time than was known.
    pub(super) fn expect(&mut self, at: u32, end: Option<i64>) {
        let slot = usize::try_from(at).ok().and_then(|at| self.entries.get_mut(at));
        let Some(entry) = slot.and_then(Option::as_mut) else { return };
        if let Some(old) = std::mem::replace(&mut entry.end, end) {
            self.ends.remove(&(old, at));
        }
        self.ends.extend(end.map(|end| (end, at)));
        let nodes = entry.server.running().map(|running| running.on.clone()).unwrap_or_default();
        for (node, _) in nodes {
            self.change(&node, |place| place.end(at, end));
        }
    }
}

/// Whether what was promised to a server that waits is still what it asks for.
fn is_same_request(old: &Server, new: &Server) -> bool {
    (&old.ask, &old.owner, &old.team, &old.flavor) == (&new.ask, &new.owner, &new.team, &new.flavor)
        && (old.lifetime, old.not_before, old.barred) == (new.lifetime, new.not_before, new.barred)
}
