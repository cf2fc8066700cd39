//! Plans, carried out: who starts, who is asked to leave, who is told when, and who overtook whom.

use std::collections::BTreeMap;

use super::job::{Job, Outcome, Overtaken, Run};
use super::run::Simulation;
use crate::scheduler::{Cause, Event, Grant, Plan, Step, Stop, Wait};

impl Simulation<'_> {
    pub(super) fn plan(&mut self) {
        if !self.changed {
            return;
        }
        self.changed = false;
        let plan = self.world.plan(&self.policy, self.now);
        self.count(&plan, self.now);
        self.again = plan.again.filter(|again| *again > self.now);
        let stops: BTreeMap<&str, &Wait> = plan.waits.iter().map(|wait| (wait.id.as_str(), wait)).collect();
        self.contended = plan.waits.iter().any(|wait| wait.position.is_some() && wait.stop != Stop::Never);
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
            self.start(grant);
        }
        self.waits = plan.waits;
        // Carried out, a plan leaves nothing to decide.
        self.changed = false;
    }

    pub(super) fn count(&mut self, plan: &Plan, now: i64) {
        (self.watch)(Step::Planned { now, plan });
        self.plans += 1;
        let decisions = plan.grants.len() + plan.preemptions.len() + plan.booked.len();
        self.decisions += u64::try_from(decisions).unwrap_or(u64::MAX);
        let unexplained = plan.moved.iter().filter(|moved| moved.why == Cause::Unexplained).count();
        self.violations += u64::try_from(unexplained).unwrap_or(u64::MAX);
    }

    fn note_overtaking(&mut self, plan: &Plan, stops: &BTreeMap<&str, &Wait>) {
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

    /// Tells those who were told nothing yet when they will start, as soon as that is known.
    fn promise(&mut self, stops: &BTreeMap<&str, &Wait>) {
        let untold = |job: &Job| job.eta.is_none() && job.runs.is_empty() && job.request.not_before.is_none();
        let untold = |wait: &Wait| wait.stop != Stop::Never && self.jobs.get(&wait.id).is_some_and(untold);
        let untold: Vec<&Wait> = stops.values().copied().filter(|wait| untold(wait)).collect();
        if untold.is_empty() {
            return;
        }
        let starts = self.forecast.starts(&self.world, &self.policy, self.now);
        for Wait { id, start: latest, .. } in untold {
            let eta = starts.get(id).and_then(|likely| self.world.eta(id, *likely, *latest, self.now));
            if let Some(job) = self.jobs.get_mut(id) {
                job.eta = eta.map(|eta| (self.now, eta));
            }
        }
    }

    /// Remembers why somebody waits, as the last plan said.
    pub(super) fn note_reason(&mut self, id: &str) {
        let reason = self.waits.iter().find(|wait| wait.id == id).map(|wait| self.world.explained().why(wait).1);
        if let Some(job) = self.jobs.get_mut(id) {
            job.reason = reason;
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

    fn start(&mut self, grant: &Grant) {
        let Grant { id, nodes, choice, backfilled, .. } = grant;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let first = job.runs.is_empty();
        let (choice, backfilled) = (*choice, *backfilled);
        job.runs.push(Run { started_at: self.now, ended_at: None, nodes: nodes.clone(), choice, backfilled });
        job.outcome = Outcome::Running;
        self.cluster.start(nodes, &job.ask.each);
        self.holds.change(job, 1);
        self.waiting.remove(id);
        self.ends.extend(job.leaves_at().map(|at| (at, id.clone())));
        let learned = job.eta.filter(|_| first).map(|(at, eta)| (job.request.flavor.clone(), eta.given, at));
        if let Some((flavor, given, at)) = learned {
            self.tell(Event::Waited { flavor, given, waited: self.now.saturating_sub(at) });
        }
        self.tell_server(id);
    }
}
