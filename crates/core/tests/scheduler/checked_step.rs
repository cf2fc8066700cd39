//! One step of a simulated cluster with all checks, and a description of the cluster for failures.

use odc_core::scheduler::{DelayCause, PendingReason, Plan, Server, ServerState};

use super::harness::{GPU, Harness};
use super::invariants::ensure;

/// Checks that cost more than the plan itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtraChecks {
    /// A second plan changes nothing.
    pub second_plan: bool,
    /// Backfilled servers delay no other.
    pub backfill: bool,
}

impl Harness {
    /// Plans, checks and applies the plan.
    pub fn step(&mut self, checks: ExtraChecks) -> Result<Plan, String> {
        let before = checks.backfill.then(|| self.state.clone());
        let plan = self.plan();
        self.check_plan(&plan).map_err(|error| format!("{error} in {plan:#?}"))?;
        if let Some(before) = before {
            self.check_backfill(&before, &plan)?;
        }
        self.try_apply_plan(&plan).map_err(|error| format!("{error} in {plan:#?}"))?;
        if checks.second_plan {
            let second = self.plan();
            let expect = Plan { pending: plan.pending.clone(), requeue_at: second.requeue_at, ..Plan::default() };
            if second != expect {
                return Err(format!("{plan:#?} is followed by {second:#?}"));
            }
        }
        Ok(plan)
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), String> {
        if let Some(delayed) = plan.delayed.iter().find(|delayed| delayed.cause == DelayCause::Unknown) {
            return Err(format!("{delayed:?}"));
        }
        for pending in
            plan.pending.iter().filter(|pending| pending.reason == PendingReason::BeginTime { confirmed: true })
        {
            ensure(
                self.servers[&pending.id].booking_confirmed || plan.confirmed_bookings.contains(&pending.id),
                || format!("{pending:?} is not confirmed by the plan"),
            )?;
        }
        self.check_order(plan)?;
        self.check_precedence(plan)
    }

    /// Returns the cluster with as few servers as needed to fail. `None` if a rebuilt state does not fail.
    pub fn shrink(&self) -> Option<Self> {
        let fails = |harness: &Self| {
            let rebuilt = Self { state: harness.rebuilt_state(), ..harness.clone() };
            rebuilt.clone().step(ExtraChecks { second_plan: true, backfill: true }).is_err().then_some(rebuilt)
        };
        let mut shrunk = fails(self)?;
        for id in self.servers.keys() {
            let mut smaller = shrunk.clone();
            smaller.remove(id);
            shrunk = fails(&smaller).unwrap_or(shrunk);
        }
        Some(shrunk)
    }

    /// Describes all objects and reservations, one line each.
    pub fn describe(&self) -> String {
        let nodes = self.nodes.values().map(|node| {
            let (capacity, foreign) = (&node.capacity, &node.foreign_usage);
            format!("{}: capacity {capacity:?}, foreign usage {foreign:?}, {:?}", node.name, node.state)
        });
        let accounts = self.teams.values().chain(self.users.values()).map(|account| format!("{account:?}"));
        let servers = self.servers.values().map(|server| {
            let Server {
                id, owner, team, flavor, request, priority, max_hold_time, queued_at, not_before, state, ..
            } = server;
            let per_node = &request.per_node;
            let per_node = (per_node.device(GPU), per_node.cpu, per_node.memory);
            let request = format!("{per_node:?} x{} {:?}", request.nodes, request.topology);
            let account = format!("{owner} of {team:?} {flavor} {priority:?} preemptible {}", server.preemptible);
            let state = match state {
                ServerState::Running(run) => {
                    let nodes: Vec<&String> = run.nodes.iter().map(|(node, _)| node).collect();
                    format!("on {nodes:?} {}..{:?} terminating {}", run.started_at, run.end, run.terminating)
                }
                other => format!(
                    "{other:?} since {queued_at} not before {not_before:?} confirmed {}",
                    server.booking_confirmed
                ),
            };
            format!(
                "{id}: {request} for {max_hold_time:?}, {account}, {state} rejected by {:?}",
                server.rejected_by.keys()
            )
        });
        let reservations = self.state.reservations().map(|reservation| format!("{reservation:?}"));
        let lines = nodes.chain(accounts).chain(servers).chain(reservations);
        format!("now {}, {:?}\n{}", self.now, self.policy, lines.collect::<Vec<_>>().join("\n"))
    }
}
