//! What a plan costs, by the number of nodes. A decision is what a plan says about one server: its nodes, or its place,
//! planned start and what stands in the way.

use std::fmt::Write as _;
use std::time::Duration;

use odc_api::v1alpha1::Priority;
use odc_core::amounts::Amounts;
use odc_core::scheduler::{Ask, Event, Node, Plan, Policy, Running, Server, State, World};
use odc_core::sim::Dice;

const PENDING: u32 = 50_000;
const SIZES: [u32; 4] = [100, 500, 1_000, 5_000];
const ROUNDS: u32 = 5;
/// Servers that leave between two plans.
const LEAVE: usize = 64;

pub(super) fn measure() -> anyhow::Result<String> {
    let mut report = format!(
        "Kernel, {PENDING} pending, 12 teams, gangs among them; {LEAVE} servers leave between two plans.\n\n\
         | nodes | running | CPU ms per plan | decisions/s | one event, CPU µs |\n|--:|--:|--:|--:|--:|\n"
    );
    let mut first = None;
    let mut ratio = 0.0;
    for nodes in SIZES {
        let (per_plan, decisions, event, running) = of(nodes);
        let rate = decisions / per_plan.as_secs_f64();
        ratio = *first.get_or_insert(rate) / rate;
        let (plan, event) = (per_plan.as_secs_f64() * 1e3, event.as_secs_f64() * 1e6);
        writeln!(report, "| {nodes} | {running} | {plan:.1} | {rate:.0} | {event:.1} |")?;
    }
    writeln!(report, "\nFrom {} to {} nodes a decision costs {ratio:.2} times as much.\n", SIZES[0], SIZES[3])?;
    Ok(report)
}

fn of(nodes: u32) -> (Duration, f64, Duration, usize) {
    let policy = Policy::default();
    let mut dice = Dice(7);
    let mut world = World::new();
    for node in 0..nodes {
        let mut capacity = Amounts::default().with_device("gpu", 8);
        (capacity.cpu, capacity.pods) = (128_000, 110);
        let name = format!("node-{node:05}");
        let zone = [("zone".to_owned(), format!("z{}", node % 4))].into();
        world.apply(Event::Node(Node { name, labels: zone, capacity, ..Node::default() }), policy.half_life, 0);
    }
    let mut running = Vec::new();
    for node in 0..nodes {
        for part in 0..4_u32 {
            let mut server = server(&format!("run-{node}-{part}"), 2, 1, &mut dice);
            let on = vec![(format!("node-{node:05}"), server.ask.each.clone())];
            let end = Some(10_000 + dice.number(1_000_000));
            server.state = State::Running(Running { on, since: 0, end, leaving: false });
            running.push(server.id.clone());
            world.apply(Event::Server(Box::new(server)), policy.half_life, 0);
        }
    }
    for number in 0..PENDING {
        let (devices, gang) = ([1, 2, 4, 8][usize::try_from(dice.roll(4)).unwrap_or_default()], dice.roll(20) == 0);
        let server = server(&format!("wait-{number:05}"), devices, if gang { 2 } else { 1 }, &mut dice);
        world.apply(Event::Server(Box::new(server)), policy.half_life, 0);
    }
    let (mut spent, mut told, mut events, mut decided) = (Duration::ZERO, Duration::ZERO, 0_u32, 0);
    for round in 0..=ROUNDS {
        let now = i64::from(round) * 60;
        let begun = worked();
        for _ in 0..LEAVE.min(running.len()) {
            let at = usize::try_from(dice.roll(u64::try_from(running.len()).unwrap_or(1))).unwrap_or_default();
            world.apply(Event::ServerGone(running.swap_remove(at)), policy.half_life, now);
            events += 1;
        }
        told += worked().saturating_sub(begun);
        let begun = worked();
        let plan = world.plan(&policy, now);
        // The first one is of a world that was never planned.
        if round > 0 {
            spent += worked().saturating_sub(begun);
            decided += plan.waits.len() + plan.grants.len();
        }
        carry_out(&mut world, &plan, &policy, now, &mut running);
    }
    let decisions = f64::from(u32::try_from(decided).unwrap_or(u32::MAX)) / f64::from(ROUNDS);
    (spent / ROUNDS, decisions, told / events.max(1), running.len())
}

/// How long this thread has worked: what others do on the machine is not measured.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn carry_out(world: &mut World, plan: &Plan, policy: &Policy, now: i64, running: &mut Vec<String>) {
    for grant in &plan.grants {
        let Some(mut server) = world.get(&grant.id).cloned() else { continue };
        let on = grant.nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
        let end = server.lifetime.map(|lifetime| now + lifetime);
        server.state = State::Running(Running { on, since: now, end, leaving: false });
        running.push(server.id.clone());
        world.apply(Event::Server(Box::new(server)), policy.half_life, now);
    }
}

fn server(id: &str, devices: i64, nodes: u32, dice: &mut Dice) -> Server {
    let mut each = Amounts::default().with_device("gpu", devices);
    (each.cpu, each.pods) = (8_000 * devices, 1);
    let topology = (nodes > 1).then(|| "zone".to_owned());
    let user = dice.roll(240);
    Server {
        id: id.to_owned(),
        name: id.to_owned(),
        owner: format!("user-{user}"),
        team: Some(format!("team-{}", user % 12)),
        flavor: "gpu".to_owned(),
        ask: Ask { nodes, each, device: Some("gpu".to_owned()), topology, ..Ask::default() },
        priority: if dice.roll(10) == 0 { Priority::High } else { Priority::Normal },
        preemptible: false,
        queued: dice.number(3_600) - 3_600,
        not_before: None,
        booked: false,
        lifetime: Some(3_600 * (1 + dice.number(24))),
        preemptions: 0,
        unfit: std::collections::BTreeMap::new(),
        barred: false,
        state: State::Waiting,
    }
}
