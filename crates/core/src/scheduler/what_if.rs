//! The effect of hypothetical changes on planned starts.

use std::collections::BTreeMap;

use super::event::Event;
use super::{ClusterState, Policy};

/// A server whose planned start changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartChange {
    pub id: String,
    /// The planned start; now for servers that start at once.
    pub before: Option<i64>,
    pub after: Option<i64>,
}

impl ClusterState {
    /// Returns how planned starts would change with other quotas or nodes. The state is not changed.
    pub fn compare_starts(&self, changes: &[Event], policy: &Policy, now: i64) -> Vec<StartChange> {
        let starts = |mut state: Self| {
            let plan = state.plan_dry_run(policy, now);
            let assigned = plan.assignments.into_iter().map(|assignment| (assignment.id, Some(now)));
            let pending = plan.pending.into_iter().map(|pending| (pending.id, pending.planned_start));
            assigned.chain(pending).collect::<Vec<_>>()
        };
        let mut hypothetical = self.clone();
        for change in changes {
            hypothetical.apply(change.clone(), policy.usage_half_life, now);
        }
        let after: BTreeMap<_, _> = starts(hypothetical).into_iter().collect();
        let changes = starts(self.clone()).into_iter().map(|(id, before)| {
            let after = after.get(&id).copied().flatten();
            StartChange { id, before, after }
        });
        changes.filter(|change| change.before != change.after).collect()
    }
}
