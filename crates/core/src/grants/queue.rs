//! The facts as the scheduler is told them: nodes with what others use, servers that hold something, servers that wait.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::quantity::Quantity;
use odc_api::v1alpha1::Quota;

use super::revoke::{Held, Review};
use super::room::Place;
use super::{Facts, Policy, Refusals, Server, Want, due};
use crate::amounts::Amounts;
use crate::scheduler::{self};
use crate::scheduler::{Account, Ask, Event, Forecast, Limits, Node, Running, Service, State, World};
use crate::seen::Readiness;

/// A world of what is so after the review of all grants.
pub(super) fn world(
    facts: &Facts<'_>,
    review: &Review<'_>,
    unfit: &Refusals,
    policy: &Policy,
    now: Timestamp,
) -> (World, Forecast) {
    let (mut world, mut forecast) = (World::new(), Forecast::new());
    let second = now.as_second();
    let mut tell = |event: Event| {
        world.apply(event.clone(), policy.queue.half_life, second);
        forecast.apply(&event, &world, policy.queue.half_life, second);
    };
    let mut held: BTreeMap<&str, Amounts> = BTreeMap::new();
    for (node, what) in review.kept.iter().flat_map(|kept| &kept.on) {
        let sum = held.entry(*node).or_default();
        *sum = sum.plus(what);
    }
    // All nodes before any server: a new node has to look for servers that were told of before it.
    for (_, place) in review.room.all() {
        tell(Event::Node(node(place, policy, now)));
    }
    for (_, place) in review.room.all() {
        // Pods that are on their way out, or whose grant is gone. Nobody knows how long they take.
        let none = Amounts::default();
        let known = held.get(place.node.name.as_str()).unwrap_or(&none);
        let leaving = place.ceiling.minus(&place.free).minus(known);
        if leaving != none {
            tell(Event::Server(Box::new(leftover(&place.node.name, leaving, second))));
        }
    }
    for (name, quota) in &facts.quotas.users {
        tell(Event::User(account(name.as_str(), quota)));
    }
    for (name, quota) in &facts.quotas.teams {
        tell(Event::Team(account(name.as_str(), quota)));
    }
    let kept: BTreeMap<&str, &Held<'_>> = review.kept.iter().map(|kept| (kept.server.uid.as_str(), kept)).collect();
    for server in facts.servers.iter().filter(|server| !server.ended || kept.contains_key(server.uid.as_str())) {
        let barred = review.revoked.contains_key(server.uid.as_str());
        // What is not valid has no known end, and nothing is kept for it.
        let booked =
            server.want == Want::Later && server.lifetime.is_some() && server.not_before.is_some_and(|at| at > now);
        let state = match kept.get(server.uid.as_str()) {
            Some(kept) => State::Running(Running {
                on: kept.on.iter().map(|(node, what)| ((*node).to_owned(), what.clone())).collect(),
                since: granted_at(server).unwrap_or(second),
                end: server.ends.map(Timestamp::as_second),
                leaving: server.rests(),
            }),
            None if server.is_granted() && !barred => State::Resting,
            None if server.want == Want::Run || booked => State::Waiting,
            None => State::Resting,
        };
        tell(Event::Server(Box::new(scheduler::Server { barred, state, ..told(server, unfit) })));
    }
    (world, forecast)
}

/// What a grant makes of a server.
pub(super) fn started(world: &World, id: &str, nodes: &[String], now: Timestamp) -> Option<Event> {
    let server = world.get(id)?.clone();
    let on = nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
    let end = server.lifetime.map(|lifetime| now.as_second().saturating_add(lifetime));
    let state = State::Running(Running { on, since: now.as_second(), end, leaving: false });
    Some(Event::Server(Box::new(scheduler::Server { state, ..server })))
}

fn node(place: &Place<'_>, policy: &Policy, now: Timestamp) -> Node {
    let seen = place.node;
    let service = match seen.readiness {
        _ if seen.cordoned => Service::Closed,
        Readiness::Ready => Service::Open,
        Readiness::New => Service::Closed,
        Readiness::Unready(_) => match due::until_lost(seen, policy.lost_after, now) {
            Some(left) => {
                let left = i64::try_from(left.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
                Service::Back(now.as_second().saturating_add(left))
            }
            None => Service::Closed,
        },
    };
    Node {
        name: seen.name.clone(),
        labels: seen.labels.clone(),
        taints: seen.taints.clone(),
        capacity: seen.allocatable.clone(),
        others: seen.allocatable.minus(&place.ceiling),
        service,
    }
}

fn leftover(node: &str, what: Amounts, now: i64) -> scheduler::Server {
    scheduler::Server {
        id: format!("pods on {node}"),
        name: String::new(),
        owner: String::new(),
        team: None,
        flavor: String::new(),
        ask: Ask::default(),
        priority: odc_api::v1alpha1::Priority::Normal,
        preemptible: false,
        queued: now,
        not_before: None,
        booked: false,
        lifetime: None,
        preemptions: 0,
        unfit: BTreeMap::new(),
        barred: false,
        state: State::Running(Running { on: vec![(node.to_owned(), what)], since: now, end: None, leaving: true }),
    }
}

pub(super) fn told(server: &Server, unfit: &Refusals) -> scheduler::Server {
    scheduler::Server {
        id: server.uid.clone(),
        name: format!("{}/{}", server.namespace, server.name),
        owner: server.owner.to_string(),
        team: server.team.as_ref().map(ToString::to_string),
        flavor: server.flavor.to_string(),
        ask: server.request.clone(),
        priority: server.priority,
        preemptible: server.preemptible,
        queued: server.since.as_second(),
        not_before: server.not_before.map(Timestamp::as_second),
        booked: false,
        lifetime: server.lifetime.map(|left| i64::try_from(left.as_secs()).unwrap_or(i64::MAX)),
        preemptions: 0,
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
        flavors: BTreeMap::new(),
        cpu: quota.cpu.map(Quantity::nanos),
        memory: quota.memory.map(Quantity::nanos),
    }
}

fn account(name: &str, quota: &Quota) -> Account {
    let limits = limits(quota);
    // Lending and giving back need notice and a stop, which are not carried out yet.
    Account { name: name.to_owned(), weight: 1, limits, borrow: Some(0), used: None }
}
