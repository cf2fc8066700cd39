//! Quotas of users and teams. They hold when something is granted; whoever has something keeps it.

use std::collections::BTreeMap;

use odc_api::name::{TeamName, UserName};
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::world::Turn;
use super::{Quotas, Server, measure};

/// What is in use, by who answers for it.
pub(super) struct Ledger<'a> {
    quotas: &'a Quotas,
    used: BTreeMap<Holder<'a>, Used>,
    /// How many servers of the same user or team came before, of those that have not ended.
    before: BTreeMap<(Holder<'a>, Turn<'a>), u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder<'a> {
    User(&'a UserName),
    Team(&'a TeamName),
}

/// What granted servers hold together. `servers` counts the others too.
#[derive(Clone, Copy, Default)]
struct Used {
    servers: u32,
    devices: i64,
    cpu: i64,
    memory: i64,
}

/// A quota that a grant would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub message: String,
}

/// The limit on one thing, with what is used and asked for in the same unit.
struct Limit {
    most: i128,
    used: i128,
    need: i128,
    text: fn(i128) -> String,
    /// What the numbers count.
    of: &'static str,
}

impl<'a> Ledger<'a> {
    /// With the servers in their order, and nothing in use.
    pub fn new(quotas: &'a Quotas, servers: &[&'a Server]) -> Self {
        let mut ledger = Self { quotas, used: BTreeMap::new(), before: BTreeMap::new() };
        for server in servers.iter().filter(|server| !server.ended) {
            for holder in holders(server) {
                let used = ledger.used.entry(holder).or_default();
                ledger.before.insert((holder, server.turn()), used.servers);
                used.servers = used.servers.saturating_add(1);
            }
        }
        ledger
    }

    pub fn charge(&mut self, server: &'a Server) {
        let need = Used::by(server);
        for holder in holders(server) {
            let used = self.used.entry(holder).or_default();
            used.devices = used.devices.saturating_add(need.devices);
            used.cpu = used.cpu.saturating_add(need.cpu);
            used.memory = used.memory.saturating_add(need.memory);
        }
    }

    /// The first quota that does not allow a grant for this server.
    pub fn excess(&self, server: &'a Server) -> Option<Excess> {
        holders(server).find_map(|holder| {
            let quota = match holder {
                Holder::User(user) => self.quotas.users.get(user),
                Holder::Team(team) => self.quotas.teams.get(team),
            }?;
            let message = self.too_many(holder, quota, server).or_else(|| self.too_much(holder, quota, server))?;
            Some(Excess { message })
        })
    }

    fn too_many(&self, holder: Holder<'a>, quota: &Quota, server: &'a Server) -> Option<String> {
        let limit = quota.servers?;
        let before = self.before.get(&(holder, server.turn())).copied().unwrap_or_default();
        let servers = if limit == 1 { "server" } else { "servers" };
        (before >= limit).then(|| {
            format!(
                "The quota of {} is {limit} {servers}, sleeping ones included, and this is number {}: end an earlier one, \
                 or ask an administrator to raise the quota.",
                holder.words(),
                before.saturating_add(1),
            )
        })
    }

    fn too_much(&self, holder: Holder<'a>, quota: &Quota, server: &'a Server) -> Option<String> {
        let used = self.used.get(&holder).copied().unwrap_or_default();
        let exceeded = limits(quota, used, Used::by(server)).into_iter().flatten().find(Limit::is_exceeded)?;
        Some(exceeded.words(holder))
    }
}

fn holders(server: &Server) -> impl Iterator<Item = Holder<'_>> {
    [Some(Holder::User(&server.owner)), server.team.as_ref().map(Holder::Team)].into_iter().flatten()
}

impl Holder<'_> {
    fn words(&self) -> String {
        match self {
            Self::User(user) => format!("user {user}"),
            Self::Team(team) => format!("team {team}"),
        }
    }
}

impl Used {
    /// By the grant of one server.
    fn by(server: &Server) -> Self {
        let request = &server.request;
        Self {
            servers: 1,
            devices: request.devices(),
            cpu: request.in_all(request.each.cpu),
            memory: request.in_all(request.each.memory),
        }
    }
}

/// CPU and memory in billionths, as exact as they were written.
fn limits(quota: &Quota, used: Used, need: Used) -> [Option<Limit>; 3] {
    let devices = |limit: u32| Limit {
        most: limit.into(),
        used: used.devices.into(),
        need: need.devices.into(),
        text: |amount| amount.to_string(),
        of: if limit == 1 { " device" } else { " devices" },
    };
    let cpu = |limit: Quantity| Limit {
        most: limit.nanos(),
        used: i128::from(used.cpu) * MILLI,
        need: i128::from(need.cpu) * MILLI,
        text: |nanos| measure::cpu(saturated(nanos / MILLI)),
        of: " CPU",
    };
    let memory = |limit: Quantity| Limit {
        most: limit.nanos(),
        used: i128::from(used.memory) * WHOLE,
        need: i128::from(need.memory) * WHOLE,
        text: |nanos| measure::bytes_down(saturated(nanos / WHOLE)),
        of: " of memory",
    };
    [quota.devices.map(devices), quota.cpu.map(cpu), quota.memory.map(memory)]
}

/// Billionths in a thousandth and in one.
const MILLI: i128 = 1_000_000;
const WHOLE: i128 = 1_000_000_000;

fn saturated(amount: i128) -> i64 {
    i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX })
}

impl Limit {
    /// What asks for nothing exceeds nothing, also where the quota is below what is used.
    fn is_exceeded(&self) -> bool {
        self.need > 0 && self.used + self.need > self.most
    }

    fn words(&self, holder: Holder<'_>) -> String {
        let Self { most, used, need, text, of } = self;
        let help = if need > most { "ask for less" } else { "end or hibernate another one" };
        let besides = if *used > 0 { format!(" besides the {} in use", text(*used)) } else { String::new() };
        format!(
            "The quota of {} is {}{of}, and this server needs {}{besides}: {help}, or ask an administrator to raise the \
             quota.",
            holder.words(),
            text(*most),
            text(*need),
        )
    }
}
