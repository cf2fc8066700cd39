//! The facts as the scheduler is told them: nodes with what others use, servers that hold something, servers that wait.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::revoke::{Held, Review};
use super::room::Place;
use super::{Facts, Policy, Refusals, Server, Want, due};
use crate::amounts::Amounts;
use crate::scheduler::{self, Account, Ask, Limits, Node, Running, Service, State};
use crate::seen::Readiness;

/// Everything there is after the review of all grants.
pub(super) struct Picture {
    pub nodes: Vec<Node>,
    pub servers: Vec<scheduler::Server>,
    pub users: Vec<Account>,
    pub teams: Vec<Account>,
}

impl Picture {
    pub fn of(facts: &Facts<'_>, review: &Review<'_>, unfit: &Refusals, policy: &Policy, now: Timestamp) -> Self {
        let users = facts.accounts.users.iter().map(|(name, account)| told_account(name.as_str(), account));
        let teams = facts.accounts.teams.iter().map(|(name, account)| told_account(name.as_str(), account));
        Self {
            nodes: review.room.all().map(|(_, place)| node(place, policy, now)).collect(),
            servers: leftovers(review).chain(servers(facts, review, unfit, policy, now)).collect(),
            users: users.collect(),
            teams: teams.collect(),
        }
    }
}

/// Pods that are on their way out, or whose grant is gone. Nobody knows how long they take.
fn leftovers<'a>(review: &'a Review<'_>) -> impl Iterator<Item = scheduler::Server> + 'a {
    let mut held: BTreeMap<&str, Amounts> = BTreeMap::new();
    for (node, what) in review.kept.iter().flat_map(|kept| &kept.on) {
        let sum = held.entry(*node).or_default();
        *sum = sum.plus(what);
    }
    review.room.all().filter_map(move |(_, place)| {
        let none = Amounts::default();
        let known = held.get(place.node.name.as_str()).unwrap_or(&none);
        let leaving = place.ceiling.minus(&place.free).minus(known);
        (leaving != none).then(|| leftover(&place.node.name, leaving))
    })
}

fn servers<'a>(
    facts: &'a Facts<'_>,
    review: &'a Review<'_>,
    unfit: &'a Refusals,
    policy: &'a Policy,
    now: Timestamp,
) -> impl Iterator<Item = scheduler::Server> + 'a {
    let kept: BTreeMap<&str, &Held<'_>> = review.kept.iter().map(|kept| (kept.server.uid.as_str(), kept)).collect();
    facts.servers.iter().filter_map(move |server| {
        let held = kept.get(server.uid.as_str());
        if server.ended && held.is_none() {
            return None;
        }
        let barred = review.revoked.contains_key(server.uid.as_str());
        // What is not valid has no known end, and nothing is kept for it.
        let booked =
            server.want == Want::Later && server.lifetime.is_some() && server.not_before.is_some_and(|at| at > now);
        let aside = facts.aside.contains(&server.uid);
        let state = match held {
            Some(held) => State::Running(running(server, held, policy, now)),
            None if aside => State::Resting,
            None if server.is_granted() && !barred => State::Resting,
            None if server.want == Want::Run || booked => State::Waiting,
            None => State::Resting,
        };
        let told = told(server, unfit);
        // Nobody waits for somebody to leave who cannot be asked to.
        let preemptible = told.preemptible && !aside;
        Some(scheduler::Server { preemptible, barred, state, ..told })
    })
}

fn running(server: &Server, held: &Held<'_>, policy: &Policy, now: Timestamp) -> Running {
    let ends = server.ends.map(Timestamp::as_second);
    let gone = server.gives_way_at().map(|at| at.as_second().saturating_add(policy.queue.grace.max(0)));
    Running {
        on: held.on.iter().map(|(node, what)| ((*node).to_owned(), what.clone())).collect(),
        since: granted_at(server).unwrap_or(now.as_second()),
        end: ends.into_iter().chain(gone).min(),
        leaving: server.rests() || gone.is_some(),
    }
}

/// What a grant makes of a server.
pub(super) fn started(server: &scheduler::Server, nodes: &[String], now: Timestamp) -> scheduler::Server {
    let on = nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
    let end = server.lifetime.map(|lifetime| now.as_second().saturating_add(lifetime));
    let state = State::Running(Running { on, since: now.as_second(), end, leaving: false });
    scheduler::Server { state, ..server.clone() }
}

/// What it makes of one that it has to leave by a time.
pub(super) fn asked_to_leave(server: &scheduler::Server, end: i64) -> scheduler::Server {
    let mut asked = server.clone();
    if let State::Running(running) = &mut asked.state {
        running.leaving = true;
        running.end = Some(running.end.map_or(end, |before| before.min(end)));
    }
    asked.preemptions = asked.preemptions.saturating_add(1);
    asked
}

fn node(place: &Place<'_>, policy: &Policy, now: Timestamp) -> Node {
    let seen = place.node;
    let service = match seen.readiness {
        _ if seen.cordoned => Service::Closed,
        Readiness::Ready => Service::Open,
        Readiness::New => Service::Closed,
        Readiness::Unready(_) if due::is_lost(seen, policy.lost_after, now) => Service::Closed,
        // By then it is known whether it comes back.
        Readiness::Unready(since) => {
            let wait = i64::try_from(policy.lost_after.as_secs()).unwrap_or(i64::MAX);
            Service::Back(since.as_second().saturating_add(wait).saturating_add(1))
        }
    };
    Node {
        name: seen.name.clone(),
        labels: seen.labels.clone(),
        taints: seen.taints.clone(),
        capacity: place.capacity.clone(),
        others: place.capacity.minus(&place.ceiling),
        service,
    }
}

fn leftover(node: &str, what: Amounts) -> scheduler::Server {
    scheduler::Server {
        id: format!("pods on {node}"),
        name: String::new(),
        owner: String::new(),
        team: None,
        flavor: String::new(),
        ask: Ask::default(),
        priority: odc_api::v1alpha1::Priority::Normal,
        preemptible: false,
        queued: 0,
        not_before: None,
        booked: false,
        lifetime: None,
        preemptions: 0,
        unfit: BTreeMap::new(),
        barred: false,
        state: State::Running(Running { on: vec![(node.to_owned(), what)], since: 0, end: None, leaving: true }),
    }
}

pub(super) fn told(server: &Server, unfit: &Refusals) -> scheduler::Server {
    let admission = server.admission.as_ref();
    scheduler::Server {
        id: server.uid.clone(),
        name: format!("{}/{}", server.namespace, server.name),
        owner: server.owner.to_string(),
        team: server.team.as_ref().map(ToString::to_string),
        flavor: server.flavor.to_string(),
        ask: server.request.clone(),
        priority: server.priority,
        // What is lent comes back when it is asked for, whatever its owner says by now.
        preemptible: server.preemptible || admission.and_then(|admission| admission.borrowed).unwrap_or(false),
        queued: server.since.as_second(),
        not_before: server.not_before.map(Timestamp::as_second),
        booked: server.booking().is_some(),
        lifetime: server.lifetime.map(|left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX)),
        preemptions: admission.and_then(|admission| admission.preemptions).unwrap_or(0),
        unfit: unfit.of_server(&server.uid).map(|refusal| (refusal.node.clone(), refusal.why.to_string())).collect(),
        barred: false,
        state: State::Resting,
    }
}

fn granted_at(server: &Server) -> Option<i64> {
    server.admission.as_ref()?.granted_at.as_ref().map(|at| at.0.as_second())
}

pub(super) fn limits(quota: &Quota) -> Limits {
    Limits {
        servers: quota.servers,
        devices: quota.devices.map(i64::from),
        flavors: quota.flavors.iter().map(|(flavor, most)| (flavor.clone(), i64::from(*most))).collect(),
        cpu: quota.cpu.map(Quantity::nanos),
        memory: quota.memory.map(Quantity::nanos),
    }
}

pub(super) fn told_account(name: &str, account: &super::Account) -> Account {
    let super::Account { quota, weight, borrow, .. } = account;
    let limits = limits(quota);
    Account { name: name.to_owned(), weight: *weight, limits, borrow: borrow.map(i64::from), used: None }
}
