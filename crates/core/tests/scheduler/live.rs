//! One step of a cluster's life with everything that is known to be checked, and what to say when something is wrong.

use odc_core::scheduler::{Cause, Plan, Server, State, Stop};

use super::check::ensure;
use super::harness::{GPU, Harness};

/// What is looked at besides what must hold at every instant. It costs more than the plan itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Also {
    /// That a second plan changes nothing.
    pub second: bool,
    /// That nobody who started first delays somebody.
    pub undelayed: bool,
}

impl Harness {
    /// Plans, carries it out, and says what is wrong with it.
    pub fn live(&mut self, also: Also) -> Result<Plan, String> {
        let before = also.undelayed.then(|| self.world.clone());
        let plan = self.plan();
        self.check_plan(&plan).map_err(|wrong| format!("{wrong} in {plan:#?}"))?;
        if let Some(before) = before {
            self.check_undelayed(&before, &plan)?;
        }
        self.try_carry_out(&plan).map_err(|wrong| format!("{wrong} in {plan:#?}"))?;
        if also.second {
            let second = self.plan();
            let expect = Plan { waits: plan.waits.clone(), again: second.again, ..Plan::default() };
            if second != expect {
                return Err(format!("after {plan:#?} comes {second:#?}"));
            }
        }
        Ok(plan)
    }

    fn check_plan(&self, plan: &Plan) -> Result<(), String> {
        if let Some(moved) = plan.moved.iter().find(|moved| moved.why == Cause::Unexplained) {
            return Err(format!("{moved:?}"));
        }
        for wait in plan.waits.iter().filter(|wait| wait.stop == Stop::Booked(true)) {
            ensure(self.servers[&wait.id].booked || plan.booked.contains(&wait.id), || {
                format!("{wait:?} is told of a promise that is not made")
            })?;
        }
        self.check_order(plan)?;
        self.check_rights(plan)
    }

    /// The same cluster with as few servers as still go wrong. Nothing if it does not go wrong from its facts alone.
    pub fn fewest(&self) -> Option<Self> {
        let goes_wrong = |harness: &Self| {
            let anew = Self { world: harness.told_anew(), ..harness.clone() };
            anew.clone().live(Also { second: true, undelayed: true }).is_err().then_some(anew)
        };
        let mut few = goes_wrong(self)?;
        for id in self.servers.keys() {
            let mut fewer = few.clone();
            fewer.remove(id);
            few = goes_wrong(&fewer).unwrap_or(few);
        }
        Some(few)
    }

    /// What there is and what was promised, a line each.
    pub fn facts(&self) -> String {
        let nodes = self.nodes.values().map(|node| {
            let service = node.service;
            format!("{} has {:?}, others use {:?}, {service:?}", node.name, node.capacity, node.others)
        });
        let accounts = self.teams.values().chain(self.users.values()).map(|account| format!("{account:?}"));
        let servers = self.servers.values().map(|server| {
            let Server { id, owner, team, flavor, ask, priority, lifetime, queued, not_before, state, .. } = server;
            let each = (ask.each.device(GPU), ask.each.cpu, ask.each.memory);
            let asks = format!("{each:?} x{} {:?}", ask.nodes, ask.topology);
            let whose = format!("{owner} of {team:?} {flavor} {priority:?} preemptible {}", server.preemptible);
            let state = match state {
                State::Running(run) => {
                    let nodes: Vec<&String> = run.on.iter().map(|(node, _)| node).collect();
                    format!("on {nodes:?} {}..{:?} leaving {}", run.since, run.end, run.leaving)
                }
                other => format!("{other:?} since {queued} not before {not_before:?} booked {}", server.booked),
            };
            format!("{id}: {asks} for {lifetime:?}, {whose}, {state} unfit {:?}", server.unfit.keys())
        });
        let promises = self.world.promises().map(|promise| format!("{promise:?}"));
        let lines = nodes.chain(accounts).chain(servers).chain(promises);
        format!("now {}, {:?}\n{}", self.now, self.policy, lines.collect::<Vec<_>>().join("\n"))
    }
}
