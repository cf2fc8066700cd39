//! Converts a snapshot into the scheduler's input.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::capacity::NodeCapacity;
use super::revocation::{HeldResources, Review};
use super::{NodeRejections, Policy, QueueIntent, Server, Snapshot};
use crate::cluster::Readiness;
use crate::resources::Resources;
use crate::scheduler::{self, AccountSpec, Limits, Node, NodeState, Request, RunInfo, ServerState};

/// The cluster after the review of all admissions.
pub(super) struct SchedulerInput {
    pub nodes: Vec<Node>,
    pub servers: Vec<scheduler::Server>,
    pub users: Vec<AccountSpec>,
    pub teams: Vec<AccountSpec>,
}

impl SchedulerInput {
    pub fn new(
        snapshot: &Snapshot<'_>,
        review: &Review<'_>,
        rejections: &NodeRejections,
        policy: &Policy,
        now: Timestamp,
    ) -> Self {
        let users = snapshot.accounts.users.iter();
        let teams = snapshot.accounts.teams.iter();
        Self {
            nodes: review.capacity.iter().map(|capacity| node(capacity, policy, now)).collect(),
            servers: terminating_usage(review).chain(servers(snapshot, review, rejections, policy, now)).collect(),
            users: users.map(|(name, account)| to_account_spec(name.as_str(), account)).collect(),
            teams: teams.map(|(name, account)| to_account_spec(name.as_str(), account)).collect(),
        }
    }
}

/// Returns one pseudo-server per node for pods of servers that are terminating or whose admission was revoked. When they end
/// is unknown.
fn terminating_usage<'a>(review: &'a Review<'_>) -> impl Iterator<Item = scheduler::Server> + 'a {
    let mut held: BTreeMap<&str, Resources> = BTreeMap::new();
    for (node, amounts) in review.valid.iter().flat_map(|held| &held.nodes) {
        let sum = held.entry(*node).or_default();
        *sum = sum.saturating_add(amounts);
    }
    review.capacity.iter().filter_map(move |capacity| {
        let none = Resources::default();
        let held = held.get(capacity.node.name.as_str()).unwrap_or(&none);
        let terminating = capacity.max_available.saturating_sub(&capacity.free).saturating_sub(held);
        (terminating != none).then(|| terminating_server(&capacity.node.name, terminating))
    })
}

fn servers<'a>(
    snapshot: &'a Snapshot<'_>,
    review: &'a Review<'_>,
    rejections: &'a NodeRejections,
    policy: &'a Policy,
    now: Timestamp,
) -> impl Iterator<Item = scheduler::Server> + 'a {
    let held: BTreeMap<&str, &HeldResources<'_>> =
        review.valid.iter().map(|held| (held.server.uid.as_str(), held)).collect();
    snapshot.servers.iter().filter_map(move |server| {
        let held = held.get(server.uid.as_str());
        if server.ended && held.is_none() {
            return None;
        }
        let is_revoked = review.revoked.contains_key(server.uid.as_str());
        // An invalid server has no hold time; nothing is reserved for it.
        let is_booking = server.intent == QueueIntent::Postponed
            && server.max_hold_time.is_some()
            && server.not_before.is_some_and(|start| start > now);
        let is_inadmissible = snapshot.inadmissible.contains(&server.uid);
        let state = match held {
            Some(held) => ServerState::Running(running(server, held, policy, now)),
            None if is_inadmissible => ServerState::Inactive,
            None if server.is_admitted() && !is_revoked => ServerState::Inactive,
            None if server.intent == QueueIntent::Run || is_booking => ServerState::Pending,
            None => ServerState::Inactive,
        };
        let converted = to_scheduler(server, rejections);
        // The preemption of an inadmissible server could not be written.
        let preemptible = converted.preemptible && !is_inadmissible;
        Some(scheduler::Server { preemptible, excluded_this_cycle: is_revoked, state, ..converted })
    })
}

fn running(server: &Server, held: &HeldResources<'_>, policy: &Policy, now: Timestamp) -> RunInfo {
    let grace_period = policy.scheduler.termination_grace_period.max(0);
    let preempted_end = server.preempt_at().map(|time| time.as_second().saturating_add(grace_period));
    let release_time = server.release_time.map(Timestamp::as_second);
    RunInfo {
        nodes: held.nodes.iter().map(|(node, amounts)| ((*node).to_owned(), amounts.clone())).collect(),
        started_at: admitted_at(server).unwrap_or(now.as_second()),
        end: release_time.into_iter().chain(preempted_end).min(),
        terminating: server.is_stopped() || preempted_end.is_some(),
    }
}

/// Returns a server as it is after its admission.
pub(super) fn admitted(server: &scheduler::Server, nodes: &[String], now: Timestamp) -> scheduler::Server {
    let nodes = nodes.iter().map(|node| (node.clone(), server.request.per_node.clone())).collect();
    let end = server.max_hold_time.map(|hold_time| now.as_second().saturating_add(hold_time));
    let state = ServerState::Running(RunInfo { nodes, started_at: now.as_second(), end, terminating: false });
    scheduler::Server { state, ..server.clone() }
}

/// Returns a server as it is after its preemption.
pub(super) fn preempted(server: &scheduler::Server, end: i64) -> scheduler::Server {
    let mut preempted = server.clone();
    if let ServerState::Running(running) = &mut preempted.state {
        running.terminating = true;
        running.end = Some(running.end.map_or(end, |before| before.min(end)));
    }
    preempted.preemptions = preempted.preemptions.saturating_add(1);
    preempted
}

fn node(capacity: &NodeCapacity<'_>, policy: &Policy, now: Timestamp) -> Node {
    let node = capacity.node;
    let state = match node.readiness {
        _ if node.cordoned => NodeState::Unschedulable,
        Readiness::Ready => NodeState::Schedulable,
        Readiness::New => NodeState::Unschedulable,
        Readiness::Unready(_) if node.is_lost(policy.node_lost_timeout, now) => NodeState::Unschedulable,
        // By then it is either ready or lost.
        Readiness::Unready(since) => {
            let timeout = i64::try_from(policy.node_lost_timeout.as_secs()).unwrap_or(i64::MAX);
            NodeState::UnavailableUntil(since.as_second().saturating_add(timeout).saturating_add(1))
        }
    };
    Node {
        name: node.name.clone(),
        labels: node.labels.clone(),
        taints: node.taints.clone(),
        capacity: capacity.capacity.clone(),
        foreign_usage: capacity.capacity.saturating_sub(&capacity.max_available),
        state,
    }
}

fn terminating_server(node: &str, amounts: Resources) -> scheduler::Server {
    let nodes = vec![(node.to_owned(), amounts)];
    scheduler::Server {
        id: format!("pods on {node}"),
        name: String::new(),
        owner: String::new(),
        team: None,
        flavor: String::new(),
        request: Request::default(),
        priority: odc_api::v1alpha1::Priority::Normal,
        preemptible: false,
        queued_at: 0,
        not_before: None,
        booking_confirmed: false,
        max_hold_time: None,
        preemptions: 0,
        rejected_by: BTreeMap::new(),
        excluded_this_cycle: false,
        state: ServerState::Running(RunInfo { nodes, started_at: 0, end: None, terminating: true }),
    }
}

/// Converts a server without its state.
pub(super) fn to_scheduler(server: &Server, rejections: &NodeRejections) -> scheduler::Server {
    let admission = server.admission.as_ref();
    let rejected_by = rejections.for_server(&server.uid);
    scheduler::Server {
        id: server.uid.clone(),
        name: format!("{}/{}", server.namespace, server.name),
        owner: server.owner.to_string(),
        team: server.team.as_ref().map(ToString::to_string),
        flavor: server.flavor.to_string(),
        request: server.request.clone(),
        priority: server.priority,
        // Borrowed quota can be reclaimed even if the server is not preemptible any more.
        preemptible: server.preemptible || admission.and_then(|admission| admission.borrowed).unwrap_or(false),
        queued_at: server.queued_at.as_second(),
        not_before: server.not_before.map(Timestamp::as_second),
        booking_confirmed: server.confirmed_booking().is_some(),
        max_hold_time: server.max_hold_time.map(|hold_time| i64::try_from(hold_time.as_secs()).unwrap_or(i64::MAX)),
        preemptions: admission.and_then(|admission| admission.preemptions).unwrap_or(0),
        rejected_by: rejected_by.map(|rejection| (rejection.node.clone(), rejection.message.to_string())).collect(),
        excluded_this_cycle: false,
        state: ServerState::Inactive,
    }
}

fn admitted_at(server: &Server) -> Option<i64> {
    server.admission.as_ref()?.admitted_at.as_ref().map(|time| time.0.as_second())
}

pub(super) fn limits(quota: &Quota) -> Limits {
    Limits {
        servers: quota.servers,
        devices: quota.devices.map(i64::from),
        flavors: quota.flavors.iter().map(|(flavor, limit)| (flavor.clone(), i64::from(*limit))).collect(),
        cpu: quota.cpu.map(Quantity::nanos),
        memory: quota.memory.map(Quantity::nanos),
    }
}

pub(super) fn to_account_spec(name: &str, account: &super::Account) -> AccountSpec {
    let super::Account { quota, weight, borrowing_limit, .. } = account;
    AccountSpec {
        name: name.to_owned(),
        weight: *weight,
        limits: limits(quota),
        borrowing_limit: borrowing_limit.map(i64::from),
        usage: None,
    }
}
