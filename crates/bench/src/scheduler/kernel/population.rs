//! Clusters that are full and have a long queue, the same each time.

use std::collections::{BTreeMap, HashSet};

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Account, Ask, Event, Limits, Node, Policy, Running, Server, State, World};
use odc_core::sim::Dice;

const TEAMS: u32 = 12;
const USERS: u32 = 240;
const PER_NODE: i64 = 8;
/// One in so many that wait is a booking.
const BOOKINGS: u64 = 500;
const GIBIBYTE: i64 = 1 << 30;

/// What there is to be decided besides priority, fair share, gangs and backfill.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// Nothing; all nodes are alike, and so is what people ask for but for its size.
    Few,
    /// Flavors on nodes of their own, quotas of teams by flavor and of users, bookings, and people who want nodes in one
    /// zone.
    Quotas,
    /// And servers that may be asked to leave, for whom teams borrow.
    Preemption,
    /// Everything is in use by one team's small servers, which may be asked to leave, and that team borrows half a node; all
    /// others want whole nodes, so nobody can be asked anywhere.
    LittleLent,
}

impl Rules {
    /// How many servers leave between two plans. Where little is lent they would be more than that.
    pub const fn leave(self) -> usize {
        if matches!(self, Self::LittleLent) { 0 } else { 64 }
    }

    const fn has_flavors(self) -> bool {
        matches!(self, Self::Quotas | Self::Preemption)
    }
}

impl std::fmt::Display for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Few => "gangs among them; without quotas",
            Self::Quotas => "gangs among them; with flavors, quotas by flavor and bookings",
            Self::Preemption => {
                "gangs among them; with flavors, quotas by flavor, bookings, borrowing and preemptible servers"
            }
            Self::LittleLent => {
                "whole nodes asked for; with preemptible servers everywhere, of which too few may be asked to leave"
            }
        })
    }
}

pub(super) struct Population {
    pub world: World,
    /// Ids.
    pub running: Vec<String>,
    /// How many kinds of request wait.
    pub kinds: usize,
}

struct Flavor {
    name: &'static str,
    /// Cores and gibibytes for each device.
    cpu: i64,
    memory: i64,
}

const FLAVORS: [Flavor; 4] = [
    Flavor { name: "h100", cpu: 16, memory: 192 },
    Flavor { name: "a100", cpu: 12, memory: 128 },
    Flavor { name: "l40", cpu: 8, memory: 64 },
    Flavor { name: "t4", cpu: 4, memory: 32 },
];

/// Every node has servers on all of its devices.
pub(super) fn make(rules: Rules, nodes: u32, pending: u32, policy: &Policy, dice: &mut Dice) -> Population {
    let mut world = World::new();
    let mut tell = |event| world.apply(event, policy.half_life, 0);
    accounts(rules, nodes).into_iter().for_each(&mut tell);
    let mut running = Vec::new();
    for number in 0..nodes {
        let name = format!("node-{number:05}");
        let flavor = flavor(rules, number.into());
        let mut capacity = Amounts::default().with_device("gpu", PER_NODE);
        (capacity.cpu, capacity.memory, capacity.pods) = (128_000, 2_048 * GIBIBYTE, 110);
        let mut labels: BTreeMap<_, _> = [("zone".to_owned(), format!("z{}", number / 4 % 4))].into();
        labels.insert("model".to_owned(), flavor.name.to_owned());
        tell(Event::Node(Node { name: name.clone(), labels, capacity, ..Node::default() }));
        let size = if rules == Rules::LittleLent { 1 } else { 2 };
        for part in 0..PER_NODE / size {
            let mut server = server(&format!("run-{number}-{part}"), rules, flavor, (size, 1), dice);
            if rules == Rules::LittleLent {
                (server.team, server.preemptible) = (Some("team-0".to_owned()), true);
                server.priority = Priority::Normal;
            }
            let on = vec![(name.clone(), server.ask.each.clone())];
            let end = Some(10_000 + dice.number(1_000_000));
            // Long enough ago that it may be asked to leave.
            server.state = State::Running(Running { on, since: -3_600, end, leaving: false });
            running.push(server.id.clone());
            tell(Event::Server(Box::new(server)));
        }
    }
    let mut kinds = HashSet::new();
    for number in 0..pending {
        let (devices, gang) = (*dice.pick(&[1, 2, 4, 8]).unwrap_or(&1), dice.roll(20) == 0);
        let size = (devices, if gang { 2 } else { 1 });
        let size = if rules == Rules::LittleLent { (PER_NODE, 1) } else { size };
        let mut server = server(&format!("wait-{number:05}"), rules, flavor(rules, dice.roll(4)), size, dice);
        match rules {
            Rules::Few => {}
            Rules::Quotas | Rules::Preemption => choose(&mut server, dice),
            Rules::LittleLent => {
                server.team = Some(format!("team-{}", 1 + dice.roll(u64::from(TEAMS) - 1)));
                server.priority = Priority::Normal;
            }
        }
        kinds.insert(format!("{:?}", server.ask));
        tell(Event::Server(Box::new(server)));
    }
    Population { world, running, kinds: kinds.len() }
}

fn flavor(rules: Rules, number: u64) -> &'static Flavor {
    let at = if rules.has_flavors() { number % 4 } else { 2 };
    usize::try_from(at).ok().and_then(|at| FLAVORS.get(at)).unwrap_or(&FLAVORS[0])
}

fn server(id: &str, rules: Rules, flavor: &Flavor, (devices, nodes): (i64, u32), dice: &mut Dice) -> Server {
    let mut each = Amounts::default().with_device("gpu", devices);
    (each.cpu, each.memory, each.pods) = (flavor.cpu * 1_000 * devices, flavor.memory * GIBIBYTE * devices, 1);
    let topology = (nodes > 1).then(|| "zone".to_owned());
    let selector = rules.has_flavors().then(|| ("model".to_owned(), flavor.name.to_owned()));
    let selector = selector.into_iter().collect();
    let user = dice.roll(USERS.into());
    Server {
        id: id.to_owned(),
        name: id.to_owned(),
        owner: format!("user-{user}"),
        team: Some(format!("team-{}", user % u64::from(TEAMS))),
        flavor: flavor.name.to_owned(),
        ask: Ask { nodes, each, device: Some("gpu".to_owned()), selector, topology, ..Ask::default() },
        priority: if dice.roll(10) == 0 { Priority::High } else { Priority::Normal },
        preemptible: rules == Rules::Preemption && dice.roll(4) == 0,
        queued: dice.number(3_600) - 3_600,
        not_before: None,
        booked: false,
        lifetime: Some(3_600 * (1 + dice.number(24))),
        preemptions: 0,
        unfit: BTreeMap::new(),
        barred: false,
        state: State::Waiting,
    }
}

/// Some want to be in one zone, and some at a time of their own.
fn choose(server: &mut Server, dice: &mut Dice) {
    if dice.roll(5) == 0 {
        server.ask.selector.insert("zone".to_owned(), format!("z{}", dice.roll(4)));
    }
    if dice.roll(BOOKINGS) == 0 {
        server.not_before = Some(3_600 + dice.number(7 * 24 * 3_600));
    }
}

/// Teams may hold the devices of the cluster among them, half as many more if others do not use theirs, and at most half of
/// their devices in one flavor; a user may hold a quarter of the team's. Every tenth user may only have a hundred servers.
/// Where little is lent, one team may hold nearly all of them.
fn accounts(rules: Rules, nodes: u32) -> Vec<Event> {
    let devices = i64::from(nodes) * PER_NODE;
    if rules == Rules::Few {
        return Vec::new();
    }
    if rules == Rules::LittleLent {
        let team = |number: u32| {
            let own = if number == 0 { devices - PER_NODE / 2 } else { devices };
            let limits = Limits { devices: Some(own), ..Limits::default() };
            Event::Team(Account { name: format!("team-{number}"), limits, ..Account::default() })
        };
        return (0..TEAMS).map(team).collect();
    }
    let share = (devices / i64::from(TEAMS)).max(PER_NODE);
    let team = |team: u32| {
        let flavors = FLAVORS.iter().map(|flavor| (flavor.name.to_owned(), share / 2)).collect();
        let cpu = Some(i128::from(share) * 16_000_000_000);
        let limits = Limits { devices: Some(share), flavors, cpu, ..Limits::default() };
        Event::Team(Account {
            name: format!("team-{team}"),
            weight: 1 + team % 3,
            limits,
            borrow: Some(share / 2),
            used: None,
        })
    };
    let user = |user: u32| {
        let servers = user.is_multiple_of(10).then_some(100);
        let limits = Limits { servers, devices: Some((share / 4).max(PER_NODE)), ..Limits::default() };
        Event::User(Account { name: format!("user-{user}"), weight: 1, limits, borrow: None, used: None })
    };
    (0..TEAMS).map(team).chain((0..USERS).map(user)).collect()
}
