//! What must hold at every instant, counted plainly and without the scheduler's own books: no node gives more than it has
//! beside other people's pods, nobody holds more than a quota and what may be borrowed, nobody is asked to leave in vain.

use std::collections::{BTreeMap, BTreeSet};

use odc_core::amounts::Amounts;
use odc_core::scheduler::{Account, Grant, Node, Plan, Preemption, Right, Server, Service};

use super::harness::{Harness, running};

/// What somebody holds.
#[derive(Debug, Default)]
struct Held {
    servers: usize,
    devices: i64,
    cpu: i64,
    memory: i64,
    flavors: BTreeMap<String, i64>,
}

/// What quotas limit that others may leave idle. Devices are also counted by flavor.
const THINGS: [&str; 4] = ["devices", "flavor", "cpu", "memory"];

impl Held {
    fn add(&mut self, server: &Server) {
        let nodes = i64::from(server.ask.nodes.max(1));
        self.servers += 1;
        self.devices += server.ask.devices();
        self.cpu += server.ask.each.cpu * nodes;
        self.memory += server.ask.each.memory * nodes;
        *self.flavors.entry(server.flavor.clone()).or_default() += server.ask.devices();
    }

    fn by(server: &Server) -> Self {
        let mut held = Self::default();
        held.add(server);
        held
    }

    /// In the units of quotas.
    fn of(&self, thing: &str, flavor: &str) -> i128 {
        match thing {
            "devices" => self.devices.into(),
            "flavor" => self.flavors.get(flavor).copied().unwrap_or_default().into(),
            "cpu" => i128::from(self.cpu) * 1_000_000,
            _ => i128::from(self.memory) * 1_000_000_000,
        }
    }
}

fn most(account: &Account, thing: &str, flavor: &str) -> Option<i128> {
    let limits = &account.limits;
    match thing {
        "devices" => limits.devices.map(i128::from),
        "flavor" => limits.flavors.get(flavor).copied().map(i128::from),
        "cpu" => limits.cpu,
        _ => limits.memory,
    }
}

/// An error with a sentence if something does not hold.
pub fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(wrong()) }
}

/// Each amount a request or a node has, by name.
fn listed(amounts: &Amounts) -> impl Iterator<Item = (String, i64)> {
    let Amounts { cpu, memory, storage, pods, .. } = amounts;
    let plain = [("cpu", *cpu), ("memory", *memory), ("storage", *storage), ("pods", *pods)];
    let plain = plain.map(|(name, amount)| (name.to_owned(), amount));
    plain.into_iter().chain(amounts.devices().map(|(name, amount)| (name.to_owned(), amount)).collect::<Vec<_>>())
}

fn amount(of: &Amounts, name: &str) -> i64 {
    listed(of).find(|(known, _)| known == name).map_or(0, |(_, amount)| amount)
}

impl Harness {
    /// Whether a grant is one that may be made, just before it is carried out.
    pub fn check_grant(&self, grant: &Grant) -> Result<(), String> {
        let server = &self.servers[&grant.id];
        let nodes: BTreeSet<&String> = grant.nodes.iter().collect();
        ensure(running(server).is_none(), || format!("{grant:?} runs already"))?;
        ensure(nodes.len() == server.ask.nodes() && grant.nodes.len() == nodes.len(), || {
            format!("{grant:?} is not of {} nodes", server.ask.nodes())
        })?;
        if let Some(label) = server.ask.topology.as_ref().filter(|_| server.ask.nodes > 1) {
            let zones: BTreeSet<_> = nodes.iter().map(|node| self.nodes[*node].labels.get(label)).collect();
            ensure(zones.len() == 1 && !zones.contains(&None), || format!("{grant:?} is in {zones:?}"))?;
        }
        ensure(server.not_before.is_none_or(|at| at <= self.now), || format!("{grant:?} is before its time"))?;
        for name in nodes {
            let node = &self.nodes[name];
            ensure(node.service == Service::Open, || format!("{grant:?} is on a node that takes nobody"))?;
            ensure(!server.unfit.contains_key(name), || format!("{grant:?} is on a node that refused it"))?;
            self.check_room(node, &server.ask.each)?;
        }
        self.check_quotas(grant, server)
    }

    /// Whether a node has room beside those who run on it and beside pods that are no server's.
    fn check_room(&self, node: &Node, each: &Amounts) -> Result<(), String> {
        let on = self.servers.values().filter_map(running).flat_map(|running| &running.on);
        let used: Vec<&Amounts> = on.filter(|(on, _)| *on == node.name).map(|(_, what)| what).collect();
        for (name, need) in listed(each).filter(|(_, need)| *need > 0) {
            let used: i64 = used.iter().map(|what| amount(what, &name)).sum();
            let (others, most) = (amount(&node.others, &name), amount(&node.capacity, &name));
            ensure(used + others + need <= most, || {
                format!("{} gives {used} and {need} more of its {most} {name}, others use {others}", node.name)
            })?;
        }
        Ok(())
    }

    fn held(&self, belongs: impl Fn(&Server) -> bool) -> Held {
        let mut held = Held::default();
        for server in self.servers.values().filter(|server| belongs(server) && running(server).is_some()) {
            held.add(server);
        }
        held
    }

    fn check_quotas(&self, grant: &Grant, server: &Server) -> Result<(), String> {
        if let Some(user) = self.users.get(&server.owner) {
            let own = |other: &Server| other.owner == server.owner;
            self.check_limits(grant, server, user, own, &THINGS)?;
        }
        let Some(team) = server.team.as_ref().and_then(|team| self.teams.get(team)) else { return Ok(()) };
        let own = |other: &Server| other.team == server.team;
        let things: &[&str] = if grant.borrowed { &[] } else { &THINGS };
        self.check_limits(grant, server, team, own, things)?;
        if grant.borrowed { self.check_borrowing(grant, server, team) } else { Ok(()) }
    }

    fn check_limits(
        &self,
        grant: &Grant,
        server: &Server,
        account: &Account,
        own: impl Fn(&Server) -> bool,
        things: &[&str],
    ) -> Result<(), String> {
        let (held, limits, flavor) = (self.held(&own), &account.limits, &server.flavor);
        for thing in things {
            let (held, need) = (held.of(thing, flavor), Held::by(server).of(thing, flavor));
            let most = most(account, thing, flavor);
            ensure(need == 0 || most.is_none_or(|most| held + need <= most), || {
                format!("{grant:?}: {} holds {held} {thing} and {need} more, of {most:?}", account.name)
            })?;
        }
        // Sleeping and waiting ones count too: only the first so many may run.
        let most = limits.servers.map_or(usize::MAX, |most| usize::try_from(most).unwrap());
        let arrival = |server: &Server| (server.queued, server.name.clone(), server.id.clone());
        let before = self.servers.values().filter(|other| own(other) && arrival(other) < arrival(server)).count();
        ensure(before < most && held.servers < most, || {
            format!(
                "{grant:?} is number {} of {}, who has {} and may have {most}",
                before + 1,
                account.name,
                held.servers
            )
        })
    }

    /// No more than the team may borrow, and nothing that another team uses or has lent already.
    fn check_borrowing(&self, grant: &Grant, server: &Server, team: &Account) -> Result<(), String> {
        let asked_back = server.preemptible && server.preemptions < self.policy.most_preemptions;
        ensure(asked_back, || format!("{grant:?} borrows and cannot be asked back"))?;
        for thing in THINGS {
            let left = |account: &Account| {
                let held = self.held(|other| other.team.as_deref() == Some(account.name.as_str()));
                Some(most(account, thing, &server.flavor)? - held.of(thing, &server.flavor))
            };
            let need = Held::by(server).of(thing, &server.flavor);
            let Some(beyond) = left(team).map(|left| need - left).filter(|beyond| need > 0 && *beyond > 0) else {
                continue;
            };
            let counted = matches!(thing, "devices" | "flavor");
            let allowed = team.borrow.is_none_or(|most| if counted { beyond <= i128::from(most) } else { most > 0 });
            ensure(allowed, || {
                format!("{grant:?} takes {} to {beyond} {thing} above its quota, of {:?}", team.name, team.borrow)
            })?;
            // Those who are above their own quota have it from the same idle ones.
            let idle: i128 = self.teams.values().filter(|other| other.name != team.name).filter_map(left).sum();
            ensure(beyond <= idle, || format!("{grant:?} takes {beyond} {thing} of others, and {idle} are idle"))?;
        }
        Ok(())
    }

    /// Nobody is asked to leave too soon, too often or in vain, and the right to ask is a fact.
    pub fn check_preemptions(&self, plan: &Plan) -> Result<(), String> {
        plan.preemptions.iter().try_for_each(|preemption| {
            self.check_preemption(preemption, plan).map_err(|wrong| format!("{preemption:?}: {wrong}"))
        })
    }

    fn check_preemption(&self, preemption: &Preemption, plan: &Plan) -> Result<(), String> {
        let (server, by) = (&self.servers[&preemption.id], &self.servers[&preemption.by]);
        let Some(run) = running(server).filter(|run| !run.leaving) else { return Err("it does not run".into()) };
        ensure(server.preemptible, || "it is not preemptible".into())?;
        ensure(server.preemptions < self.policy.most_preemptions, || "it was asked often enough".into())?;
        ensure(self.now - run.since >= self.policy.least_run.max(1), || format!("it runs since {} only", run.since))?;
        ensure(run.end.is_none_or(|end| end > preemption.end), || "it leaves by itself".into())?;
        // Those ahead may use what is left of the room, so that it can start elsewhere, even now.
        let now = plan.grants.iter().any(|grant| grant.id == by.id).then_some(self.now);
        let start = now.or_else(|| plan.waits.iter().find(|wait| wait.id == by.id)?.start);
        ensure(start.is_some_and(|start| start <= preemption.end), || format!("{} starts at {start:?}", by.id))?;
        if preemption.right == Right::Priority {
            return ensure(by.priority > server.priority && self.policy.preempt_for_priority, || "it is urgent".into());
        }
        ensure(preemption.right == Right::Quota && by.team != server.team, || "there is no such right".into())?;
        let started = || plan.grants.iter().map(|grant| &self.servers[&grant.id]);
        let lends = |thing: &&str| {
            let both = Held::by(server).of(thing, &by.flavor) > 0 && Held::by(by).of(thing, &by.flavor) > 0;
            let limit = |server: &Server| most(self.teams.get(server.team.as_ref()?)?, thing, &by.flavor);
            let mut held = self.held(|other| other.team == server.team);
            started().filter(|other| other.team == server.team).for_each(|other| held.add(other));
            both && limit(by).is_some() && limit(server).is_some_and(|most| held.of(thing, &by.flavor) > most)
        };
        ensure(THINGS.iter().any(lends), || "its team borrows nothing that the other one lends".into())
    }
}
