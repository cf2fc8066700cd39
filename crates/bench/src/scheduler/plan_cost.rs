//! Cost of a plan by the number of nodes. A decision is the result for one server: its nodes, or its position, planned start
//! and reason.

mod callgrind;
mod population;

use std::fmt::Write as _;
use std::time::Duration;

use odc_core::scheduler::{ClusterState, Event, Plan, Policy, RunInfo, ServerState};
use odc_core::sim::Rng;

use crate::Report;
use population::{Population, Scenario};

const PENDING: u32 = 50_000;
const SIZES: [u32; 4] = [100, 500, 1_000, 5_000];
const ROUNDS: u32 = 5;
/// No more rounds are started after this time.
const MAX_MEASURED_TIME: Duration = Duration::from_secs(20);
/// Seconds from one plan to the next.
const PLAN_INTERVAL: i64 = 60;
/// Goal for the basic scenario: decisions per second with the most nodes.
const MIN_RATE: f64 = 200_000.0;
/// Goal for the basic scenario: cost of a decision with the most nodes, relative to the fewest.
const MAX_GROWTH: f64 = 1.3;

pub(super) fn measure() -> anyhow::Result<Report> {
    let mut report = Report::default();
    for scenario in [Scenario::Basic, Scenario::Quotas, Scenario::Preemption, Scenario::BorrowingBelowPreemption] {
        table(scenario, &mut report)?;
    }
    let [few, many] = [SIZES[0], SIZES[3]].map(|nodes| callgrind::instructions(nodes, PENDING));
    let (few, many) = (few?, many?);
    writeln!(
        report.text,
        "Instructions per decision including events, counted by callgrind, {}: {few:.0} at {} nodes, {many:.0} at {}, {:.2} \
         times as many.\n",
        Scenario::Basic,
        SIZES[0],
        SIZES[3],
        many / few
    )?;
    Ok(report)
}

fn table(scenario: Scenario, report: &mut Report) -> anyhow::Result<()> {
    let costs: Vec<(u32, Cost)> = SIZES
        .into_iter()
        .map(|nodes| (nodes, measure_plans(scenario, nodes, PENDING, ROUNDS, thread_cpu_time)))
        .collect();
    let classes = costs.iter().map(|(_, cost)| cost.classes).max().unwrap_or_default();
    writeln!(
        report.text,
        "Scheduler, {PENDING} pending servers in {classes} request classes, 12 teams; {scenario}; {} servers end between two \
         plans.\n\n| nodes | running | preempted | CPU ms per plan | decisions/s | goal | one event, CPU µs |\n\
         |--:|--:|--:|--:|--:|--:|--:|",
        scenario.ends_per_plan()
    )?;
    let has_goal = scenario == Scenario::Basic;
    let (mut first, mut last) = (None, 0.0);
    for (nodes, cost) in costs {
        let Cost { rounds, plans, decisions, event, running, preempted, .. } = cost;
        last = decisions as f64 / plans.as_secs_f64();
        first = first.or(Some(last));
        let goal = if has_goal && nodes == SIZES[3] { format!("≥ {MIN_RATE}") } else { String::new() };
        let plan = plans.as_secs_f64() * 1e3 / f64::from(rounds);
        let event = event.map_or_else(|| "-".to_owned(), |event| format!("{:.1}", event.as_secs_f64() * 1e6));
        writeln!(report.text, "| {nodes} | {running} | {preempted} | {plan:.1} | {last:.0} | {goal} | {event} |")?;
        // In this scenario all victim selections must fail.
        let is_as_intended = scenario != Scenario::BorrowingBelowPreemption || preempted == 0;
        report.goal(is_as_intended, || format!("{preempted} preempted at {nodes} nodes, {scenario}"));
    }
    let (few, many, growth) = (SIZES[0], SIZES[3], first.unwrap_or(last) / last);
    let goal = if has_goal { format!(" (goal: ≤ {MAX_GROWTH})") } else { String::new() };
    writeln!(report.text, "\nFrom {few} to {many} nodes a decision costs {growth:.2} times as much{goal}.\n")?;
    if !has_goal {
        return Ok(());
    }
    report.goal(last >= MIN_RATE, || format!("{last:.0} decisions/s at {many} nodes, {scenario}, goal {MIN_RATE}"));
    report.goal(growth <= MAX_GROWTH, || {
        format!("a decision costs {growth:.2} times as much at {many} nodes as at {few}, {scenario}, goal {MAX_GROWTH}")
    });
    Ok(())
}

/// Plans repeatedly and returns the number of decisions after the first plan. Uses another thread, because the heap of the
/// main thread of a static executable has only 8 MiB under valgrind.
pub(super) fn tune(nodes: u32, plans: u32, pending: u32) -> anyhow::Result<u64> {
    // Without a clock: the vDSO is not available under valgrind.
    let rehearsal =
        std::thread::spawn(move || measure_plans(Scenario::Basic, nodes, pending, plans, || Duration::ZERO).decisions);
    rehearsal.join().map_err(|_| anyhow::anyhow!("the rehearsal panicked"))
}

struct Cost {
    rounds: u32,
    plans: Duration,
    decisions: u64,
    /// Mean time of an event, if there were any.
    event: Option<Duration>,
    running: usize,
    /// Number of preempted servers.
    preempted: usize,
    /// Number of request classes of pending servers at the beginning.
    classes: usize,
}

/// `cpu_time` returns the CPU time of this thread.
fn measure_plans(scenario: Scenario, nodes: u32, pending: u32, rounds: u32, cpu_time: fn() -> Duration) -> Cost {
    let policy = Policy::default();
    let mut rng = Rng(7);
    let Population { mut state, running, classes } = population::generate(scenario, nodes, pending, &policy, &mut rng);
    let mut cluster = Cluster { running, terminating: Vec::new(), preempted: 0 };
    let (mut plan_time, mut event_time, mut events, mut decisions) = (Duration::ZERO, Duration::ZERO, 0_u32, 0);
    let mut completed = 0;
    for round in 0..=rounds {
        if plan_time > MAX_MEASURED_TIME {
            break;
        }
        completed = round;
        let now = i64::from(round) * PLAN_INTERVAL;
        let started = cpu_time();
        for _ in 0..scenario.ends_per_plan().min(cluster.running.len()) {
            let limit = u64::try_from(cluster.running.len()).unwrap_or(1);
            let index = usize::try_from(rng.below(limit)).unwrap_or_default();
            state.apply(Event::ServerDeleted(cluster.running.swap_remove(index)), policy.usage_half_life, now);
            events += 1;
        }
        event_time += cpu_time().saturating_sub(started);
        cluster.requeue_preempted(&mut state, &policy, now);
        let started = cpu_time();
        let plan = state.plan(&policy, now);
        // The first plan has no previous one to start from.
        if round > 0 {
            plan_time += cpu_time().saturating_sub(started);
            decisions += (plan.pending.len() + plan.assignments.len()) as u64;
        }
        cluster.apply_plan(&mut state, &plan, &policy, now);
    }
    let (running, preempted, event) = (cluster.running.len(), cluster.preempted, event_time.checked_div(events));
    Cost { rounds: completed, plans: plan_time, decisions, event, running, preempted, classes }
}

/// Returns the CPU time of this thread, which does not depend on other load of the machine.
fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Applies plans.
struct Cluster {
    running: Vec<String>,
    /// Preempted servers with their ends.
    terminating: Vec<(i64, String)>,
    preempted: usize,
}

impl Cluster {
    /// Returns preempted servers that have ended to the queue.
    fn requeue_preempted(&mut self, state: &mut ClusterState, policy: &Policy, now: i64) {
        for (_, id) in self.terminating.extract_if(.., |(end, _)| *end <= now) {
            if let Some(mut server) = state.server(&id).cloned() {
                server.state = ServerState::Pending;
                state.apply(Event::Server(Box::new(server)), policy.usage_half_life, now);
            }
        }
    }

    fn apply_plan(&mut self, state: &mut ClusterState, plan: &Plan, policy: &Policy, now: i64) {
        for id in &plan.confirmed_bookings {
            let Some(mut server) = state.server(id).cloned() else { continue };
            server.booking_confirmed = true;
            state.apply(Event::Server(Box::new(server)), policy.usage_half_life, now);
        }
        for preemption in &plan.preemptions {
            let Some(mut server) = state.server(&preemption.id).cloned() else { continue };
            let ServerState::Running(run) = &mut server.state else { continue };
            (run.end, run.terminating) = (Some(preemption.end), true);
            server.preemptions += 1;
            self.running.retain(|id| *id != server.id);
            self.terminating.push((preemption.end, server.id.clone()));
            self.preempted += 1;
            state.apply(Event::Server(Box::new(server)), policy.usage_half_life, now);
        }
        for assignment in &plan.assignments {
            let Some(mut server) = state.server(&assignment.id).cloned() else { continue };
            let nodes = assignment.nodes.iter();
            let nodes = nodes.map(|node| (node.clone(), server.request.per_node.clone())).collect();
            let end = server.max_hold_time.map(|hold_time| now + hold_time);
            server.state = ServerState::Running(RunInfo { nodes, started_at: now, end, terminating: false });
            self.running.push(server.id.clone());
            state.apply(Event::Server(Box::new(server)), policy.usage_half_life, now);
        }
    }
}
