//! What a plan costs, by the number of nodes. A decision is what a plan says about one server: its nodes, or its place,
//! planned start and what stands in the way.

mod callgrind;
mod population;

use std::fmt::Write as _;
use std::time::Duration;

use odc_core::scheduler::{Event, Plan, Policy, Running, State, World};
use odc_core::sim::Dice;

use crate::Report;
use population::{Population, Rules};

const PENDING: u32 = 50_000;
const SIZES: [u32; 4] = [100, 500, 1_000, 5_000];
const ROUNDS: u32 = 5;
/// Of plans that take so long fewer will do.
const ENOUGH: Duration = Duration::from_secs(20);
/// Seconds from one plan to the next.
const BETWEEN: i64 = 60;
/// Goals, where there are few rules: decisions in a second with the most nodes, and how many times as much as with the fewest one may cost there.
const LEAST_RATE: f64 = 200_000.0;
const MOST_GROWTH: f64 = 1.3;

pub(super) fn measure() -> anyhow::Result<Report> {
    let mut report = Report::default();
    for rules in [Rules::Few, Rules::Quotas, Rules::Preemption, Rules::LittleLent] {
        table(rules, &mut report)?;
    }
    let [few, many] = [SIZES[0], SIZES[3]].map(|nodes| callgrind::instructions(nodes, PENDING));
    let (few, many) = (few?, many?);
    writeln!(
        report.text,
        "Instructions of a decision, counted by callgrind, {}, with what happens between two plans: {few:.0} at {} nodes, \
         {many:.0} at {}, {:.2} times as many.\n",
        Rules::Few,
        SIZES[0],
        SIZES[3],
        many / few
    )?;
    Ok(report)
}

fn table(rules: Rules, report: &mut Report) -> anyhow::Result<()> {
    let costs: Vec<(u32, Cost)> =
        SIZES.into_iter().map(|nodes| (nodes, of(rules, nodes, PENDING, ROUNDS, worked))).collect();
    let kinds = costs.iter().map(|(_, cost)| cost.kinds).max().unwrap_or_default();
    writeln!(
        report.text,
        "Kernel, {PENDING} pending of {kinds} kinds, 12 teams; {rules}; {} servers leave between two \
         plans.\n\n| nodes | running | asked to leave | CPU ms per plan | decisions/s | goal | one event, CPU µs |\n\
         |--:|--:|--:|--:|--:|--:|--:|",
        rules.leave()
    )?;
    let checked = rules == Rules::Few;
    let (mut first, mut last) = (None, 0.0);
    for (nodes, cost) in costs {
        let Cost { rounds, plans, decisions, event, running, asked, .. } = cost;
        last = decisions as f64 / plans.as_secs_f64();
        first = first.or(Some(last));
        let goal = if checked && nodes == SIZES[3] { format!("≥ {LEAST_RATE}") } else { String::new() };
        let plan = plans.as_secs_f64() * 1e3 / f64::from(rounds);
        let event = event.map_or_else(|| "-".to_owned(), |event| format!("{:.1}", event.as_secs_f64() * 1e6));
        writeln!(report.text, "| {nodes} | {running} | {asked} | {plan:.1} | {last:.0} | {goal} | {event} |")?;
        // Else something else is measured than the table says.
        let dead_ends = rules != Rules::LittleLent || asked == 0;
        report.goal(dead_ends, || format!("{asked} asked to leave at {nodes} nodes, {rules}"));
    }
    let (few, many, growth) = (SIZES[0], SIZES[3], first.unwrap_or(last) / last);
    let goal = if checked { format!(" (goal: ≤ {MOST_GROWTH})") } else { String::new() };
    writeln!(report.text, "\nFrom {few} to {many} nodes a decision costs {growth:.2} times as much{goal}.\n")?;
    if !checked {
        return Ok(());
    }
    report.goal(last >= LEAST_RATE, || format!("{last:.0} decisions/s at {many} nodes, {rules}, not {LEAST_RATE}"));
    report.goal(growth <= MOST_GROWTH, || {
        format!("a decision costs {growth:.2} times as much at {many} nodes as at {few}, {rules}, not {MOST_GROWTH}")
    });
    Ok(())
}

/// Plans so many times after the first, and says how many decisions that were. On a thread of its own, whose memory is
/// mapped: the heap of a static executable's first thread has only 8 MiB under valgrind.
pub(super) fn rehearse(nodes: u32, plans: u32, pending: u32) -> anyhow::Result<u64> {
    // The clock is not asked: it is found by what the kernel said of the machine, which is not where valgrind plays it.
    let rehearsal = std::thread::spawn(move || of(Rules::Few, nodes, pending, plans, || Duration::ZERO).decisions);
    rehearsal.join().map_err(|_| anyhow::anyhow!("the rehearsal panicked"))
}

/// What some plans cost.
struct Cost {
    rounds: u32,
    plans: Duration,
    decisions: u64,
    /// Of one event, if there were any.
    event: Option<Duration>,
    running: usize,
    /// How many gave way to others.
    asked: usize,
    /// How many kinds of request wait at first.
    kinds: usize,
}

/// `worked` says for how long this thread has.
fn of(rules: Rules, nodes: u32, pending: u32, rounds: u32, worked: fn() -> Duration) -> Cost {
    let policy = Policy::default();
    let mut dice = Dice(7);
    let Population { mut world, running, kinds } = population::make(rules, nodes, pending, &policy, &mut dice);
    let mut life = Life { running, leaving: Vec::new(), asked: 0 };
    let (mut spent, mut told, mut events, mut decided) = (Duration::ZERO, Duration::ZERO, 0_u32, 0);
    let mut done = 0;
    for round in 0..=rounds {
        if spent > ENOUGH {
            break;
        }
        done = round;
        let now = i64::from(round) * BETWEEN;
        let begun = worked();
        for _ in 0..rules.leave().min(life.running.len()) {
            let at = usize::try_from(dice.roll(u64::try_from(life.running.len()).unwrap_or(1))).unwrap_or_default();
            world.apply(Event::ServerGone(life.running.swap_remove(at)), policy.half_life, now);
            events += 1;
        }
        told += worked().saturating_sub(begun);
        life.pass(&mut world, &policy, now);
        let begun = worked();
        let plan = world.plan(&policy, now);
        // The first one is of a world that was never planned.
        if round > 0 {
            spent += worked().saturating_sub(begun);
            decided += (plan.waits.len() + plan.grants.len()) as u64;
        }
        life.carry_out(&mut world, &plan, &policy, now);
    }
    let (running, asked) = (life.running.len(), life.asked);
    Cost { rounds: done, plans: spent, decisions: decided, event: told.checked_div(events), running, asked, kinds }
}

/// How long this thread has worked: what others do on the machine is not measured.
fn worked() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// What becomes of plans.
struct Life {
    running: Vec<String>,
    /// Those who were asked to leave, and when they are gone.
    leaving: Vec<(i64, String)>,
    asked: usize,
}

impl Life {
    /// Who was asked to leave by now waits again.
    fn pass(&mut self, world: &mut World, policy: &Policy, now: i64) {
        for (_, id) in self.leaving.extract_if(.., |(end, _)| *end <= now) {
            if let Some(mut server) = world.get(&id).cloned() {
                server.state = State::Waiting;
                world.apply(Event::Server(Box::new(server)), policy.half_life, now);
            }
        }
    }

    fn carry_out(&mut self, world: &mut World, plan: &Plan, policy: &Policy, now: i64) {
        for id in &plan.booked {
            let Some(mut server) = world.get(id).cloned() else { continue };
            server.booked = true;
            world.apply(Event::Server(Box::new(server)), policy.half_life, now);
        }
        for preemption in &plan.preemptions {
            let Some(mut server) = world.get(&preemption.id).cloned() else { continue };
            let State::Running(run) = &mut server.state else { continue };
            (run.end, run.leaving) = (Some(preemption.end), true);
            server.preemptions += 1;
            self.running.retain(|id| *id != server.id);
            self.leaving.push((preemption.end, server.id.clone()));
            self.asked += 1;
            world.apply(Event::Server(Box::new(server)), policy.half_life, now);
        }
        for grant in &plan.grants {
            let Some(mut server) = world.get(&grant.id).cloned() else { continue };
            let on = grant.nodes.iter().map(|node| (node.clone(), server.ask.each.clone())).collect();
            let end = server.lifetime.map(|lifetime| now + lifetime);
            server.state = State::Running(Running { on, since: now, end, leaving: false });
            self.running.push(server.id.clone());
            world.apply(Event::Server(Box::new(server)), policy.half_life, now);
        }
    }
}
