//! What a plan costs, by the number of nodes. A decision is what a plan says about one server: its nodes, or its place,
//! planned start and what stands in the way.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
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
        let Cost { plans, decisions, event, running } = of(nodes, ROUNDS);
        let rate = decisions as f64 / plans.as_secs_f64();
        ratio = *first.get_or_insert(rate) / rate;
        let (plan, event) = (plans.as_secs_f64() * 1e3 / f64::from(ROUNDS), event.as_secs_f64() * 1e6);
        writeln!(report, "| {nodes} | {running} | {plan:.1} | {rate:.0} | {event:.1} |")?;
    }
    writeln!(report, "\nFrom {} to {} nodes a decision costs {ratio:.2} times as much.\n", SIZES[0], SIZES[3])?;
    let [few, many] = [instructions(SIZES[0])?, instructions(SIZES[3])?];
    writeln!(
        report,
        "Instructions of a decision, counted by callgrind, with what happens between two plans: {few:.0} at {} nodes, \
         {many:.0} at {}, {:.2} times as many.\n",
        SIZES[0],
        SIZES[3],
        many / few
    )?;
    Ok(report)
}

/// Those of a decision. Counted are two runs that differ only in how often they plan, so that nothing else is in the
/// difference and no symbol is needed.
fn instructions(nodes: u32) -> anyhow::Result<f64> {
    const PLANS: [u32; 2] = [1, 3];
    let [(few, first), (many, all)] = [counted(nodes, PLANS[0])?, counted(nodes, PLANS[1])?];
    anyhow::ensure!(all > first && many > few, "three plans cost no more than one: {many} and {few} instructions");
    Ok((many - few) as f64 / (all - first) as f64)
}

/// All instructions of a rehearsal, and the decisions it made.
fn counted(nodes: u32, plans: u32) -> anyhow::Result<(u64, u64)> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.args(["rehearsal", &nodes.to_string(), &plans.to_string()]).output();
    let output = output.context("valgrind counts instructions; install it")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{command:?}: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    let collected = collected.with_context(|| format!("callgrind said no count: {said}"))?.parse()?;
    Ok((collected, String::from_utf8_lossy(&output.stdout).trim().parse()?))
}

/// Plans so many times after the first, and says how many decisions that were. On a thread of its own, whose memory is
/// mapped: the heap of a static executable's first thread has only 8 MiB under valgrind.
pub(super) fn rehearse(nodes: u32, plans: u32) -> anyhow::Result<u64> {
    let rehearsal = std::thread::spawn(move || of(nodes, plans).decisions);
    rehearsal.join().map_err(|_| anyhow::anyhow!("the rehearsal panicked"))
}

/// What some plans cost.
struct Cost {
    plans: Duration,
    decisions: u64,
    /// Of one event.
    event: Duration,
    running: usize,
}

fn of(nodes: u32, rounds: u32) -> Cost {
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
    for round in 0..=rounds {
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
            decided += (plan.waits.len() + plan.grants.len()) as u64;
        }
        carry_out(&mut world, &plan, &policy, now, &mut running);
    }
    Cost { plans: spent, decisions: decided, event: told / events.max(1), running: running.len() }
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
