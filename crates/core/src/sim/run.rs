//! Plays a trace through: ends, then what happens, then a plan, at every time at which something does.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::Cluster;
use super::fairness::Holds;
use super::job::{Job, Outcome};
use super::report::Report;
use super::totals::{self, Counts};
use super::trace::{self, Error, Line};
use crate::scheduler::{Event, Forecast, Policy, Service, Step, Wait, World};

/// How the simulation is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Promises of the first so many requests do not count.
    pub warm_up: usize,
    /// Leave out what is costly and not decided from: promises, and who overtook whom.
    pub bare: bool,
}

/// Plays a trace through to its end.
pub fn simulate(
    lines: &[(usize, Line)],
    policy: &Policy,
    options: Options,
    watch: &mut dyn FnMut(Step<'_>),
) -> Result<Report, Error> {
    let mut sim = Simulation::new(policy, options, watch);
    let mut lines = lines.iter().peekable();
    loop {
        let arrival = lines.peek().map(|(_, line)| line.t);
        let again = sim.again.filter(|_| arrival.is_some() || !sim.ends.is_empty() || sim.has_bookings());
        let Some(next) = [arrival, sim.ends.first().map(|(at, _)| *at), again].into_iter().flatten().min() else {
            break;
        };
        sim.advance(next);
        while let Some(id) = sim.ends.first().filter(|(at, _)| *at <= next).map(|(_, id)| id.clone()) {
            sim.ends.pop_first();
            sim.leave(&id);
        }
        while let Some((number, line)) = lines.next_if(|(_, line)| line.t <= next) {
            sim.happens(*number, &line.what)?;
        }
        sim.plan();
    }
    Ok(sim.report())
}

pub(super) struct Simulation<'w> {
    pub world: World,
    pub forecast: Forecast,
    pub policy: Policy,
    pub options: Options,
    pub watch: &'w mut dyn FnMut(Step<'_>),
    pub now: i64,
    pub cluster: Cluster,
    pub nodes: BTreeMap<String, trace::Node>,
    pub flavors: BTreeMap<String, trace::Flavor>,
    pub teams: BTreeMap<String, trace::Team>,
    pub users: BTreeMap<String, trace::User>,
    pub jobs: BTreeMap<String, Job>,
    /// In the order of the trace.
    pub order: Vec<String>,
    /// When somebody really goes.
    pub ends: BTreeSet<(i64, String)>,
    pub waiting: BTreeSet<String>,
    /// What the last plan said about them.
    pub waits: Vec<Wait>,
    /// Somebody waits who could run.
    pub contended: bool,
    pub holds: Holds,
    pub again: Option<i64>,
    /// Something happened since the last plan.
    pub changed: bool,
    pub began: bool,
    pub ended: i64,
    pub violations: u64,
    pub preemptions: u64,
    pub plans: u64,
    pub decisions: u64,
}

impl<'w> Simulation<'w> {
    fn new(policy: &Policy, options: Options, watch: &'w mut dyn FnMut(Step<'_>)) -> Self {
        Self {
            world: World::new(),
            forecast: Forecast::new(),
            policy: *policy,
            options,
            watch,
            now: 0,
            cluster: Cluster::default(),
            nodes: BTreeMap::new(),
            flavors: BTreeMap::new(),
            teams: BTreeMap::new(),
            users: BTreeMap::new(),
            jobs: BTreeMap::new(),
            order: Vec::new(),
            ends: BTreeSet::new(),
            waiting: BTreeSet::new(),
            waits: Vec::new(),
            contended: false,
            holds: Holds::default(),
            again: None,
            changed: false,
            began: false,
            ended: 0,
            violations: 0,
            preemptions: 0,
            plans: 0,
            decisions: 0,
        }
    }

    fn has_bookings(&self) -> bool {
        self.waiting.iter().filter_map(|id| self.jobs.get(id)?.request.not_before).any(|at| at > self.now)
    }

    fn advance(&mut self, next: i64) {
        // What is before the first request is no time anybody could have used.
        if self.began {
            self.cluster.pass(next.saturating_sub(self.now));
        }
        if self.contended {
            self.holds.pass(next.saturating_sub(self.now));
        }
        self.changed |= self.again.is_some_and(|again| again <= next);
        self.now = next;
    }

    pub(super) fn tell(&mut self, event: Event) {
        (self.watch)(Step::Told { now: self.now, event: &event });
        if !self.options.bare {
            self.forecast.apply(&event, &self.world, self.policy.half_life, self.now);
        }
        self.world.apply(event, self.policy.half_life, self.now);
        self.changed = true;
    }

    pub(super) fn tell_server(&mut self, id: &str) {
        if let Some(job) = self.jobs.get(id) {
            self.tell(Event::Server(Box::new(job.server())));
        }
    }

    pub(super) fn tell_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let service = if self.cluster.is_open(name) { Service::Open } else { Service::Closed };
        self.tell(Event::Node(crate::scheduler::Node { service, ..node.told() }));
    }

    /// Whoever was on a node that is down goes back to the queue, with the place kept.
    pub(super) fn lose(&mut self, name: &str) {
        let on = self.jobs.values().filter(|job| job.started().is_some());
        let on = on.filter(|job| job.runs.last().is_some_and(|run| run.nodes.iter().any(|node| node == name)));
        let lost: Vec<String> = on.map(|job| job.request.id.clone()).collect();
        for id in lost {
            self.stop(&id);
            self.wait_again(&id);
        }
    }

    /// Its time has come, whatever for.
    pub(super) fn leave(&mut self, id: &str) {
        let Some(job) = self.jobs.get(id) else { return };
        let (asked, end, now) = (job.leaves, job.end(), self.now);
        let done = job.request.actual_seconds.is_some_and(|actual| {
            job.started().is_some_and(|started| started.saturating_add(actual.saturating_sub(job.ran)) <= now)
        });
        if done {
            self.finish(id, Outcome::Finished);
        } else if end.is_some_and(|end| end <= now) {
            let finished = job.request.actual_seconds.is_none();
            self.finish(id, if finished { Outcome::Finished } else { Outcome::Expired });
        } else if asked.is_some() {
            self.stop(id);
            self.wait_again(id);
        }
    }

    /// Off its nodes.
    pub(super) fn stop(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        if let Some(at) = job.leaves_at() {
            self.ends.remove(&(at, id.to_owned()));
        }
        let Some(started) = job.started() else { return };
        job.ran = job.ran.saturating_add(self.now.saturating_sub(started));
        job.leaves = None;
        if let Some(run) = job.runs.last_mut() {
            run.ended_at = Some(self.now);
            let nodes = run.nodes.clone();
            self.cluster.end(&nodes, &job.ask.each);
            self.holds.change(job, -1);
        }
        self.ended = self.ended.max(self.now);
    }

    pub(super) fn wait_again(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = Outcome::Waiting;
        self.waiting.insert(id.to_owned());
        self.tell_server(id);
    }

    pub(super) fn finish(&mut self, id: &str, outcome: Outcome) {
        self.stop(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = outcome;
        let (flavor, lifetime, stayed) = (job.request.flavor.clone(), job.lifetime, job.ran);
        self.tell(Event::ServerGone(id.to_owned()));
        self.tell(Event::Stay { flavor, lifetime, stayed });
    }

    fn report(mut self) -> Report {
        let waiting: Vec<String> = self.waiting.iter().cloned().collect();
        for id in waiting {
            self.note_reason(&id);
        }
        let mut weights: BTreeMap<String, u32> =
            self.users.values().map(|user| (user.name.clone(), user.weight)).collect();
        weights.extend(self.teams.values().map(|team| (team.name.clone(), team.weight)));
        let counts = Counts {
            violations: self.violations,
            preemptions: self.preemptions,
            weights,
            ended: self.ended,
            warm_up: self.options.warm_up,
        };
        let mut jobs = self.jobs;
        let jobs: Vec<Job> = self.order.iter().filter_map(|id| jobs.remove(id)).collect();
        let totals = totals::totals(&jobs, &self.cluster, &self.holds, &counts);
        let requests = jobs.into_iter().map(Job::report).collect();
        Report { requests, totals, plans: self.plans, decisions: self.decisions }
    }
}
