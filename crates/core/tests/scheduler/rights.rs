//! Whose turn it is, and by which right somebody comes before somebody who asked earlier: compared with facts that are
//! counted here.

use std::collections::BTreeMap;

use odc_api::v1alpha1::Priority;
use odc_core::scheduler::{Account, Event, Plan, Right, Server, State, Stop, Used, World};

use super::check::ensure;
use super::harness::Harness;

/// What decides whose turn it is, before arrival does. The smaller one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Standing {
    unbooked: bool,
    /// The priority and what waiting adds to it, negative so that more comes first.
    below: i64,
    team: i64,
    user: i64,
}

fn arrival(server: &Server) -> (i64, &str, &str) {
    (server.queued, &server.name, &server.id)
}

impl Harness {
    fn standing(&self, server: &Server) -> Standing {
        let policy = &self.policy;
        let share = |used: Option<Used>, account: Option<&Account>| {
            let weight = account.map_or(1, |account| i64::from(account.weight.max(1)));
            used.map_or(0, |used| used.amount / weight / policy.share_step.saturating_mul(1_000))
        };
        let alone = self.world.used_by_user(&server.owner, policy.half_life, self.now);
        let user = share(alone, self.users.get(&server.owner));
        let team = server.team.as_ref().map_or(user, |team| {
            share(self.world.used_by_team(team, policy.half_life, self.now), self.teams.get(team))
        });
        let rank = match server.priority {
            Priority::Low => 0,
            Priority::Normal => 1,
            Priority::High => 2,
        };
        let below = -rank - (self.now - server.queued).max(0) / policy.ageing;
        Standing { unbooked: !server.booked, below, team, user }
    }

    /// Everybody who waits is told of in the one order there is.
    pub fn check_order(&self, plan: &Plan) -> Result<(), String> {
        let mut last = None;
        for wait in &plan.waits {
            let server = &self.servers[&wait.id];
            let booked = server.booked || plan.booked.contains(&wait.id);
            let turn = (Standing { unbooked: !booked, ..self.standing(server) }, arrival(server));
            ensure(last.is_none_or(|last| last < turn), || format!("{turn:?} is told of behind {last:?}"))?;
            last = Some(turn);
        }
        Ok(())
    }

    /// Whoever starts before somebody who asked earlier for the same nodes has the right that is named, and equals have
    /// none but that they delay nobody, or that a quota holds up the other one.
    pub fn check_rights(&self, plan: &Plan) -> Result<(), String> {
        for grant in &plan.grants {
            let late = &self.servers[&grant.id];
            for wait in &plan.waits {
                let early = &self.servers[&wait.id];
                let overtakes = arrival(early) < arrival(late) && self.world.compete(&late.id, &early.id);
                // Whoever has no place does not compete yet.
                if !overtakes || wait.position.is_none() || wait.stop == Stop::Never {
                    continue;
                }
                let right = self.world.right(&late.id, &early.id, &wait.stop, &self.policy, self.now);
                let Some(right) = right else { return Err(format!("{grant:?} overtakes {wait:?} by no right")) };
                let (one, two) = (self.standing(late), self.standing(early));
                let holds = if right == Right::Priority {
                    one.unbooked == two.unbooked && one.below < two.below
                } else if right == Right::FairShare {
                    let same = (one.unbooked, one.below) == (two.unbooked, two.below);
                    same && (one.team, one.user) < (two.team, two.user)
                } else if right == Right::Quota {
                    two <= one && matches!(wait.stop, Stop::Quota(_))
                } else if one.unbooked {
                    // It has no better standing, and was known to start before others.
                    two <= one && grant.backfilled
                } else {
                    // A booking comes when it was promised to.
                    grant.backfilled || two.unbooked
                };
                ensure(holds, || format!("{grant:?} ({one:?}) overtakes {wait:?} ({two:?}) by {right:?}"))?;
            }
        }
        Ok(())
    }

    /// Nobody with a planned start would start earlier if somebody who was started behind it had not been. `before` is the
    /// world the plan was made from. Where others leave, lend or book, more than this one thing would be another.
    pub fn check_undelayed(&self, before: &World, plan: &Plan) -> Result<(), String> {
        let simple = |plan: &Plan| {
            plan.preemptions.is_empty() && plan.booked.is_empty() && plan.grants.iter().all(|grant| !grant.borrowed)
        };
        for grant in plan.grants.iter().filter(|grant| grant.backfilled) {
            let mut without = before.clone();
            let late = &self.servers[&grant.id];
            let rests = Server { state: State::Resting, ..late.clone() };
            without.apply(Event::Server(Box::new(rests)), self.policy.half_life, self.now);
            let other = without.sketch(&self.policy, self.now);
            if !simple(plan) || !simple(&other) {
                continue;
            }
            let granted = other.grants.iter().map(|grant| (&grant.id, Some(self.now)));
            let starts: BTreeMap<_, _> = granted.chain(other.waits.iter().map(|wait| (&wait.id, wait.start))).collect();
            let turn = (self.standing(late), arrival(late));
            for wait in &plan.waits {
                let early = &self.servers[&wait.id];
                let ahead = (self.standing(early), arrival(early)) < turn;
                let (Some(with), Some(alone)) = (wait.start, starts[&wait.id]) else { continue };
                ensure(!ahead || with <= alone, || {
                    format!(
                        "{grant:?} delays {wait:?}, which could start at {alone}: {plan:#?} and without it {other:#?}"
                    )
                })?;
            }
        }
        Ok(())
    }
}
