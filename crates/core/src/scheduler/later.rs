//! Room for a planned start: found, kept from everybody behind, and given back.

use std::collections::BTreeMap;

use super::pass::{Pass, Slot};
use super::policy::Backfill;
use super::preempt::Claim;

/// Nodes and quotas send each other on to later times until both agree. Each time is one at which something ends, so they
/// do; this only bounds what an absurd world may cost.
pub(super) const MOST_TRIES: usize = 10_000;

impl Pass<'_> {
    /// Whether a server gets a planned start: if it is near enough, or was promised one before others came in ahead. A
    /// booking had one while its time had not come, however few others have one, and goes on to have one.
    pub(super) fn is_planned(&self, at: u32, planned: usize) -> bool {
        let booking = self.world.entry(at).is_some_and(|entry| entry.server.is_booking());
        let promised = self.policy.backfill == Backfill::Planned && self.remembered(at).is_some();
        booking || planned < self.policy.planned() || promised
    }

    /// Keeps what a server waits for from everybody behind it, or says who may be asked to make room sooner.
    pub(super) fn wait_for_nodes(&mut self, at: u32, span: i64, planned: usize) -> Result<Option<i64>, Claim> {
        let is_planned = self.is_planned(at, planned);
        let found = if is_planned { self.find_later(at, self.now, span) } else { None };
        if self.policy.backfill == Backfill::None {
            if found.is_none() {
                self.block(at);
                self.reserve(at);
            }
            return Ok(found.map(|slot| self.keep(at, slot)));
        }
        if !is_planned {
            return Ok(None);
        }
        if self.is_near()
            && let Some(claim) = self.claim(at, span, found.as_ref().map(|slot| slot.start))
        {
            return Err(claim);
        }
        // Who is only here because of a promise that cannot be kept keeps no more than that.
        if found.is_none() && planned < self.policy.planned() {
            self.block(at);
            self.reserve(at);
        }
        Ok(found.map(|slot| self.keep(at, slot)))
    }

    /// Keeps the first room there is from some time on.
    pub(super) fn keep_later(&mut self, at: u32, from: i64, span: i64) -> Option<i64> {
        let slot = self.find_later(at, from, span)?;
        Some(self.keep(at, slot))
    }

    /// Keeps room from everybody who is looked at later.
    pub(super) fn keep(&mut self, at: u32, slot: Slot) -> i64 {
        let start = slot.start;
        let Some(entry) = self.world.entry(at) else { return start };
        for node in &slot.nodes {
            let Some(place) = self.world.place(*node) else { continue };
            let kept = self.kept.entry(*node).or_insert_with(|| place.outlook());
            kept.change(start, slot.until, |free| free.take(&entry.server.ask.each));
        }
        self.draft.plan(self.world, at, entry, &slot);
        self.planned.insert(at, slot);
        start
    }

    /// Gives back what was kept for a server, and says what it was.
    pub(super) fn unplan(&mut self, at: u32) -> Option<Slot> {
        let (slot, entry) = (self.planned.remove(&at)?, self.world.entry(at)?);
        for node in &slot.nodes {
            if let Some(kept) = self.kept.get_mut(node) {
                kept.change(slot.start, slot.until, |free| free.add(&entry.server.ask.each));
            }
        }
        self.draft.unplan(self.world, at, entry, &slot);
        Some(slot)
    }

    /// The first time at which both nodes and quotas allow it. What was promised stays as it is, unless it can be earlier:
    /// so nobody behind is moved without need.
    fn find_later(&mut self, at: u32, from: i64, span: i64) -> Option<Slot> {
        let booked = self.world.entry(at)?.server.is_booking();
        // Whoever could start now would; who is barred may in the next plan.
        let mut from = from.max(self.now.saturating_add(i64::from(!booked)));
        for _ in 0..MOST_TRIES {
            let entry = self.world.entry(at)?;
            let allowed = self.draft.gap(self.world, at, entry, from, span)?;
            let (start, nodes) = self.nodes_later(entry, allowed, span)?;
            let entry = self.world.entry(at)?;
            if self.draft.gap(self.world, at, entry, start, span)? == start {
                let nodes = self.promised_at(at, start, span).unwrap_or(nodes);
                return Some(Slot { start, until: start.saturating_add(span), nodes });
            }
            from = start;
        }
        None
    }

    /// Keeps the quota of a server for which nodes are kept: what would they be kept for if others used it up?
    fn reserve(&mut self, at: u32) {
        let Some(entry) =
            self.world.entry(at).filter(|_| self.blocking.get(&at).is_some_and(|nodes| !nodes.is_empty()))
        else {
            return;
        };
        let always = Slot { start: self.now, until: i64::MAX, nodes: Vec::new() };
        self.draft.plan(self.world, at, entry, &always);
    }

    /// Keeps all nodes a server waits for, of which nobody knows when they are free.
    pub(super) fn block(&mut self, at: u32) {
        let Some(entry) = self.world.entry(at) else { return };
        let Some(shape) = self.world.shape_of(entry) else { return };
        let needed = entry.server.ask.nodes();
        let hope = shape.spots().filter(|(node, spot)| spot.hope && !self.is_refused(entry, *node));
        let mut groups: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for (node, spot) in hope {
            if let Some(group) = &spot.group {
                groups.entry(group.clone()).or_default().push(node);
            }
        }
        let kept: Vec<u32> = groups.into_values().filter(|nodes| nodes.len() >= needed).flatten().collect();
        self.blocked.extend(&kept);
        self.blocking.insert(at, kept);
    }
}
