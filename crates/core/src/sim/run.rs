//! The simulation loop: at each event time, ends finished jobs, applies trace lines, then plans.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::Cluster;
use super::fairness::AccountUsage;
use super::job::{Job, RequestOutcome};
use super::report::Report;
use super::totals::{self, Counts};
use super::trace::{self, Error, Line};
use crate::scheduler::{ClusterState, Event, Forecast, Node, NodeState, PendingServer, Policy, TraceRecord};

#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Number of requests at the beginning whose estimates are not counted.
    pub warm_up: usize,
    /// Skip estimates and precedence, which are expensive and do not affect decisions.
    pub bare: bool,
}

/// Plays a trace to its end.
pub fn simulate(
    lines: &[(usize, Line)],
    policy: &Policy,
    options: Options,
    trace: &mut dyn FnMut(TraceRecord<'_>),
) -> Result<Report, Error> {
    let mut sim = Simulation::new(policy, options, trace);
    let mut lines = lines.iter().peekable();
    loop {
        let arrival = lines.peek().map(|(_, line)| line.t);
        let is_active = arrival.is_some() || !sim.ends.is_empty() || sim.has_future_bookings();
        let requeue_at = sim.requeue_at.filter(|_| is_active);
        let end = sim.ends.first().map(|(end, _)| *end);
        let Some(next) = [arrival, end, requeue_at].into_iter().flatten().min() else { break };
        sim.advance(next);
        while let Some(id) = sim.ends.first().filter(|(end, _)| *end <= next).map(|(_, id)| id.clone()) {
            sim.ends.pop_first();
            sim.end_run(&id);
        }
        while let Some((number, line)) = lines.next_if(|(_, line)| line.t <= next) {
            sim.apply_line(*number, &line.content)?;
        }
        sim.plan();
    }
    Ok(sim.report())
}

pub(super) struct Simulation<'w> {
    pub state: ClusterState,
    pub forecast: Forecast,
    pub policy: Policy,
    pub options: Options,
    pub trace: &'w mut dyn FnMut(TraceRecord<'_>),
    pub now: i64,
    pub cluster: Cluster,
    pub nodes: BTreeMap<String, trace::Node>,
    pub flavors: BTreeMap<String, trace::Flavor>,
    pub teams: BTreeMap<String, trace::Team>,
    pub users: BTreeMap<String, trace::User>,
    pub jobs: BTreeMap<String, Job>,
    /// Ids in the order of the trace.
    pub order: Vec<String>,
    /// Actual ends of running jobs.
    pub ends: BTreeSet<(i64, String)>,
    pub pending: BTreeSet<String>,
    /// The pending servers of the last plan.
    pub pending_servers: Vec<PendingServer>,
    /// A server is pending that could run.
    pub contended: bool,
    pub usage: AccountUsage,
    pub requeue_at: Option<i64>,
    /// Something happened since the last plan.
    pub changed: bool,
    pub has_requests: bool,
    pub last_end: i64,
    pub unexplained_delays: u64,
    pub preemptions: u64,
    pub plans: u64,
    pub decisions: u64,
}

impl<'w> Simulation<'w> {
    fn new(policy: &Policy, options: Options, trace: &'w mut dyn FnMut(TraceRecord<'_>)) -> Self {
        Self {
            state: ClusterState::new(),
            forecast: Forecast::new(),
            policy: *policy,
            options,
            trace,
            now: 0,
            cluster: Cluster::default(),
            nodes: BTreeMap::new(),
            flavors: BTreeMap::new(),
            teams: BTreeMap::new(),
            users: BTreeMap::new(),
            jobs: BTreeMap::new(),
            order: Vec::new(),
            ends: BTreeSet::new(),
            pending: BTreeSet::new(),
            pending_servers: Vec::new(),
            contended: false,
            usage: AccountUsage::default(),
            requeue_at: None,
            changed: false,
            has_requests: false,
            last_end: 0,
            unexplained_delays: 0,
            preemptions: 0,
            plans: 0,
            decisions: 0,
        }
    }

    fn has_future_bookings(&self) -> bool {
        let mut bookings = self.pending.iter().filter_map(|id| self.jobs.get(id)?.request.not_before);
        bookings.any(|start| start > self.now)
    }

    fn advance(&mut self, next: i64) {
        // The time before the first request does not count.
        if self.has_requests {
            self.cluster.advance(next.saturating_sub(self.now));
        }
        if self.contended {
            self.usage.advance(next.saturating_sub(self.now));
        }
        self.changed |= self.requeue_at.is_some_and(|time| time <= next);
        self.now = next;
    }

    pub(super) fn apply(&mut self, event: Event) {
        (self.trace)(TraceRecord::Event { now: self.now, event: &event });
        if !self.options.bare {
            self.forecast.apply(&event, &self.state, self.policy.usage_half_life, self.now);
        }
        self.state.apply(event, self.policy.usage_half_life, self.now);
        self.changed = true;
    }

    pub(super) fn update_server(&mut self, id: &str) {
        if let Some(job) = self.jobs.get(id) {
            self.apply(Event::Server(Box::new(job.server())));
        }
    }

    pub(super) fn update_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let is_schedulable = self.cluster.is_schedulable(name);
        let state = if is_schedulable { NodeState::Schedulable } else { NodeState::Unschedulable };
        self.apply(Event::Node(Node { state, ..node.to_scheduler() }));
    }

    /// Returns all servers on a failed node to the queue, with their positions.
    pub(super) fn requeue_servers_of(&mut self, node: &str) {
        let running = self.jobs.values().filter(|job| job.started_at().is_some());
        let affected =
            running.filter(|job| job.runs.last().is_some_and(|run| run.nodes.iter().any(|name| name == node)));
        let affected: Vec<String> = affected.map(|job| job.request.id.clone()).collect();
        for id in affected {
            self.stop(&id);
            self.requeue(&id);
        }
    }

    /// Ends a run at its actual end.
    fn end_run(&mut self, id: &str) {
        let Some(job) = self.jobs.get(id) else { return };
        let (is_preempted, now) = (job.preempted_end.is_some(), self.now);
        let is_finished = job.request.actual_seconds.is_some_and(|actual| {
            let remaining = actual.saturating_sub(job.completed_runtime);
            job.started_at().is_some_and(|started_at| started_at.saturating_add(remaining) <= now)
        });
        if is_finished {
            self.finish(id, RequestOutcome::Finished);
        } else if job.lifetime_end().is_some_and(|end| end <= now) {
            let is_finished = job.request.actual_seconds.is_none();
            self.finish(id, if is_finished { RequestOutcome::Finished } else { RequestOutcome::Expired });
        } else if is_preempted {
            self.stop(id);
            self.requeue(id);
        }
    }

    /// Releases the nodes of a job.
    fn stop(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if let Some(end) = job.actual_end() {
            self.ends.remove(&(end, id.to_owned()));
        }
        let Some(started_at) = job.started_at() else { return };
        job.completed_runtime = job.completed_runtime.saturating_add(self.now.saturating_sub(started_at));
        job.preempted_end = None;
        if let Some(run) = job.runs.last_mut() {
            run.ended_at = Some(self.now);
            let nodes = run.nodes.clone();
            self.cluster.stop(&nodes, &job.resources.per_node);
            self.usage.add(job, -1);
        }
        self.last_end = self.last_end.max(self.now);
    }

    fn requeue(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = RequestOutcome::Pending;
        self.pending.insert(id.to_owned());
        self.update_server(id);
    }

    pub(super) fn finish(&mut self, id: &str, outcome: RequestOutcome) {
        self.stop(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = outcome;
        let (flavor, lifetime, runtime) = (job.request.flavor.clone(), job.lifetime, job.completed_runtime);
        self.apply(Event::ServerDeleted(id.to_owned()));
        self.apply(Event::RunCompleted { flavor, lifetime, runtime });
    }

    fn report(mut self) -> Report {
        let pending: Vec<String> = self.pending.iter().cloned().collect();
        for id in pending {
            self.record_reason(&id);
        }
        let mut weights: BTreeMap<String, u32> =
            self.users.values().map(|user| (user.name.clone(), user.weight)).collect();
        weights.extend(self.teams.values().map(|team| (team.name.clone(), team.weight)));
        let counts = Counts {
            unexplained_delays: self.unexplained_delays,
            preemptions: self.preemptions,
            weights,
            last_end: self.last_end,
            warm_up: self.options.warm_up,
        };
        let mut jobs = self.jobs;
        let jobs: Vec<Job> = self.order.iter().filter_map(|id| jobs.remove(id)).collect();
        let totals = totals::totals(&jobs, &self.cluster, &self.usage, &counts);
        let requests = jobs.into_iter().map(Job::report).collect();
        Report { requests, totals, plans: self.plans, decisions: self.decisions }
    }
}
