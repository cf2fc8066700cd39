//! Plays a trace through: ends, then what happens, then a plan, at every time at which something does.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::Cluster;
use super::job::{Job, Outcome, Overtaken, Run};
use super::report::Report;
use super::totals::{self, Counts};
use super::trace::{self, Error, Line, What};
use crate::scheduler::{Account, Cause, Event, Forecast, Plan, Policy, Service, World};

/// What is done, for whoever wants to record it.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    Told { now: i64, event: &'a Event },
    Planned { now: i64, plan: &'a Plan },
}

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

struct Simulation<'w> {
    world: World,
    forecast: Forecast,
    policy: Policy,
    options: Options,
    watch: &'w mut dyn FnMut(Step<'_>),
    now: i64,
    cluster: Cluster,
    nodes: BTreeMap<String, trace::Node>,
    flavors: BTreeMap<String, trace::Flavor>,
    teams: BTreeMap<String, trace::Team>,
    users: BTreeMap<String, trace::User>,
    jobs: BTreeMap<String, Job>,
    /// In the order of the trace.
    order: Vec<String>,
    /// When somebody really goes.
    ends: BTreeSet<(i64, String)>,
    waiting: BTreeSet<String>,
    again: Option<i64>,
    /// Something happened since the last plan.
    changed: bool,
    began: bool,
    ended: i64,
    violations: u64,
    preemptions: u64,
    plans: u64,
    decisions: u64,
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
        self.changed |= self.again.is_some_and(|again| again <= next);
        self.now = next;
    }

    fn tell(&mut self, event: Event) {
        (self.watch)(Step::Told { now: self.now, event: &event });
        if !self.options.bare {
            self.forecast.apply(&event, &self.world, self.policy.half_life, self.now);
        }
        self.world.apply(event, self.policy.half_life, self.now);
        self.changed = true;
    }

    fn tell_server(&mut self, id: &str) {
        if let Some(job) = self.jobs.get(id) {
            self.tell(Event::Server(Box::new(job.server())));
        }
    }

    fn tell_node(&mut self, name: &str) {
        let Some(node) = self.nodes.get(name) else { return };
        let service = if self.cluster.is_open(name) { Service::Open } else { Service::Closed };
        self.tell(Event::Node(crate::scheduler::Node { service, ..node.told() }));
    }

    fn happens(&mut self, line: usize, what: &What) -> Result<(), Error> {
        match what {
            What::Node(node) => {
                self.cluster.set(&node.name, node.told().capacity);
                self.nodes.insert(node.name.clone(), node.clone());
                self.tell_node(&node.name);
            }
            What::Flavor(flavor) => drop(self.flavors.insert(flavor.name.clone(), flavor.clone())),
            What::Team(team) => {
                self.teams.insert(team.name.clone(), team.clone());
                // No word about borrowing is none; an empty one is as much as is idle.
                let borrow = team.borrow.as_ref().map_or(Some(0), |borrow| borrow.devices);
                let limits = team.quota.limits();
                self.tell(Event::Team(Account {
                    name: team.name.clone(),
                    weight: team.weight,
                    limits,
                    borrow,
                    used: None,
                }));
            }
            What::User(user) => {
                self.users.insert(user.name.clone(), user.clone());
                let limits = user.quota.limits();
                let account = Account { name: user.name.clone(), weight: user.weight, limits, ..Account::default() };
                self.tell(Event::User(account));
            }
            What::Request(request) => self.request(line, request)?,
            What::Cancel(id) => self.cancel(line, id)?,
            What::Extend(extend) => self.extend(line, extend)?,
            What::NodeDown(name) => {
                self.known_node(line, name)?;
                self.cluster.set_down(name, true);
                self.tell_node(name);
                self.lose(name);
            }
            What::NodeUp(name) => {
                self.known_node(line, name)?;
                self.cluster.set_down(name, false);
                self.tell_node(name);
            }
            What::Cordon(name) | What::Uncordon(name) => {
                self.known_node(line, name)?;
                self.cluster.set_cordoned(name, matches!(what, What::Cordon(_)));
                self.tell_node(name);
            }
            What::Event(event) => {
                self.tell((**event).clone());
                self.changed = false;
            }
            What::Plan(plan) => {
                let plan_of_then = self.world.plan(&self.policy, plan.now);
                self.count(&plan_of_then, plan.now);
                self.changed = false;
            }
        }
        Ok(())
    }

    fn known_node(&self, line: usize, name: &str) -> Result<(), Error> {
        if self.cluster.has(name) {
            return Ok(());
        }
        Err(Error::Unknown { line, kind: "node", name: name.to_owned() })
    }

    fn request(&mut self, line: usize, request: &trace::Request) -> Result<(), Error> {
        let unknown = |kind, name: &str| Error::Unknown { line, kind, name: name.to_owned() };
        let flavor = self.flavors.get(&request.flavor).ok_or_else(|| unknown("flavor", &request.flavor))?;
        if self.jobs.contains_key(&request.id) {
            return Err(Error::Twice { line, id: request.id.clone() });
        }
        let user = self.users.get(&request.user);
        let team = user.and_then(|user| user.team.clone());
        let ceilings = [
            user.and_then(|user| user.priority_ceiling),
            team.as_ref().and_then(|team| self.teams.get(team)?.priority_ceiling),
        ];
        let priority = ceilings.into_iter().flatten().fold(request.priority, Ord::min);
        let job = Job {
            ask: flavor.ask(request.count, request.nodes),
            team,
            priority,
            queued: self.now,
            lifetime: request.lifetime_seconds.max(1),
            ran: 0,
            runs: Vec::new(),
            outcome: Outcome::Waiting,
            preemptions: 0,
            leaves: None,
            booked: false,
            eta: None,
            overtaken_by: Vec::new(),
            reason: None,
            request: request.clone(),
        };
        self.began = true;
        self.order.push(request.id.clone());
        self.waiting.insert(request.id.clone());
        self.jobs.insert(request.id.clone(), job);
        self.tell_server(&request.id);
        Ok(())
    }

    fn cancel(&mut self, line: usize, id: &str) -> Result<(), Error> {
        let unknown = || Error::Unknown { line, kind: "request", name: id.to_owned() };
        let job = self.jobs.get_mut(id).ok_or_else(unknown)?;
        match job.outcome {
            Outcome::Waiting => {
                job.outcome = Outcome::Cancelled;
                self.waiting.remove(id);
                self.tell(Event::ServerGone(id.to_owned()));
            }
            Outcome::Running => self.finish(id, Outcome::Cancelled),
            Outcome::Finished | Outcome::Expired | Outcome::Cancelled => {}
        }
        Ok(())
    }

    fn extend(&mut self, line: usize, extend: &trace::Extend) -> Result<(), Error> {
        let unknown = || Error::Unknown { line, kind: "request", name: extend.id.clone() };
        let job = self.jobs.get_mut(&extend.id).ok_or_else(unknown)?;
        if !matches!(job.outcome, Outcome::Waiting | Outcome::Running) {
            return Ok(());
        }
        let before = job.leaves_at();
        job.lifetime = job.lifetime.saturating_add(extend.by_seconds).max(1);
        let after = job.leaves_at();
        if let (Some(before), Some(after)) = (before, after) {
            self.ends.remove(&(before, extend.id.clone()));
            self.ends.insert((after, extend.id.clone()));
        }
        self.tell_server(&extend.id);
        Ok(())
    }

    /// Whoever was on a node that is down goes back to the queue, with the place kept.
    fn lose(&mut self, name: &str) {
        let on = self.jobs.values().filter(|job| job.started().is_some());
        let on = on.filter(|job| job.runs.last().is_some_and(|run| run.nodes.iter().any(|node| node == name)));
        let lost: Vec<String> = on.map(|job| job.request.id.clone()).collect();
        for id in lost {
            self.stop(&id);
            self.wait_again(&id);
        }
    }

    /// Its time has come, whatever for.
    fn leave(&mut self, id: &str) {
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
    fn stop(&mut self, id: &str) {
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
        }
        self.ended = self.ended.max(self.now);
    }

    fn wait_again(&mut self, id: &str) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = Outcome::Waiting;
        self.waiting.insert(id.to_owned());
        self.tell_server(id);
    }

    fn finish(&mut self, id: &str, outcome: Outcome) {
        self.stop(id);
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.outcome = outcome;
        let (flavor, lifetime, stayed) = (job.request.flavor.clone(), job.lifetime, job.ran);
        self.tell(Event::ServerGone(id.to_owned()));
        self.tell(Event::Stay { flavor, lifetime, stayed });
    }

    fn plan(&mut self) {
        if !self.changed {
            return;
        }
        self.changed = false;
        let plan = self.world.plan(&self.policy, self.now);
        self.count(&plan, self.now);
        self.again = plan.again.filter(|again| *again > self.now);
        let stops: BTreeMap<&str, &crate::scheduler::Wait> =
            plan.waits.iter().map(|wait| (wait.id.as_str(), wait)).collect();
        if !self.options.bare {
            self.note_overtaking(&plan, &stops);
            self.promise(&stops);
        }
        for id in &plan.booked {
            if let Some(job) = self.jobs.get_mut(id) {
                job.booked = true;
            }
            self.tell_server(id);
        }
        for preemption in &plan.preemptions {
            self.ask_to_leave(&preemption.id, preemption.end);
        }
        for grant in &plan.grants {
            self.start(&grant.id, &grant.nodes);
        }
        // Carried out, a plan leaves nothing to decide.
        self.changed = false;
    }

    fn count(&mut self, plan: &Plan, now: i64) {
        (self.watch)(Step::Planned { now, plan });
        self.plans += 1;
        let decisions = plan.grants.len() + plan.preemptions.len() + plan.booked.len();
        self.decisions += u64::try_from(decisions).unwrap_or(u64::MAX);
        let unexplained = plan.moved.iter().filter(|moved| moved.why == Cause::Unexplained).count();
        self.violations += u64::try_from(unexplained).unwrap_or(u64::MAX);
    }

    fn note_overtaking(&mut self, plan: &Plan, stops: &BTreeMap<&str, &crate::scheduler::Wait>) {
        for grant in &plan.grants {
            let Some(queued) = self.jobs.get(&grant.id).map(|job| job.queued) else { continue };
            for wait in stops.values() {
                if self.jobs.get(&wait.id).is_none_or(|early| early.queued >= queued) {
                    continue;
                }
                if !self.world.compete(&grant.id, &wait.id) {
                    continue;
                }
                let right = self.world.right(&grant.id, &wait.id, &wait.stop, &self.policy, self.now);
                if let (Some(right), Some(job)) = (right, self.jobs.get_mut(&wait.id)) {
                    job.overtaken_by.push(Overtaken { id: grant.id.clone(), right });
                }
            }
        }
    }

    /// Tells those who just began to wait when they will start.
    fn promise(&mut self, stops: &BTreeMap<&str, &crate::scheduler::Wait>) {
        let new = |job: &Job| job.eta.is_none() && job.runs.is_empty() && job.queued == self.now;
        let new: Vec<String> =
            stops.keys().filter(|id| self.jobs.get(**id).is_some_and(new)).map(|id| (*id).to_owned()).collect();
        if new.is_empty() {
            return;
        }
        let starts = self.forecast.starts(&self.world, &self.policy, self.now);
        for id in new {
            let wait = stops.get(id.as_str());
            let latest = wait.and_then(|wait| wait.start);
            let reason = wait.map(|wait| self.world.explained().why(wait).1);
            let eta = starts.get(&id).and_then(|likely| self.world.eta(&id, *likely, latest, self.now));
            if let Some(job) = self.jobs.get_mut(&id) {
                job.eta = eta.filter(|_| job.request.not_before.is_none()).map(|eta| (self.now, eta));
                job.reason = reason;
            }
        }
    }

    fn ask_to_leave(&mut self, id: &str, end: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let before = job.leaves_at();
        job.leaves = Some(end);
        job.preemptions += 1;
        self.preemptions += 1;
        if let (Some(before), Some(after)) = (before, job.leaves_at()) {
            self.ends.remove(&(before, id.to_owned()));
            self.ends.insert((after, id.to_owned()));
        }
        self.tell_server(id);
    }

    fn start(&mut self, id: &str, nodes: &[String]) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let first = job.runs.is_empty();
        job.runs.push(Run { started_at: self.now, ended_at: None, nodes: nodes.to_vec() });
        job.outcome = Outcome::Running;
        self.cluster.start(nodes, &job.ask.each);
        self.waiting.remove(id);
        self.ends.extend(job.leaves_at().map(|at| (at, id.to_owned())));
        let learned = job.eta.filter(|_| first).map(|(at, eta)| (job.request.flavor.clone(), eta.given, at));
        if let Some((flavor, given, at)) = learned {
            self.world.learn(&flavor, given, self.now.saturating_sub(at));
        }
        self.tell_server(id);
    }

    fn report(self) -> Report {
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
        let totals = totals::totals(&jobs, &self.cluster, &counts);
        let requests = jobs.into_iter().map(Job::report).collect();
        Report { requests, totals, plans: self.plans, decisions: self.decisions }
    }
}
