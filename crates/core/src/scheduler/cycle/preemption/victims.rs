//! Victim selection: the cheapest set of servers whose preemption lets the preemptor start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::PreemptionTotals;
use crate::resources::Resources;
use crate::scheduler::cycle::queue_pass::Attempt;
use crate::scheduler::cycle::quota::AccountId;
use crate::scheduler::cycle::quota::violation::QuotaResource;
use crate::scheduler::event::Request;
use crate::scheduler::plan::PreemptionReason;
use crate::scheduler::state::Entry;
use crate::scheduler::state::accounts::{ResourceUsage, UsageByFlavor};
use crate::scheduler::state::arena::{AccountIdx, NodeIdx, ServerIdx};
use crate::scheduler::state::node::{IMMEDIATELY, NodeInfo};
use crate::scheduler::state::request_class::RequestClass;
use crate::scheduler::timeline::{Timeline, Window};
use crate::scheduler::{ClusterState, Policy};

/// Bounds the first victims tried on a node.
const MAX_VICTIM_ORDERS: usize = 8;
/// Bounds the victims excluded on a node because they are disallowed in the complete set.
const MAX_VICTIM_EXCLUSIONS: usize = 8;
/// Bounds the node sets tried in a domain.
const MAX_NODE_SETS: usize = 8;

/// Selects victims for one preemptor. Reads the cycle, and changes nothing.
pub(super) struct VictimSelector<'a> {
    pub state: &'a ClusterState,
    pub policy: &'a Policy,
    pub now: i64,
    pub attempt: &'a Attempt,
    /// Speculative preemptions for other preemptors.
    pub preemptions: &'a PreemptionTotals,
    pub preemptor: &'a Entry,
    /// The time in which the preemptor would run. It starts when the victims have released their nodes.
    pub window: Window,
}

/// A running server that may be preempted.
#[derive(Clone, Copy, Debug)]
struct Victim<'w> {
    server: ServerIdx,
    entry: &'w Entry,
}

#[derive(Clone, Copy, Debug)]
struct SelectedVictim<'w> {
    server: ServerIdx,
    entry: &'w Entry,
    reason: PreemptionReason,
    /// What the node lacks if this server is not preempted.
    missing: MissingResources,
}

/// A node with the servers that may be preempted there, lowest priority and youngest first.
struct Candidate<'w> {
    node: NodeIdx,
    info: &'w NodeInfo,
    domain: &'w Arc<str>,
    victims: Vec<Victim<'w>>,
    /// A lower bound of the cost.
    min_cost: VictimCost,
}

/// Victims by server id, because indices depend on history.
type VictimsById<'w> = BTreeMap<&'w str, (ServerIdx, PreemptionReason)>;

/// Selected victims by cost, which is unique for each node.
type VictimsByCost<'w> = BTreeMap<VictimCost, Vec<SelectedVictim<'w>>>;

/// The result for each node considered so far; `None` if no allowed victims are sufficient.
type VictimsByNode<'w> = BTreeMap<NodeIdx, Option<Vec<SelectedVictim<'w>>>>;

/// Fewer victims are better, then fewer devices, then servers that started later.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct VictimCost {
    victims: usize,
    devices: i64,
    start_times: Reverse<i64>,
    /// Makes the cost unique.
    node: Arc<str>,
}

impl VictimCost {
    fn new(victims: &[SelectedVictim<'_>], info: &NodeInfo) -> Self {
        let devices = victims.iter().fold(0_i64, |sum, victim| sum.saturating_add(victim.entry.usage.devices));
        let starts = victims.iter().fold(0_i64, |sum, victim| sum.saturating_add(started_at(victim.entry)));
        Self { victims: victims.len(), devices, start_times: Reverse(starts), node: info.name.clone() }
    }

    /// Returns a lower bound for any subset of the victims.
    fn lower_bound(victims: &[Victim<'_>], info: &NodeInfo) -> Self {
        let devices = victims.iter().map(|victim| victim.entry.usage.devices).min().unwrap_or(0);
        let latest = victims.iter().map(|victim| started_at(victim.entry)).max().unwrap_or(0);
        Self { victims: 1, devices, start_times: Reverse(latest), node: info.name.clone() }
    }
}

/// Adds or takes what a victim uses on a node between `start` and its expected end.
fn update_availability(
    availability: &mut Timeline<Resources>,
    info: &NodeInfo,
    victim: Victim<'_>,
    start: i64,
    change: fn(&mut Resources, &Resources),
) {
    if let Some(used) = info.usage_of(victim.server) {
        availability.update(start, victim.entry.expected_end.unwrap_or(i64::MAX), |free| change(free, used));
    }
}

fn started_at(entry: &Entry) -> i64 {
    entry.server.running().map_or(0, |running| running.started_at)
}

impl<'a> VictimSelector<'a> {
    /// Returns the cheapest victims with which the preemptor can start at the start of the window; empty if it can start
    /// then anyway.
    pub fn select(&self) -> Option<Vec<(ServerIdx, PreemptionReason)>> {
        let class = self.state.request_class(self.preemptor)?;
        let needed = class.request.nodes();
        let mut candidates = self.candidates(class);
        candidates.sort_unstable_by(|one, other| one.min_cost.cmp(&other.min_cost));
        let mut best: Option<(usize, i64, VictimsById<'_>)> = None;
        for (value, domain) in class.domains.iter().filter(|(_, domain)| domain.fits_without_servers >= needed) {
            let free = domain.nodes.iter().take_while(|ranked| {
                ranked.available_from == IMMEDIATELY || ranked.available_from <= self.window.start
            });
            let free = free.filter(|ranked| {
                let reserved = self.attempt.node_reservations.get(&ranked.node);
                !self.attempt.node_holds.contains(ranked.node)
                    && reserved.is_none_or(|timeline| self.missing_resources(timeline).is_none())
                    && !self.state.is_rejected_by(self.preemptor, ranked.node)
            });
            let free = free.take(needed).count();
            let in_domain: Vec<&Candidate<'_>> =
                candidates.iter().filter(|candidate| candidate.domain == value).collect();
            let Some(chosen) = self.cheapest_allowed_nodes(in_domain, needed - free) else { continue };
            let devices = chosen.keys().map(|cost| cost.devices).sum();
            let victims = chosen.values().flatten();
            let victims: VictimsById<'_> =
                victims.map(|victim| (victim.entry.server.id.as_str(), (victim.server, victim.reason))).collect();
            best = best.into_iter().chain([(victims.len(), devices, victims)]).min();
        }
        best.map(|(_, _, victims)| victims.into_values().collect())
    }

    /// Returns all nodes where enough devices would be free without the servers that may be preempted.
    fn candidates(&self, class: &'a RequestClass) -> Vec<Candidate<'a>> {
        let mut reasons = BTreeMap::new();
        let mut victim = |server: ServerIdx| {
            let entry = self.state.entry(server).filter(|_| !self.preemptions.victims.contains(&server))?;
            // A server that ends by then need not be preempted.
            let is_available = entry.expected_end.is_none_or(|end| end > self.window.start) && !self.is_exempt(entry);
            let uses = (entry.usage.devices > 0, entry.usage.cpu > 0, entry.usage.memory > 0);
            let key = (entry.team, entry.server.priority, &entry.server.flavor, uses);
            let reason = || self.preemption_reason(entry, &VictimSet::default());
            let is_allowed = is_available && reasons.entry(key).or_insert_with(reason).is_some();
            is_allowed.then_some(Victim { server, entry })
        };
        let request = &class.request;
        let device = request.device.as_deref().map(|device| (device, request.per_node.device(device)));
        let mut candidates = Vec::new();
        for (node, servers) in &self.state.preemptible_by_node {
            let fit = class.node_fit(*node).filter(|fit| fit.schedulable);
            let Some(domain) = fit.and_then(|fit| fit.domain.as_ref()) else { continue };
            let info = self.state.node(*node).filter(|_| !self.attempt.node_holds.contains(*node));
            let Some(info) = info else { continue };
            let mut victims: Vec<Victim<'_>> = servers.iter().filter_map(|server| victim(*server)).collect();
            if victims.is_empty() {
                continue;
            }
            let is_victim = |server: ServerIdx| victims.iter().any(|victim| victim.server == server);
            let is_enough = device
                .is_none_or(|(device, requested)| info.free_without(device, self.window.start, is_victim) >= requested);
            if !is_enough || self.state.is_rejected_by(self.preemptor, *node) {
                continue;
            }
            victims.sort_by(|one, other| {
                let order = |entry: &Entry| (entry.server.priority, Reverse(started_at(entry)));
                let (one, other) = (one.entry, other.entry);
                (order(one), &one.server.id).cmp(&(order(other), &other.server.id))
            });
            let min_cost = VictimCost::lower_bound(&victims, info);
            candidates.push(Candidate { node: *node, info, domain, victims, min_cost });
        }
        candidates
    }

    /// Returns the cheapest `count` nodes whose victims may be preempted together.
    fn cheapest_allowed_nodes(&self, mut candidates: Vec<&Candidate<'a>>, count: usize) -> Option<VictimsByCost<'a>> {
        let mut known = VictimsByNode::new();
        for _ in 0..MAX_NODE_SETS {
            let chosen = self.cheapest_nodes(&candidates, count, &mut known);
            if chosen.len() < count {
                return None;
            }
            let Some(disallowed) = self.first_disallowed_node(&chosen).cloned() else {
                return Some(chosen);
            };
            candidates.retain(|candidate| candidate.info.name != disallowed.node);
        }
        None
    }

    /// Returns the cheapest `count` nodes with their victims. Candidates are sorted by their lower bounds, so most need not
    /// be evaluated.
    fn cheapest_nodes(
        &self,
        candidates: &[&Candidate<'a>],
        count: usize,
        known: &mut VictimsByNode<'a>,
    ) -> VictimsByCost<'a> {
        let mut chosen = VictimsByCost::new();
        for candidate in candidates {
            let last = chosen.last_key_value().filter(|_| chosen.len() >= count);
            if count == 0 || last.is_some_and(|(cost, _)| *cost <= candidate.min_cost) {
                break;
            }
            let victims = known.entry(candidate.node).or_insert_with(|| self.victims_on_node(candidate));
            let Some(victims) = victims.clone() else { continue };
            chosen.insert(VictimCost::new(&victims, candidate.info), victims);
            if chosen.len() > count {
                chosen.pop_last();
            }
        }
        chosen
    }

    /// Selects a victim set on one node. The result depends on which victim is tried first, because a team may only lose
    /// what it borrows; so one victim of each kind is tried as the first, at most [`MAX_VICTIM_ORDERS`]. This is a
    /// heuristic, not an exhaustive search.
    fn victims_on_node(&self, candidate: &Candidate<'a>) -> Option<Vec<SelectedVictim<'a>>> {
        let mut kinds = Vec::new();
        let is_new_kind = |position: &usize| {
            let entry = candidate.victims[*position].entry;
            let kind = (entry.team, entry.server.priority, &entry.server.flavor, entry.usage);
            let is_new = !kinds.contains(&kind);
            if is_new {
                kinds.push(kind);
            }
            is_new
        };
        let mut firsts = (0..candidate.victims.len()).filter(is_new_kind).take(MAX_VICTIM_ORDERS);
        firsts.find_map(|first| self.victims_starting_with(candidate, first))
    }

    /// Selects a minimal victim set on one node that starts with the given victim. Each is preempted for a resource that
    /// would be missing without it.
    fn victims_starting_with(&self, candidate: &Candidate<'a>, first: usize) -> Option<Vec<SelectedVictim<'a>>> {
        let mut excluded = BTreeSet::new();
        for _ in 0..MAX_VICTIM_EXCLUSIONS {
            let (victims, availability) = self.minimal_victims(candidate, first, &excluded)?;
            match self.assign_reasons(candidate.info, victims, availability) {
                Ok(victims) => return Some(victims),
                Err(disallowed) => excluded.insert(disallowed),
            };
        }
        None
    }

    /// Returns a minimal sufficient victim set and the availability of the node without it. Each victim may be preempted for
    /// what is missing when it is added; later victims may free just that, which [`Self::assign_reasons`] detects.
    fn minimal_victims(
        &self,
        Candidate { node, info, victims, .. }: &Candidate<'a>,
        first: usize,
        excluded: &BTreeSet<ServerIdx>,
    ) -> Option<(Vec<Victim<'a>>, Timeline<Resources>)> {
        let start = self.window.start;
        let reserved = self.attempt.node_reservations.get(node);
        let mut availability = reserved.cloned().unwrap_or_else(|| info.availability());
        let (mut selected, mut set) = (Vec::new(), VictimSet::default());
        let others = victims.iter().enumerate().filter(|(position, _)| *position != first).map(|(_, victim)| victim);
        let ordered = victims.iter().skip(first).take(1).chain(others);
        for victim in ordered.filter(|victim| !excluded.contains(&victim.server)) {
            let Some(missing) = self.missing_resources(&availability) else { break };
            set.missing = missing;
            if self.preemption_reason(victim.entry, &set).is_some() {
                update_availability(&mut availability, info, *victim, start, Resources::saturating_add_assign);
                set.add(victim.entry);
                selected.push(*victim);
            }
        }
        if selected.is_empty() || self.missing_resources(&availability).is_some() {
            return None;
        }
        // Remove victims that are not needed with those added later. A victim that stays frees nothing, so the teams of the
        // others lose no more than before.
        let mut needed = Vec::new();
        while let Some(victim) = selected.pop() {
            update_availability(&mut availability, info, victim, start, Resources::saturating_sub_assign);
            if self.missing_resources(&availability).is_some() {
                update_availability(&mut availability, info, victim, start, Resources::saturating_add_assign);
                needed.push(victim);
            }
        }
        needed.reverse();
        Some((needed, availability))
    }

    /// Determines the reason for each victim of a complete set. Returns a victim for which there is none as an error: what is
    /// missing without it is within its team's nominal quota.
    fn assign_reasons(
        &self,
        info: &NodeInfo,
        victims: Vec<Victim<'a>>,
        mut availability: Timeline<Resources>,
    ) -> Result<Vec<SelectedVictim<'a>>, ServerIdx> {
        let start = self.window.start;
        let (mut selected, mut set) = (Vec::new(), VictimSet::default());
        for victim in victims {
            update_availability(&mut availability, info, victim, start, Resources::saturating_sub_assign);
            set.missing = self.missing_resources(&availability).unwrap_or_default();
            update_availability(&mut availability, info, victim, start, Resources::saturating_add_assign);
            let Victim { server, entry } = victim;
            let reason = self.preemption_reason(entry, &set).ok_or(server)?;
            set.add(entry);
            selected.push(SelectedVictim { server, entry, reason, missing: set.missing });
        }
        Ok(selected)
    }

    /// Returns the first node with a victim that may not be preempted in addition to those of the nodes before it.
    fn first_disallowed_node<'v>(&self, nodes: &'v VictimsByCost<'_>) -> Option<&'v VictimCost> {
        let (mut set, mut counted) = (VictimSet::default(), BTreeSet::new());
        let mut is_allowed = |victims: &Vec<SelectedVictim<'_>>| {
            victims.iter().all(|victim| {
                // A gang leaves all its nodes at once.
                if !counted.insert(victim.server) {
                    return true;
                }
                set.missing = victim.missing;
                let is_allowed = self.preemption_reason(victim.entry, &set).is_some();
                set.add(victim.entry);
                is_allowed
            })
        };
        nodes.iter().find(|(_, victims)| !is_allowed(victims)).map(|(cost, _)| cost)
    }

    /// Returns what a node lacks for the preemptor at any time of the window; `None` if it fits.
    fn missing_resources(&self, availability: &Timeline<Resources>) -> Option<MissingResources> {
        let request = &self.preemptor.server.request;
        let violations = availability.violations(self.window, |free| free.fits(&request.per_node));
        violations.map(|free| MissingResources::new(free, request)).reduce(MissingResources::union)
    }

    /// Reports whether a server must not be preempted by any other.
    fn is_exempt(&self, entry: &Entry) -> bool {
        let Some(running) = entry.server.running().filter(|running| !running.terminating) else { return true };
        // At least one second: the cycle that started it saw the same state.
        !entry.server.preemptible
            || entry.server.preemptions >= self.policy.max_preemptions
            || self.now.saturating_sub(running.started_at) < self.policy.preempt_exempt_time.max(1)
            || running.nodes.is_empty()
    }

    /// Returns why the preemptor may preempt a server that is not exempt. Depends only on the victim's team, priority and
    /// flavor, and on which resources it uses.
    fn preemption_reason(&self, victim: &Entry, set: &VictimSet) -> Option<PreemptionReason> {
        let preemptor = self.preemptor;
        // A team reclaims nominal quota only for resources that are missing: a team that borrows a little memory does not
        // lose devices of its own for it.
        let teams = preemptor.team.zip(victim.team).filter(|(one, other)| one != other);
        let can_reclaim = teams.is_some_and(|(one, other)| {
            let freed = set.freed.get(&other);
            let mut missing = contended_resources(preemptor, victim).filter(|resource| set.missing.contains(resource));
            missing
                .any(|resource| self.has_unborrowed_quota(one, &resource) && self.is_borrowing(other, &resource, freed))
        });
        let has_priority = self.policy.preempt_for_priority && preemptor.server.priority > victim.server.priority;
        if can_reclaim { Some(PreemptionReason::Reclaim) } else { has_priority.then_some(PreemptionReason::Priority) }
    }

    /// Reports whether a team has nominal quota of a resource and borrows none. A team without a limit has nothing that it
    /// could reclaim.
    fn has_unborrowed_quota(&self, team: AccountIdx, resource: &QuotaResource) -> bool {
        let account = self.state.teams.get(team);
        account.is_some_and(|account| resource.limit(&account.spec.limits).is_some())
            && !self.is_borrowing(team, resource, None)
    }

    /// Reports whether a team uses more than its nominal quota after all assignments, without terminating servers, victims
    /// and `freed`.
    fn is_borrowing(&self, team: AccountIdx, resource: &QuotaResource, freed: Option<&UsageByFlavor>) -> bool {
        let Some(account) = self.state.teams.get(team) else { return false };
        let Some(limit) = resource.limit(&account.spec.limits) else { return false };
        let preempted = self.preemptions.usage.get(&team).map_or(0, |usage| usage.amount(resource));
        let used =
            account.usage.amount(resource) + self.attempt.ledger.assigned_amount(AccountId::Team(team), resource);
        let remaining = used - account.terminating_usage.amount(resource) - preempted;
        remaining - freed.map_or(0, |freed| freed.amount(resource)) > limit
    }
}

/// The victims selected so far.
#[derive(Clone, Debug, Default)]
struct VictimSet {
    missing: MissingResources,
    /// What the victims free, by team.
    freed: BTreeMap<AccountIdx, UsageByFlavor>,
}

impl VictimSet {
    fn add(&mut self, entry: &Entry) {
        if let Some(team) = entry.team {
            self.freed.entry(team).or_default().add(entry);
        }
    }
}

/// The resources of which a node has too little.
#[derive(Clone, Copy, Debug)]
struct MissingResources {
    devices: bool,
    cpu: bool,
    memory: bool,
}

/// All resources, before any node was considered.
impl Default for MissingResources {
    fn default() -> Self {
        Self { devices: true, cpu: true, memory: true }
    }
}

impl MissingResources {
    fn new(free: &Resources, request: &Request) -> Self {
        let device = request.device.as_deref();
        Self {
            devices: device.is_some_and(|device| free.device(device) < request.per_node.device(device)),
            cpu: free.cpu < request.per_node.cpu,
            memory: free.memory < request.per_node.memory,
        }
    }

    fn union(self, other: Self) -> Self {
        Self { devices: self.devices || other.devices, cpu: self.cpu || other.cpu, memory: self.memory || other.memory }
    }

    fn contains(self, resource: &QuotaResource) -> bool {
        match resource {
            QuotaResource::Devices | QuotaResource::Flavor(_) => self.devices,
            QuotaResource::Cpu => self.cpu,
            QuotaResource::Memory => self.memory,
            QuotaResource::Servers => false,
        }
    }
}

/// Returns the limited resources that both servers use.
fn contended_resources(one: &Entry, other: &Entry) -> impl Iterator<Item = QuotaResource> {
    let both = |amount: fn(&ResourceUsage) -> i64| amount(&one.usage) > 0 && amount(&other.usage) > 0;
    let devices = both(|usage| usage.devices);
    let flavor = devices && one.server.flavor == other.server.flavor;
    let contended = [
        devices.then_some(QuotaResource::Devices),
        flavor.then(|| QuotaResource::Flavor(one.server.flavor.clone())),
        both(|usage| usage.cpu).then_some(QuotaResource::Cpu),
        both(|usage| usage.memory).then_some(QuotaResource::Memory),
    ];
    contended.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use odc_api::v1alpha1::Priority;
    use proptest::prelude::*;

    use super::*;
    use crate::scheduler::cycle::SchedulingCycle;
    use crate::scheduler::event::{AccountSpec, Event, Limits, Node, RunInfo, Server, ServerState};
    use crate::scheduler::fixtures::server;

    const NOW: i64 = 3_600;

    /// Selects victims without lower bounds and indices, by considering all servers on all nodes.
    fn reference_victims(selector: &VictimSelector<'_>) -> Option<Vec<(ServerIdx, PreemptionReason)>> {
        let VictimSelector { state, attempt, preemptor, window, .. } = *selector;
        let class = state.request_class(preemptor)?;
        let needed = class.request.nodes();
        let victim = |server: &ServerIdx| {
            let entry = state.entry(*server);
            let entry = entry.filter(|entry| entry.expected_end.is_none_or(|end| end > window.start))?;
            let is_available = !selector.is_exempt(entry) && !selector.preemptions.victims.contains(server);
            is_available.then_some(Victim { server: *server, entry })
        };
        let is_allowed =
            |victim: &Victim<'_>| selector.preemption_reason(victim.entry, &VictimSet::default()).is_some();
        let all: Vec<Victim<'_>> = state.preemptible.iter().filter_map(victim).filter(is_allowed).collect();
        let mut best = None;
        for (value, domain) in class.domains.iter().filter(|(_, domain)| domain.fits_without_servers >= needed) {
            let is_usable =
                |node: &NodeIdx| !attempt.node_holds.contains(*node) && !state.is_rejected_by(preemptor, *node);
            let fits = |node: &NodeIdx| {
                let reserved = attempt.node_reservations.get(node).cloned();
                let availability = reserved.unwrap_or_else(|| state.node(*node).unwrap().availability());
                let per_node = &preemptor.server.request.per_node;
                availability.first_violation(window, |free| free.fits(per_node)).is_none()
            };
            let free = domain.nodes.iter();
            let free = free.filter(|ranked| ranked.available_from <= window.start && fits(&ranked.node));
            let free = free.filter(|ranked| is_usable(&ranked.node)).count().min(needed);
            let mut costs = BTreeMap::new();
            for (node, info) in state.node_infos().filter(|(node, _)| is_usable(node)) {
                let fit = class.node_fit(node);
                if !fit.is_some_and(|fit| fit.schedulable && fit.domain.as_ref() == Some(value)) {
                    continue;
                }
                let is_here =
                    |entry: &Entry| entry.server.running().unwrap().nodes.iter().any(|(name, _)| **name == *info.name);
                let mut victims: Vec<_> = all.iter().copied().filter(|victim| is_here(victim.entry)).collect();
                victims.sort_by_key(|Victim { entry, .. }| {
                    (entry.server.priority, Reverse(started_at(entry)), entry.server.id.clone())
                });
                let min_cost = VictimCost::new(&[], info);
                let candidate = Candidate { node, info, domain: value, victims, min_cost };
                let victims = selector.victims_on_node(&candidate);
                costs.extend(victims.map(|victims| (VictimCost::new(&victims, info), victims)));
            }
            let chosen = (0..MAX_NODE_SETS).find_map(|_| {
                let chosen: BTreeMap<_, _> = costs.clone().into_iter().take(needed - free).collect();
                match selector.first_disallowed_node(&chosen) {
                    None => Some(chosen),
                    Some(disallowed) => {
                        costs.remove(disallowed);
                        None
                    }
                }
            });
            let Some(chosen) = chosen.filter(|chosen| chosen.len() + free >= needed) else { continue };
            let devices: i64 = chosen.keys().map(|cost| cost.devices).sum();
            let victims = chosen.values().flatten();
            let victims: BTreeMap<String, (ServerIdx, PreemptionReason)> =
                victims.map(|victim| (victim.entry.server.id.clone(), (victim.server, victim.reason))).collect();
            best = best.into_iter().chain([(victims.len(), devices, victims)]).min();
        }
        best.map(|(_, _, victims)| victims.into_values().collect())
    }

    /// Returns the availability of a node without some servers.
    fn availability_without(
        selector: &VictimSelector<'_>,
        node: NodeIdx,
        info: &NodeInfo,
        removed: &[ServerIdx],
    ) -> Timeline<Resources> {
        let reserved = selector.attempt.node_reservations.get(&node).cloned();
        let mut availability = reserved.unwrap_or_else(|| info.availability());
        for server in removed {
            let victim = Victim { server: *server, entry: selector.state.entry(*server).unwrap() };
            let start = selector.window.start;
            update_availability(&mut availability, info, victim, start, Resources::saturating_add_assign);
        }
        availability
    }

    /// Reports whether the preemptor fits on any node without some servers.
    fn fits_without(selector: &VictimSelector<'_>, removed: &[ServerIdx]) -> bool {
        let VictimSelector { state, attempt, preemptor, .. } = *selector;
        let class = state.request_class(preemptor).unwrap();
        let is_usable = |node: &NodeIdx| {
            !attempt.node_holds.contains(*node)
                && !state.is_rejected_by(preemptor, *node)
                && class.node_fit(*node).is_some_and(|fit| fit.schedulable)
        };
        state.node_infos().filter(|(node, _)| is_usable(node)).any(|(node, info)| {
            selector.missing_resources(&availability_without(selector, node, info, removed)).is_none()
        })
    }

    /// Reports whether a resource is missing on a node of the victim for which it may be preempted.
    fn is_allowed_victim(selector: &VictimSelector<'_>, victim: ServerIdx, removed: &[ServerIdx]) -> bool {
        let VictimSelector { state, preemptor, window, .. } = *selector;
        let request = &preemptor.server.request;
        state.node_infos().filter(|(_, info)| info.usage_of(victim).is_some()).any(|(node, info)| {
            let availability = availability_without(selector, node, info, removed);
            availability.violations(window, |free| free.fits(&request.per_node)).any(|free| {
                let set = VictimSet { missing: MissingResources::new(free, request), ..VictimSet::default() };
                selector.preemption_reason(state.entry(victim).unwrap(), &set).is_some()
            })
        })
    }

    fn check(cycle: &SchedulingCycle<'_>) -> Result<usize, TestCaseError> {
        let mut found = 0;
        for entry in cycle.order.iter().filter_map(|server| cycle.state.entry(*server)) {
            let selector = cycle.victim_selector(entry, entry.server.hold_time());
            let selected = selector.select();
            prop_assert_eq!(&selected, &reference_victims(&selector));
            let Some(victims) = selected.filter(|victims| !victims.is_empty()) else { continue };
            found += 1;
            // A server that fits without overlapping reservations preempts no other.
            if entry.server.request.nodes() == 1 && !fits_without(&selector, &[]) {
                let all: Vec<ServerIdx> = victims.iter().map(|(server, _)| *server).collect();
                prop_assert!(fits_without(&selector, &all));
                for victim in &all {
                    let others: Vec<ServerIdx> = all.iter().copied().filter(|other| other != victim).collect();
                    prop_assert!(!fits_without(&selector, &others), "{victim:?} is not needed");
                    prop_assert!(
                        is_allowed_victim(&selector, *victim, &others),
                        "{victim:?} is preempted for its own quota"
                    );
                }
            }
        }
        Ok(found)
    }

    /// Returns a state with nodes (GPUs, zone), running servers and pending servers.
    fn cluster_state(
        policy: &Policy,
        nodes: &[(i64, bool)],
        running: &[ServerParams],
        pending: &[ServerParams],
    ) -> ClusterState {
        let mut state = ClusterState::new();
        let mut apply = |event| state.apply(event, policy.usage_half_life, NOW);
        for (number, (gpus, zone)) in nodes.iter().enumerate() {
            let mut capacity = Resources::default().with_device("gpu", *gpus);
            (capacity.cpu, capacity.pods) = (gpus * 1_000, 100);
            let labels = [("zone".to_owned(), zone.to_string())].into();
            apply(Event::Node(Node { name: format!("n{number}"), labels, capacity, ..Node::default() }));
        }
        for team in ["t0", "t1"] {
            let limits = Limits { devices: Some(6), ..Limits::default() };
            apply(Event::Team(AccountSpec { name: team.into(), limits, ..AccountSpec::default() }));
        }
        for (number, params) in running.iter().enumerate() {
            let mut server = params.server(&format!("r{number}"));
            server.request.nodes = 1;
            let on = vec![(format!("n{}", params.node % nodes.len()), server.request.per_node.clone())];
            let end = params.lifetime.map(|lifetime| NOW + lifetime);
            server.state =
                ServerState::Running(RunInfo { nodes: on, started_at: params.started_at, end, terminating: false });
            apply(Event::Server(Box::new(server)));
        }
        for (number, params) in pending.iter().enumerate() {
            apply(Event::Server(Box::new(params.server(&format!("w{number}")))));
        }
        state
    }

    #[derive(Clone, Debug)]
    struct ServerParams {
        gpus: i64,
        nodes: u32,
        lifetime: Option<i64>,
        started_at: i64,
        priority: usize,
        team: Option<usize>,
        preemptible: bool,
        node: usize,
    }

    impl ServerParams {
        fn server(&self, id: &str) -> Server {
            let mut server = server(id, self.started_at);
            server.request.per_node = server.request.per_node.with_device("gpu", self.gpus);
            (server.request.nodes, server.request.topology) = (self.nodes, Some("zone".into()));
            server.team = self.team.map(|team| format!("t{team}"));
            server.priority = [Priority::Low, Priority::Normal, Priority::High][self.priority];
            (server.preemptible, server.max_hold_time) = (self.preemptible, self.lifetime);
            server
        }
    }

    fn server_params() -> impl Strategy<Value = ServerParams> {
        let request = (1..5_i64, prop_oneof![4 => Just(1_u32), 1 => Just(2_u32)], prop::option::of(60..9_000_i64));
        let owner = (0..4_000_i64, 0..3_usize, prop::option::of(0..2_usize), prop::bool::weighted(0.7), 0..9_usize);
        let params = |((gpus, nodes, lifetime), (started_at, priority, team, preemptible, node))| ServerParams {
            gpus,
            nodes,
            lifetime,
            started_at,
            priority,
            team,
            preemptible,
            node,
        };
        (request, owner).prop_map(params)
    }

    proptest! {
        #[test]
        fn selection_equals_reference(
            nodes in prop::collection::vec((4..9_i64, any::<bool>()), 1..6),
            running in prop::collection::vec(server_params(), 0..14),
            pending in prop::collection::vec(server_params(), 1..8),
        ) {
            let policy = Policy::default();
            let mut state = cluster_state(&policy, &nodes, &running, &pending);
            let mut cycle = SchedulingCycle::new(&mut state, &policy, NOW);
            check(&cycle)?;
            // With reservations and pending preemptions.
            cycle.run();
            check(&cycle)?;
        }
    }

    #[test]
    fn victims_are_found() {
        let running = |started_at| ServerParams {
            gpus: 2,
            nodes: 1,
            lifetime: None,
            started_at,
            priority: 0,
            team: None,
            preemptible: true,
            node: 0,
        };
        let preemptor = ServerParams { priority: 2, lifetime: Some(60), preemptible: false, ..running(0) };
        let policy = Policy::default();
        let mut state = cluster_state(&policy, &[(4, false)], &[running(0), running(5)], &[preemptor]);
        assert_eq!(check(&SchedulingCycle::new(&mut state, &policy, NOW)).unwrap(), 1);
    }

    #[test]
    fn reserved_node_with_enough_capacity_needs_no_victim() {
        let params = |gpus, lifetime, preemptible, node| {
            let priority = if preemptible { 0 } else { 2 };
            ServerParams { gpus, nodes: 1, lifetime, started_at: 0, priority, team: None, preemptible, node }
        };
        let running = [params(2, None, true, 0), params(3, Some(100), false, 0), params(3, Some(5_000), true, 1)];
        // The first pending server has a reservation on the first node, which has capacity for one pod of the gang too.
        let gang = ServerParams { nodes: 2, started_at: 1, ..params(2, None, false, 0) };
        let policy = Policy::default();
        let pending = [params(4, None, false, 0), gang];
        let plan = cluster_state(&policy, &[(8, false), (4, false)], &running, &pending).plan(&policy, NOW);
        let preemptions = plan.preemptions.iter();
        let preemptions: Vec<_> = preemptions.map(|one| (one.id.as_str(), one.preemptor.as_str())).collect();
        assert_eq!(preemptions, [("r2", "w1")]);
    }
}
