//! By which right one server started before another one that had asked earlier.

use super::order::{Right, Shares, Turn};
use super::plan::Stop;
use super::{Policy, World};

impl World {
    /// The right by which `late` starts now while `early`, which asked before it and could use the same nodes, waits for
    /// the given reason. Nothing if there is nothing to overtake.
    pub fn right(&self, late: &str, early: &str, stop: &Stop, policy: &Policy, now: i64) -> Option<Right> {
        if *stop == Stop::Never || !self.get(early)?.is_due(now) {
            return None;
        }
        let (late, early) = (self.turn(late, policy, now)?, self.turn(early, policy, now)?);
        Some(late.right_before(&early).unwrap_or(if matches!(stop, Stop::Quota(_)) {
            Right::Quota
        } else {
            Right::Backfill
        }))
    }

    fn turn(&self, id: &str, policy: &Policy, now: i64) -> Option<Turn<'_>> {
        let entry = self.entry(self.find(id)?)?;
        let share = |purse: &super::purse::Purse| purse.share(now, policy.half_life, policy.share_step);
        let user = self.users.get(entry.user).map_or(0, share);
        let team = entry.team.map_or(user, |team| self.teams.get(team).map_or(0, share));
        Some(Turn::of(&entry.server, Shares { team, user }, policy, now))
    }

    /// Whether two servers that wait could ever use the same node.
    pub fn compete(&self, one: &str, two: &str) -> bool {
        let shape = |id: &str| self.find(id).and_then(|at| self.entry(at)).and_then(|entry| self.shape_of(entry));
        let (Some(one), Some(two)) = (shape(one), shape(two)) else { return false };
        std::ptr::eq(one, two)
            || one.spots().any(|(node, spot)| spot.could && two.spot(node).is_some_and(|other| other.could))
    }
}
