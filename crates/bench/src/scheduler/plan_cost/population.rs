//! Generates full clusters with a long queue, reproducibly.

use std::collections::{BTreeMap, HashSet};

use odc_api::v1alpha1::Priority;
use odc_core::resources::Resources;
use odc_core::scheduler::{
    AccountSpec, ClusterState, Event, Limits, Node, Policy, Request, RunInfo, Server, ServerState,
};
use odc_core::sim::Rng;

const TEAMS: u32 = 12;
const USERS: u32 = 240;
const PER_NODE: i64 = 8;
/// One of this many pending servers is a booking.
const PENDING_PER_BOOKING: u64 = 500;
const GIBIBYTE: i64 = 1 << 30;

/// What is used in addition to priority, fair share, gangs and backfill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// Nothing; all nodes are equal, and requests differ only in size.
    Basic,
    /// Flavors with their own nodes, quotas of teams by flavor and of users, bookings, and requests for one zone.
    Quotas,
    /// The same with preemptible servers and borrowing.
    Preemption,
    /// One team uses all devices with small preemptible servers and borrows half a node. All others request whole nodes, so
    /// that all victim selections fail.
    BorrowingBelowPreemption,
}

impl Scenario {
    /// Returns the number of servers that end between two plans. With little borrowed quota they would free more than that.
    pub const fn ends_per_plan(self) -> usize {
        if matches!(self, Self::BorrowingBelowPreemption) { 0 } else { 64 }
    }

    const fn has_flavors(self) -> bool {
        matches!(self, Self::Quotas | Self::Preemption)
    }
}

impl std::fmt::Display for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Basic => "with gangs; without quotas",
            Self::Quotas => "with gangs, flavors, quotas by flavor and bookings",
            Self::Preemption => "with gangs, flavors, quotas by flavor, bookings, borrowing and preemptible servers",
            Self::BorrowingBelowPreemption => {
                "requests for whole nodes; with preemptible servers on all nodes, of which too few borrow"
            }
        })
    }
}

pub(super) struct Population {
    pub state: ClusterState,
    /// Ids of running servers.
    pub running: Vec<String>,
    /// Number of request classes of pending servers.
    pub classes: usize,
}

struct Flavor {
    name: &'static str,
    /// Cores and GiB per device.
    cpu: i64,
    memory: i64,
}

const FLAVORS: [Flavor; 4] = [
    Flavor { name: "h100", cpu: 16, memory: 192 },
    Flavor { name: "a100", cpu: 12, memory: 128 },
    Flavor { name: "l40", cpu: 8, memory: 64 },
    Flavor { name: "t4", cpu: 4, memory: 32 },
];

/// Generates a cluster in which all devices are used.
pub(super) fn generate(scenario: Scenario, nodes: u32, pending: u32, policy: &Policy, rng: &mut Rng) -> Population {
    let mut state = ClusterState::new();
    let mut apply = |event| state.apply(event, policy.usage_half_life, 0);
    accounts(scenario, nodes).into_iter().for_each(&mut apply);
    let mut running = Vec::new();
    for number in 0..nodes {
        let name = format!("node-{number:05}");
        let flavor = flavor(scenario, number.into());
        let mut capacity = Resources::default().with_device("gpu", PER_NODE);
        (capacity.cpu, capacity.memory, capacity.pods) = (128_000, 2_048 * GIBIBYTE, 110);
        let mut labels: BTreeMap<_, _> = [("zone".to_owned(), format!("z{}", number / 4 % 4))].into();
        labels.insert("model".to_owned(), flavor.name.to_owned());
        apply(Event::Node(Node { name: name.clone(), labels, capacity, ..Node::default() }));
        let size = if scenario == Scenario::BorrowingBelowPreemption { 1 } else { 2 };
        for part in 0..PER_NODE / size {
            let mut server = server(&format!("run-{number}-{part}"), scenario, flavor, (size, 1), rng);
            if scenario == Scenario::BorrowingBelowPreemption {
                (server.team, server.preemptible) = (Some("team-0".to_owned()), true);
                server.priority = Priority::Normal;
            }
            let nodes = vec![(name.clone(), server.request.per_node.clone())];
            let end = Some(10_000 + rng.number(1_000_000));
            // Not exempt from preemption.
            server.state = ServerState::Running(RunInfo { nodes, started_at: -3_600, end, terminating: false });
            running.push(server.id.clone());
            apply(Event::Server(Box::new(server)));
        }
    }
    let mut classes = HashSet::new();
    for number in 0..pending {
        let (devices, gang) = (*rng.choose(&[1, 2, 4, 8]).unwrap_or(&1), rng.below(20) == 0);
        let size = (devices, if gang { 2 } else { 1 });
        let size = if scenario == Scenario::BorrowingBelowPreemption { (PER_NODE, 1) } else { size };
        let mut server = server(&format!("wait-{number:05}"), scenario, flavor(scenario, rng.below(4)), size, rng);
        match scenario {
            Scenario::Basic => {}
            Scenario::Quotas | Scenario::Preemption => add_constraints(&mut server, rng),
            Scenario::BorrowingBelowPreemption => {
                server.team = Some(format!("team-{}", 1 + rng.below(u64::from(TEAMS) - 1)));
                server.priority = Priority::Normal;
            }
        }
        classes.insert(format!("{:?}", server.request));
        apply(Event::Server(Box::new(server)));
    }
    Population { state, running, classes: classes.len() }
}

fn flavor(scenario: Scenario, number: u64) -> &'static Flavor {
    let index = if scenario.has_flavors() { number % 4 } else { 2 };
    usize::try_from(index).ok().and_then(|index| FLAVORS.get(index)).unwrap_or(&FLAVORS[0])
}

fn server(id: &str, scenario: Scenario, flavor: &Flavor, (devices, nodes): (i64, u32), rng: &mut Rng) -> Server {
    let mut per_node = Resources::default().with_device("gpu", devices);
    (per_node.cpu, per_node.memory, per_node.pods) =
        (flavor.cpu * 1_000 * devices, flavor.memory * GIBIBYTE * devices, 1);
    let topology = (nodes > 1).then(|| "zone".to_owned());
    let selector = scenario.has_flavors().then(|| ("model".to_owned(), flavor.name.to_owned()));
    let selector = selector.into_iter().collect();
    let user = rng.below(USERS.into());
    Server {
        id: id.to_owned(),
        name: id.to_owned(),
        owner: format!("user-{user}"),
        team: Some(format!("team-{}", user % u64::from(TEAMS))),
        flavor: flavor.name.to_owned(),
        request: Request { nodes, per_node, device: Some("gpu".to_owned()), selector, topology, ..Request::default() },
        priority: if rng.below(10) == 0 { Priority::High } else { Priority::Normal },
        preemptible: scenario == Scenario::Preemption && rng.below(4) == 0,
        queued_at: rng.number(3_600) - 3_600,
        not_before: None,
        booking_confirmed: false,
        max_hold_time: Some(3_600 * (1 + rng.number(24))),
        preemptions: 0,
        rejected_by: BTreeMap::new(),
        excluded_this_cycle: false,
        state: ServerState::Pending,
    }
}

/// Restricts some servers to a zone, and makes some bookings.
fn add_constraints(server: &mut Server, rng: &mut Rng) {
    if rng.below(5) == 0 {
        server.request.selector.insert("zone".to_owned(), format!("z{}", rng.below(4)));
    }
    if rng.below(PENDING_PER_BOOKING) == 0 {
        server.not_before = Some(3_600 + rng.number(7 * 24 * 3_600));
    }
}

/// Returns accounts. Teams share the devices of the cluster, may borrow half as many, and may use at most half of their quota
/// for one flavor; a user may use a quarter of the team's. Each tenth user is limited to a hundred servers. With little
/// borrowed quota, one team has nearly all devices.
fn accounts(scenario: Scenario, nodes: u32) -> Vec<Event> {
    let devices = i64::from(nodes) * PER_NODE;
    if scenario == Scenario::Basic {
        return Vec::new();
    }
    if scenario == Scenario::BorrowingBelowPreemption {
        let team = |number: u32| {
            let quota = if number == 0 { devices - PER_NODE / 2 } else { devices };
            let limits = Limits { devices: Some(quota), ..Limits::default() };
            Event::Team(AccountSpec { name: format!("team-{number}"), limits, ..AccountSpec::default() })
        };
        return (0..TEAMS).map(team).collect();
    }
    let share = (devices / i64::from(TEAMS)).max(PER_NODE);
    let team = |team: u32| {
        let flavors = FLAVORS.iter().map(|flavor| (flavor.name.to_owned(), share / 2)).collect();
        let cpu = Some(i128::from(share) * 16_000_000_000);
        let limits = Limits { devices: Some(share), flavors, cpu, ..Limits::default() };
        Event::Team(AccountSpec {
            name: format!("team-{team}"),
            weight: 1 + team % 3,
            limits,
            borrowing_limit: Some(share / 2),
            usage: None,
        })
    };
    let user = |user: u32| {
        let servers = user.is_multiple_of(10).then_some(100);
        let limits = Limits { servers, devices: Some((share / 4).max(PER_NODE)), ..Limits::default() };
        Event::User(AccountSpec { name: format!("user-{user}"), weight: 1, limits, borrowing_limit: None, usage: None })
    };
    (0..TEAMS).map(team).chain((0..USERS).map(user)).collect()
}
