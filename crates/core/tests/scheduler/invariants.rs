//! Invariants of each plan, checked independently of the scheduler: node capacity, quotas with borrowing, and reasons of
//! preemptions.

use std::collections::{BTreeMap, BTreeSet};

use odc_core::resources::Resources;
use odc_core::scheduler::{AccountSpec, Assignment, Node, NodeState, Plan, Preemption, PreemptionReason, Server};

use super::harness::{Harness, running};

#[derive(Debug, Default)]
struct Usage {
    servers: usize,
    devices: i64,
    cpu: i64,
    memory: i64,
    flavors: BTreeMap<String, i64>,
}

/// Resources that can be borrowed. Devices are also counted by flavor.
const RESOURCES: [&str; 4] = ["devices", "flavor", "cpu", "memory"];

impl Usage {
    fn add(&mut self, server: &Server) {
        let nodes = i64::from(server.request.nodes.max(1));
        self.servers += 1;
        self.devices += server.request.devices();
        self.cpu += server.request.per_node.cpu * nodes;
        self.memory += server.request.per_node.memory * nodes;
        *self.flavors.entry(server.flavor.clone()).or_default() += server.request.devices();
    }

    fn new(server: &Server) -> Self {
        let mut usage = Self::default();
        usage.add(server);
        usage
    }

    /// Returns an amount in the unit of quotas.
    fn amount(&self, resource: &str, flavor: &str) -> i128 {
        match resource {
            "devices" => self.devices.into(),
            "flavor" => self.flavors.get(flavor).copied().unwrap_or_default().into(),
            "cpu" => i128::from(self.cpu) * 1_000_000,
            _ => i128::from(self.memory) * 1_000_000_000,
        }
    }
}

fn limit(account: &AccountSpec, resource: &str, flavor: &str) -> Option<i128> {
    let limits = &account.limits;
    match resource {
        "devices" => limits.devices.map(i128::from),
        "flavor" => limits.flavors.get(flavor).copied().map(i128::from),
        "cpu" => limits.cpu,
        _ => limits.memory,
    }
}

/// Returns an error with a message if a condition is false.
pub fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(message()) }
}

/// Returns all amounts by name.
fn listed(amounts: &Resources) -> impl Iterator<Item = (String, i64)> {
    let Resources { cpu, memory, storage, pods, .. } = amounts;
    let plain = [("cpu", *cpu), ("memory", *memory), ("storage", *storage), ("pods", *pods)];
    let plain = plain.map(|(name, amount)| (name.to_owned(), amount));
    plain.into_iter().chain(amounts.devices().map(|(name, amount)| (name.to_owned(), amount)).collect::<Vec<_>>())
}

fn amount(amounts: &Resources, name: &str) -> i64 {
    listed(amounts).find(|(known, _)| known == name).map_or(0, |(_, amount)| amount)
}

impl Harness {
    /// Checks an assignment before it is applied.
    pub fn check_assignment(&self, assignment: &Assignment) -> Result<(), String> {
        let server = &self.servers[&assignment.id];
        let nodes: BTreeSet<&String> = assignment.nodes.iter().collect();
        ensure(running(server).is_none(), || format!("{assignment:?} is already running"))?;
        ensure(nodes.len() == server.request.nodes() && assignment.nodes.len() == nodes.len(), || {
            format!("{assignment:?} must have {} nodes", server.request.nodes())
        })?;
        if let Some(label) = server.request.topology.as_ref().filter(|_| server.request.nodes > 1) {
            let zones: BTreeSet<_> = nodes.iter().map(|node| self.nodes[*node].labels.get(label)).collect();
            ensure(zones.len() == 1 && !zones.contains(&None), || format!("{assignment:?} is in {zones:?}"))?;
        }
        ensure(server.not_before.is_none_or(|at| at <= self.now), || {
            format!("{assignment:?} is before its start time")
        })?;
        for name in nodes {
            let node = &self.nodes[name];
            ensure(node.state == NodeState::Schedulable, || format!("{assignment:?} is on an unschedulable node"))?;
            ensure(!server.rejected_by.contains_key(name), || format!("{assignment:?} is on a node that rejected it"))?;
            self.check_capacity(node, &server.request.per_node)?;
        }
        self.check_quotas(assignment, server)
    }

    /// Checks that a request fits on a node together with running servers and foreign pods.
    fn check_capacity(&self, node: &Node, per_node: &Resources) -> Result<(), String> {
        let nodes = self.servers.values().filter_map(running).flat_map(|running| &running.nodes);
        let used: Vec<&Resources> = nodes.filter(|(name, _)| *name == node.name).map(|(_, amounts)| amounts).collect();
        for (name, requested) in listed(per_node).filter(|(_, requested)| *requested > 0) {
            let used: i64 = used.iter().map(|amounts| amount(amounts, &name)).sum();
            let (foreign, capacity) = (amount(&node.foreign_usage, &name), amount(&node.capacity, &name));
            ensure(used + foreign + requested <= capacity, || {
                format!(
                    "{}: requested {requested} {name}, used {used}, foreign {foreign}, capacity {capacity}",
                    node.name
                )
            })?;
        }
        Ok(())
    }

    fn usage(&self, belongs: impl Fn(&Server) -> bool) -> Usage {
        let mut usage = Usage::default();
        for server in self.servers.values().filter(|server| belongs(server) && running(server).is_some()) {
            usage.add(server);
        }
        usage
    }

    fn check_quotas(&self, assignment: &Assignment, server: &Server) -> Result<(), String> {
        if let Some(user) = self.users.get(&server.owner) {
            let own = |other: &Server| other.owner == server.owner;
            self.check_limits(assignment, server, user, own, &RESOURCES)?;
        }
        let Some(team) = server.team.as_ref().and_then(|team| self.teams.get(team)) else { return Ok(()) };
        let own = |other: &Server| other.team == server.team;
        let resources: &[&str] = if assignment.borrowed { &[] } else { &RESOURCES };
        self.check_limits(assignment, server, team, own, resources)?;
        if assignment.borrowed { self.check_borrowing(assignment, server, team) } else { Ok(()) }
    }

    fn check_limits(
        &self,
        assignment: &Assignment,
        server: &Server,
        account: &AccountSpec,
        own: impl Fn(&Server) -> bool,
        resources: &[&str],
    ) -> Result<(), String> {
        let (usage, limits, flavor) = (self.usage(&own), &account.limits, &server.flavor);
        for resource in resources {
            let (used, requested) = (usage.amount(resource, flavor), Usage::new(server).amount(resource, flavor));
            let limit = limit(account, resource, flavor);
            ensure(requested == 0 || limit.is_none_or(|limit| used + requested <= limit), || {
                format!(
                    "{assignment:?}: {} requested {requested} {resource}, used {used}, limit {limit:?}",
                    account.name
                )
            })?;
        }
        // Hibernated and pending servers count too: only the first ones up to the limit may run.
        let limit = limits.servers.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
        let arrival = |server: &Server| (server.queued_at, server.name.clone(), server.id.clone());
        let before = self.servers.values().filter(|other| own(other) && arrival(other) < arrival(server)).count();
        ensure(before < limit && usage.servers < limit, || {
            format!(
                "{assignment:?} is server {} of {}, which has {} running, limit {limit}",
                before + 1,
                account.name,
                usage.servers
            )
        })
    }

    /// Checks the borrowing limit of the team, and that other teams leave enough quota idle.
    fn check_borrowing(&self, assignment: &Assignment, server: &Server, team: &AccountSpec) -> Result<(), String> {
        let is_reclaimable = server.preemptible && server.preemptions < self.policy.max_preemptions;
        ensure(is_reclaimable, || format!("{assignment:?} borrows and cannot be preempted"))?;
        for resource in RESOURCES {
            let unused = |account: &AccountSpec| {
                let usage = self.usage(|other| other.team.as_deref() == Some(account.name.as_str()));
                Some(limit(account, resource, &server.flavor)? - usage.amount(resource, &server.flavor))
            };
            let requested = Usage::new(server).amount(resource, &server.flavor);
            let excess = unused(team).map(|unused| requested - unused);
            let Some(excess) = excess.filter(|excess| requested > 0 && *excess > 0) else { continue };
            let is_device = matches!(resource, "devices" | "flavor");
            let borrowing_limit = team.borrowing_limit;
            let is_allowed =
                borrowing_limit.is_none_or(|limit| if is_device { excess <= i128::from(limit) } else { limit > 0 });
            ensure(is_allowed, || {
                format!("{assignment:?}: {} borrows {excess} {resource}, limit {borrowing_limit:?}", team.name)
            })?;
            // Other borrowing teams use the same idle quota.
            let idle: i128 = self.teams.values().filter(|other| other.name != team.name).filter_map(unused).sum();
            ensure(excess <= idle, || format!("{assignment:?} borrows {excess} {resource}, idle {idle}"))?;
        }
        Ok(())
    }

    /// Checks that no victim is exempt, that each preemptor starts, and that the reasons are true.
    pub fn check_preemptions(&self, plan: &Plan) -> Result<(), String> {
        plan.preemptions.iter().try_for_each(|preemption| {
            self.check_preemption(preemption, plan).map_err(|error| format!("{preemption:?}: {error}"))
        })
    }

    fn check_preemption(&self, preemption: &Preemption, plan: &Plan) -> Result<(), String> {
        let (victim, preemptor) = (&self.servers[&preemption.id], &self.servers[&preemption.preemptor]);
        let Some(run) = running(victim).filter(|run| !run.terminating) else { return Err("not running".into()) };
        ensure(victim.preemptible, || "not preemptible".into())?;
        ensure(victim.preemptions < self.policy.max_preemptions, || "preempted too often".into())?;
        ensure(self.now - run.started_at >= self.policy.preempt_exempt_time.max(1), || {
            format!("started at {}", run.started_at)
        })?;
        ensure(run.end.is_none_or(|end| end > preemption.end), || "ends without preemption".into())?;
        // Servers ahead may use the freed capacity, so that the preemptor starts elsewhere, even now.
        let assigned = plan.assignments.iter().any(|assignment| assignment.id == preemptor.id);
        let pending = || plan.pending.iter().find(|pending| pending.id == preemptor.id)?.planned_start;
        let start = if assigned { Some(self.now) } else { pending() };
        let is_in_time = start.is_some_and(|start| start <= preemption.end);
        ensure(is_in_time, || format!("{} starts at {start:?}", preemptor.id))?;
        if preemption.reason == PreemptionReason::Priority {
            let is_higher = preemptor.priority > victim.priority && self.policy.preempt_for_priority;
            return ensure(is_higher, || "no higher priority".into());
        }
        ensure(preemptor.team != victim.team, || "same team".into())?;
        let started = || plan.assignments.iter().map(|assignment| &self.servers[&assignment.id]);
        let is_borrowed = |resource: &&str| {
            let amount = |server: &Server| Usage::new(server).amount(resource, &preemptor.flavor);
            let limit = |server: &Server| limit(self.teams.get(server.team.as_ref()?)?, resource, &preemptor.flavor);
            let mut usage = self.usage(|other| other.team == victim.team);
            started().filter(|other| other.team == victim.team).for_each(|other| usage.add(other));
            let is_above = |limit| usage.amount(resource, &preemptor.flavor) > limit;
            amount(victim) > 0
                && amount(preemptor) > 0
                && limit(preemptor).is_some()
                && limit(victim).is_some_and(is_above)
        };
        ensure(RESOURCES.iter().any(is_borrowed), || "the victim's team does not borrow".into())
    }
}
