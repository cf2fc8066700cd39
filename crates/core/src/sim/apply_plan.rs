//! Applies plans: starts and preempts servers, and records estimates and precedence.

use std::collections::BTreeMap;

use super::job::{Job, Overtaker, RequestOutcome, Run};
use super::run::Simulation;
use crate::scheduler::{Assignment, DelayCause, Event, PendingReason, PendingServer, Plan, TraceRecord};

impl Simulation<'_> {
    pub(super) fn plan(&mut self) {
        if !self.changed {
            return;
        }
        self.changed = false;
        let plan = self.state.plan(&self.policy, self.now);
        self.record_plan(&plan, self.now);
        self.requeue_at = plan.requeue_at.filter(|time| *time > self.now);
        let pending: BTreeMap<&str, &PendingServer> =
            plan.pending.iter().map(|pending| (pending.id.as_str(), pending)).collect();
        let is_contending =
            |pending: &PendingServer| pending.position.is_some() && pending.reason != PendingReason::Unsatisfiable;
        self.contended = plan.pending.iter().any(is_contending);
        if !self.options.bare {
            self.record_overtaking(&plan, &pending);
            self.estimate_starts(&pending);
        }
        for id in &plan.confirmed_bookings {
            if let Some(job) = self.jobs.get_mut(id) {
                job.booking_confirmed = true;
            }
            self.update_server(id);
        }
        for preemption in &plan.preemptions {
            self.preempt(&preemption.id, preemption.end);
        }
        for assignment in &plan.assignments {
            self.start(assignment);
        }
        self.pending_servers = plan.pending;
        // An applied plan leaves nothing to decide.
        self.changed = false;
    }

    pub(super) fn record_plan(&mut self, plan: &Plan, now: i64) {
        (self.trace)(TraceRecord::Plan { now, plan });
        self.plans += 1;
        let decisions = plan.assignments.len() + plan.preemptions.len() + plan.confirmed_bookings.len();
        self.decisions += u64::try_from(decisions).unwrap_or(u64::MAX);
        let unexplained = plan.delayed.iter().filter(|delayed| delayed.cause == DelayCause::Unknown).count();
        self.unexplained_delays += u64::try_from(unexplained).unwrap_or(u64::MAX);
    }

    fn record_overtaking(&mut self, plan: &Plan, pending: &BTreeMap<&str, &PendingServer>) {
        for assignment in &plan.assignments {
            let Some(queued_at) = self.jobs.get(&assignment.id).map(|job| job.queued_at) else { continue };
            for pending in pending.values() {
                if self.jobs.get(&pending.id).is_none_or(|earlier| earlier.queued_at >= queued_at) {
                    continue;
                }
                if !self.state.compete_for_nodes(&assignment.id, &pending.id) {
                    continue;
                }
                let precedence =
                    self.state.precedence(&assignment.id, &pending.id, &pending.reason, &self.policy, self.now);
                if let (Some(precedence), Some(job)) = (precedence, self.jobs.get_mut(&pending.id)) {
                    job.overtaken_by.push(Overtaker { id: assignment.id.clone(), precedence });
                }
            }
        }
    }

    /// Records the first estimate of each pending server, as soon as there is one.
    fn estimate_starts(&mut self, pending: &BTreeMap<&str, &PendingServer>) {
        let has_none = |job: &Job| job.eta.is_none() && job.runs.is_empty() && job.request.not_before.is_none();
        let has_none = |pending: &PendingServer| {
            pending.reason != PendingReason::Unsatisfiable && self.jobs.get(&pending.id).is_some_and(has_none)
        };
        let missing: Vec<&PendingServer> = pending.values().copied().filter(|pending| has_none(pending)).collect();
        if missing.is_empty() {
            return;
        }
        let starts = self.forecast.expected_starts(&self.state, &self.policy, self.now);
        for PendingServer { id, planned_start: latest, .. } in missing {
            let eta = starts.get(id).and_then(|expected| self.state.eta(id, *expected, *latest, self.now));
            if let Some(job) = self.jobs.get_mut(id) {
                job.eta = eta.map(|eta| (self.now, eta));
            }
        }
    }

    /// Records why a server is pending according to the last plan.
    pub(super) fn record_reason(&mut self, id: &str) {
        let pending = self.pending_servers.iter().find(|pending| pending.id == id);
        let reason = pending.map(|pending| self.state.explainer().explain(pending).message);
        if let Some(job) = self.jobs.get_mut(id) {
            job.reason = reason;
        }
    }

    fn preempt(&mut self, id: &str, end: i64) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        let before = job.actual_end();
        job.preempted_end = Some(end);
        job.preemptions += 1;
        self.preemptions += 1;
        if let (Some(before), Some(after)) = (before, job.actual_end()) {
            self.ends.remove(&(before, id.to_owned()));
            self.ends.insert((after, id.to_owned()));
        }
        self.update_server(id);
    }

    fn start(&mut self, assignment: &Assignment) {
        let Assignment { id, nodes, placement, backfilled, .. } = assignment;
        let Some(job) = self.jobs.get_mut(id) else { return };
        let is_first = job.runs.is_empty();
        let (placement, backfilled) = (*placement, *backfilled);
        job.runs.push(Run { started_at: self.now, ended_at: None, nodes: nodes.clone(), placement, backfilled });
        job.outcome = RequestOutcome::Running;
        self.cluster.start(nodes, &job.resources.per_node);
        self.usage.add(job, 1);
        self.pending.remove(id);
        self.ends.extend(job.actual_end().map(|end| (end, id.clone())));
        let estimated = job.eta.filter(|_| is_first);
        if let Some((estimated_at, eta)) = estimated {
            let (flavor, wait) = (job.request.flavor.clone(), self.now.saturating_sub(estimated_at));
            self.apply(Event::WaitCompleted { flavor, estimate: eta.estimate, wait });
        }
        self.update_server(id);
    }
}
