//! Adding, updating and removing servers, with all indices and accounts that include them.

use super::arena::{EndOfRun, NodeIdx, ServerIdx};
use super::{ClusterState, Entry, ResourceUsage};
use crate::scheduler::event::{DecayedUsage, NodeState, Server, ServerState};

/// A server that is overdue is expected to end this much later, repeatedly.
const OVERDUE_EXTENSION_SECONDS: i64 = 60;

impl ClusterState {
    pub(super) fn set_server(&mut self, server: Server, usage_half_life: i64, now: i64) {
        let existing = self.find_server(&server.id);
        if let Some((index, old)) = existing.and_then(|index| Some((index, self.entry(index)?))) {
            if old.server == server {
                return;
            }
            let is_extended = self.is_extended(index, &old.server, &server);
            let is_rejected = server.rejected_by.keys().any(|node| !old.server.rejected_by.contains_key(node));
            let is_same_request = is_same_request(&old.server, &server);
            if is_extended {
                self.reservations.mark_run_extended();
            }
            if is_rejected {
                self.reservations.mark_capacity_reduced();
            }
            // A reservation holds only for the request it was made for.
            if !is_same_request {
                self.reservations.forget(index);
            }
            self.remove(index, usage_half_life, now);
        }
        let index = existing.unwrap_or_else(|| {
            let index = self.entries.allocate();
            self.entries_by_id.insert(server.id.clone(), index);
            index
        });
        self.insert(index, server, usage_half_life, now);
    }

    /// Reports whether a server holds its nodes for longer than was known, or holds nodes that were not assigned to it.
    fn is_extended(&self, index: ServerIdx, old: &Server, new: &Server) -> bool {
        let Some(new) = new.running() else { return false };
        let known = match old.running() {
            Some(old) => Some(old.end.unwrap_or(i64::MAX)),
            None => self.reservations.assigned_until(index),
        };
        known.is_none_or(|known| new.end.unwrap_or(i64::MAX) > known)
    }

    pub(in crate::scheduler) fn set_booking_confirmed(&mut self, index: ServerIdx, confirmed: bool) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.server.booking_confirmed = confirmed;
        }
    }

    pub(super) fn remove_server(&mut self, id: &str, usage_half_life: i64, now: i64) {
        let Some(index) = self.entries_by_id.remove(id) else { return };
        self.remove(index, usage_half_life, now);
        self.reservations.forget(index);
        self.entries.release(index);
    }

    /// Inserts a server into all indices.
    fn insert(&mut self, index: ServerIdx, server: Server, usage_half_life: i64, now: i64) {
        let user = self.users.find_or_create(&server.owner);
        let team = server.team.as_ref().map(|team| self.teams.find_or_create(team));
        let expected_end = server.running().and_then(|running| running.end);
        let class = server.is_pending().then(|| {
            self.pending.push(index);
            self.classes.acquire(&server.request, self.nodes.iter())
        });
        let entry = Entry { usage: ResourceUsage::new(&server.request), user, team, class, expected_end, server };
        if let Some(running) = entry.server.running() {
            for (node, amounts) in &running.nodes {
                self.update_node_by_name(node, |info| info.add_server(index, amounts, expected_end));
            }
            self.expected_ends.extend(expected_end.map(|time| EndOfRun { time, server: index }));
            if entry.server.preemptible && !running.terminating {
                self.preemptible.insert(index);
                for node in self.nodes_of(&entry) {
                    self.preemptible_by_node.entry(node).or_default().insert(index);
                }
            }
        }
        self.add_to_accounts(index, &entry, usage_half_life, now);
        self.entries.insert(index, entry);
    }

    /// Removes a server from all indices.
    fn remove(&mut self, index: ServerIdx, usage_half_life: i64, now: i64) {
        let Some(entry) = self.entries.take(index) else { return };
        // `pending` still contains the index; the next cycle reads all of it anyway.
        if let Some(class) = entry.class {
            self.classes.release(class);
        }
        if let Some(running) = entry.server.running() {
            for (node, _) in &running.nodes {
                self.update_node_by_name(node, |info| info.remove_server(index));
            }
            if let Some(time) = entry.expected_end {
                self.expected_ends.remove(&EndOfRun { time, server: index });
            }
            if self.preemptible.remove(&index) {
                for node in self.nodes_of(&entry) {
                    if let Some(servers) = self.preemptible_by_node.get_mut(&node) {
                        servers.remove(&index);
                        if servers.is_empty() {
                            self.preemptible_by_node.remove(&node);
                        }
                    }
                }
            }
        }
        self.remove_from_accounts(index, &entry, usage_half_life, now);
    }

    fn nodes_of(&self, entry: &Entry) -> Vec<NodeIdx> {
        let nodes = entry.server.running().into_iter().flat_map(|running| &running.nodes);
        nodes.filter_map(|(node, _)| self.find_node(node)).collect()
    }

    fn add_to_accounts(&mut self, index: ServerIdx, entry: &Entry, usage_half_life: i64, now: i64) {
        let is_running = matches!(entry.server.state, ServerState::Running(_));
        for account in [self.users.get_mut(entry.user), entry.team.and_then(|team| self.teams.get_mut(team))] {
            let Some(account) = account else { continue };
            account.servers.insert(index);
            if is_running && account.running.insert(index) {
                let usage = account.usage_at(now, usage_half_life);
                account.decayed_usage = DecayedUsage { as_of: now.max(account.decayed_usage.as_of), ..usage };
                account.add_usage(entry);
            }
        }
    }

    fn remove_from_accounts(&mut self, index: ServerIdx, entry: &Entry, usage_half_life: i64, now: i64) {
        for account in [self.users.get_mut(entry.user), entry.team.and_then(|team| self.teams.get_mut(team))] {
            let Some(account) = account else { continue };
            account.servers.remove(&index);
            if account.running.remove(&index) {
                account.decayed_usage = account.usage_at(now, usage_half_life);
                account.remove_usage(entry);
            }
        }
    }

    /// Moves the expected end of overdue servers to a later time. Reservations on nodes that did not come back in time are
    /// marked as affected by reduced capacity.
    pub(in crate::scheduler) fn extend_overdue(&mut self, now: i64) {
        let is_overdue = |node: &NodeIdx| {
            let state = self.node(*node).map(|info| info.node.state);
            matches!(state, Some(NodeState::UnavailableUntil(time)) if time <= now)
        };
        if self.reservations.iter().any(|(_, _, reservation)| reservation.nodes.iter().any(is_overdue)) {
            self.reservations.mark_capacity_reduced();
        }
        while let Some(expected) = self.expected_ends.first().copied().filter(|end| end.time <= now) {
            self.expected_ends.pop_first();
            let running = self.entry(expected.server).and_then(|entry| entry.server.running());
            let Some(end) = running.and_then(|running| running.end) else { continue };
            // Counted from the declared end, so that the result does not depend on when cycles run.
            let extensions = now.saturating_sub(end) / OVERDUE_EXTENSION_SECONDS + 1;
            let next = end.saturating_add(extensions.saturating_mul(OVERDUE_EXTENSION_SECONDS));
            self.reservations.mark_run_extended();
            self.set_expected_end(expected.server, Some(next.max(expected.time.saturating_add(1))));
        }
    }

    pub(in crate::scheduler) fn set_expected_end(&mut self, index: ServerIdx, end: Option<i64>) {
        let Some(entry) = self.entries.get_mut(index) else { return };
        if let Some(old) = std::mem::replace(&mut entry.expected_end, end) {
            self.expected_ends.remove(&EndOfRun { time: old, server: index });
        }
        self.expected_ends.extend(end.map(|time| EndOfRun { time, server: index }));
        let nodes = entry.server.running().map(|running| running.nodes.clone()).unwrap_or_default();
        for (node, _) in nodes {
            self.update_node_by_name(&node, |info| info.set_end(index, end));
        }
    }
}

/// Reports whether a reservation for the old server is valid for the new one.
fn is_same_request(old: &Server, new: &Server) -> bool {
    (&old.request, &old.owner, &old.team, &old.flavor) == (&new.request, &new.owner, &new.team, &new.flavor)
        && (old.max_hold_time, old.not_before, old.excluded_this_cycle)
            == (new.max_hold_time, new.not_before, new.excluded_this_cycle)
}
