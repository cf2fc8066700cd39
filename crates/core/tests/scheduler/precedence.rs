//! Queue order and precedence, checked independently of the scheduler.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{
    AccountSpec, ClusterState, DecayedUsage, Event, PendingReason, Plan, Precedence, Server, ServerState,
};

use super::harness::Harness;
use super::invariants::ensure;

/// The order before arrival. The smallest is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    unconfirmed: bool,
    /// Priority with aging, negated.
    priority: i64,
    team: i64,
    user: i64,
}

fn arrival(server: &Server) -> (i64, &str, &str) {
    (server.queued_at, &server.name, &server.id)
}

impl Harness {
    fn rank(&self, server: &Server) -> Rank {
        let policy = &self.policy;
        let share = |usage: Option<DecayedUsage>, account: Option<&AccountSpec>| {
            let weight = account.map_or(1, |account| i64::from(account.weight.max(1)));
            usage.map_or(0, |usage| usage.amount / weight / policy.fair_share_resolution.saturating_mul(1_000))
        };
        let usage = self.state.user_usage(&server.owner, policy.usage_half_life, self.now);
        let user = share(usage, self.users.get(&server.owner));
        let team = server.team.as_ref().map_or(user, |team| {
            share(self.state.team_usage(team, policy.usage_half_life, self.now), self.teams.get(team))
        });
        let level = match server.priority {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        };
        let priority = -level - (self.now - server.queued_at).max(0) / policy.priority_aging_interval;
        Rank { unconfirmed: !server.booking_confirmed, priority, team, user }
    }

    /// Checks that pending servers are listed in queue order.
    pub fn check_order(&self, plan: &Plan) -> Result<(), String> {
        let mut last = None;
        for pending in &plan.pending {
            let server = &self.servers[&pending.id];
            let confirmed = server.booking_confirmed || plan.confirmed_bookings.contains(&pending.id);
            let order = (Rank { unconfirmed: !confirmed, ..self.rank(server) }, arrival(server));
            ensure(last.is_none_or(|last| last < order), || format!("{order:?} is listed after {last:?}"))?;
            last = Some(order);
        }
        Ok(())
    }

    /// Checks the precedence of each server that starts before one that was queued earlier for the same nodes.
    pub fn check_precedence(&self, plan: &Plan) -> Result<(), String> {
        for assignment in &plan.assignments {
            let late = &self.servers[&assignment.id];
            for pending in &plan.pending {
                let early = &self.servers[&pending.id];
                let overtakes = arrival(early) < arrival(late) && self.state.compete_for_nodes(&late.id, &early.id);
                // A booking that is not due does not compete yet.
                if !overtakes || pending.position.is_none() || pending.reason == PendingReason::Unsatisfiable {
                    continue;
                }
                let precedence = self.state.precedence(&late.id, &early.id, &pending.reason, &self.policy, self.now);
                let Some(precedence) = precedence else {
                    return Err(format!("{assignment:?} overtakes {pending:?} without precedence"));
                };
                let (one, other) = (self.rank(late), self.rank(early));
                let is_true = match precedence {
                    Precedence::Priority => one.unconfirmed == other.unconfirmed && one.priority < other.priority,
                    Precedence::FairShare => {
                        let is_same = (one.unconfirmed, one.priority) == (other.unconfirmed, other.priority);
                        is_same && (one.team, one.user) < (other.team, other.user)
                    }
                    Precedence::Quota => other <= one && matches!(pending.reason, PendingReason::Quota(_)),
                    Precedence::Backfill if one.unconfirmed => other <= one && assignment.backfilled,
                    // A confirmed booking starts at its start time.
                    Precedence::Backfill => assignment.backfilled || other.unconfirmed,
                };
                ensure(is_true, || {
                    format!("{assignment:?} ({one:?}) overtakes {pending:?} ({other:?}) by {precedence:?}")
                })?;
            }
        }
        Ok(())
    }

    /// Checks that no reservation would be earlier without a backfilled server. `before` is the state before the plan. Plans
    /// with preemptions, bookings or borrowing are skipped, because they would differ in more than this.
    pub fn check_backfill(&self, before: &ClusterState, plan: &Plan) -> Result<(), String> {
        let is_simple = |plan: &Plan| {
            plan.preemptions.is_empty()
                && plan.confirmed_bookings.is_empty()
                && plan.assignments.iter().all(|assignment| !assignment.borrowed)
        };
        for assignment in plan.assignments.iter().filter(|assignment| assignment.backfilled) {
            let mut state = before.clone();
            let late = &self.servers[&assignment.id];
            let inactive = Server { state: ServerState::Inactive, ..late.clone() };
            state.apply(Event::Server(Box::new(inactive)), self.policy.usage_half_life, self.now);
            let other = state.plan_dry_run(&self.policy, self.now);
            if !is_simple(plan) || !is_simple(&other) {
                continue;
            }
            let assigned = other.assignments.iter().map(|assignment| (&assignment.id, Some(self.now)));
            let starts: BTreeMap<_, _> =
                assigned.chain(other.pending.iter().map(|pending| (&pending.id, pending.planned_start))).collect();
            let order = (self.rank(late), arrival(late));
            for pending in &plan.pending {
                let early = &self.servers[&pending.id];
                let is_ahead = (self.rank(early), arrival(early)) < order;
                let (Some(with), Some(without)) = (pending.planned_start, starts[&pending.id]) else { continue };
                ensure(!is_ahead || with <= without, || {
                    format!("{assignment:?} delays {pending:?} from {without}: {plan:#?}, without it {other:#?}")
                })?;
            }
        }
        Ok(())
    }
}
