//! Applies the lines of a trace.

use super::job::{Job, RequestOutcome};
use super::run::Simulation;
use super::trace::{self, Content, Error};
use crate::scheduler::{AccountSpec, Event};

impl Simulation<'_> {
    pub(super) fn apply_line(&mut self, line: usize, content: &Content) -> Result<(), Error> {
        match content {
            Content::Node(node) => {
                self.cluster.set_node(&node.name, node.to_scheduler().capacity);
                self.nodes.insert(node.name.clone(), node.clone());
                self.update_node(&node.name);
            }
            Content::Flavor(flavor) => drop(self.flavors.insert(flavor.name.clone(), flavor.clone())),
            Content::Team(team) => {
                self.teams.insert(team.name.clone(), team.clone());
                // No `borrow` forbids borrowing; an empty one allows all that is idle.
                let borrowing_limit = team.borrow.as_ref().map_or(Some(0), |borrow| borrow.devices);
                self.apply(Event::Team(AccountSpec {
                    name: team.name.clone(),
                    weight: team.weight,
                    limits: team.quota.limits(),
                    borrowing_limit,
                    usage: None,
                }));
            }
            Content::User(user) => {
                self.users.insert(user.name.clone(), user.clone());
                let (name, limits) = (user.name.clone(), user.quota.limits());
                self.apply(Event::User(AccountSpec { name, weight: user.weight, limits, ..AccountSpec::default() }));
            }
            Content::Request(request) => self.request(line, request)?,
            Content::Cancel(id) => self.cancel(line, id)?,
            Content::Extend(extend) => self.extend(line, extend)?,
            Content::NodeDown(name) => {
                self.check_node(line, name)?;
                self.cluster.set_down(name, true);
                self.update_node(name);
                self.requeue_servers_of(name);
            }
            Content::NodeUp(name) => {
                self.check_node(line, name)?;
                self.cluster.set_down(name, false);
                self.update_node(name);
            }
            Content::Cordon(name) | Content::Uncordon(name) => {
                self.check_node(line, name)?;
                self.cluster.set_cordoned(name, matches!(content, Content::Cordon(_)));
                self.update_node(name);
            }
            Content::Event(event) => {
                self.apply((**event).clone());
                self.changed = false;
            }
            Content::Plan(recorded) => {
                let plan = self.state.plan(&self.policy, recorded.now);
                self.record_plan(&plan, recorded.now);
                self.changed = false;
                if let Some(expected) = &recorded.decisions {
                    let actual: Vec<String> = plan.decision_lines(recorded.now).collect();
                    if actual != *expected {
                        let text =
                            |lines: &[String]| if lines.is_empty() { "nothing".into() } else { lines.join("; ") };
                        return Err(Error::DecisionMismatch { line, actual: text(&actual), expected: text(expected) });
                    }
                }
            }
            Content::Policy(policy) => self.policy = *policy,
        }
        Ok(())
    }

    fn check_node(&self, line: usize, name: &str) -> Result<(), Error> {
        if self.cluster.has_node(name) {
            return Ok(());
        }
        Err(Error::Undefined { line, kind: "node", name: name.to_owned() })
    }

    fn request(&mut self, line: usize, request: &trace::Request) -> Result<(), Error> {
        let flavor = self.flavors.get(&request.flavor);
        let flavor = flavor.ok_or_else(|| Error::Undefined { line, kind: "flavor", name: request.flavor.clone() })?;
        if self.jobs.contains_key(&request.id) {
            return Err(Error::DuplicateRequest { line, id: request.id.clone() });
        }
        let user = self.users.get(&request.user);
        let team = user.and_then(|user| user.team.clone());
        let ceilings = [
            user.and_then(|user| user.priority_ceiling),
            team.as_ref().and_then(|team| self.teams.get(team)?.priority_ceiling),
        ];
        let priority = ceilings.into_iter().flatten().fold(request.priority, Ord::min);
        let job = Job {
            resources: flavor.request(request.count, request.nodes),
            team,
            priority,
            queued_at: self.now,
            lifetime: request.lifetime_seconds.max(1),
            completed_runtime: 0,
            runs: Vec::new(),
            outcome: RequestOutcome::Pending,
            preemptions: 0,
            preempted_end: None,
            booking_confirmed: false,
            eta: None,
            overtaken_by: Vec::new(),
            reason: None,
            request: request.clone(),
        };
        self.has_requests = true;
        self.order.push(request.id.clone());
        self.pending.insert(request.id.clone());
        self.jobs.insert(request.id.clone(), job);
        self.update_server(&request.id);
        Ok(())
    }

    fn cancel(&mut self, line: usize, id: &str) -> Result<(), Error> {
        self.record_reason(id);
        let job = self.jobs.get_mut(id);
        let job = job.ok_or_else(|| Error::Undefined { line, kind: "request", name: id.to_owned() })?;
        match job.outcome {
            RequestOutcome::Pending => {
                job.outcome = RequestOutcome::Cancelled;
                self.pending.remove(id);
                self.apply(Event::ServerDeleted(id.to_owned()));
            }
            RequestOutcome::Running => self.finish(id, RequestOutcome::Cancelled),
            RequestOutcome::Finished | RequestOutcome::Expired | RequestOutcome::Cancelled => {}
        }
        Ok(())
    }

    fn extend(&mut self, line: usize, extend: &trace::Extend) -> Result<(), Error> {
        let job = self.jobs.get_mut(&extend.id);
        let job = job.ok_or_else(|| Error::Undefined { line, kind: "request", name: extend.id.clone() })?;
        if !matches!(job.outcome, RequestOutcome::Pending | RequestOutcome::Running) {
            return Ok(());
        }
        let before = job.actual_end();
        job.lifetime = job.lifetime.saturating_add(extend.by_seconds).max(1);
        let after = job.actual_end();
        if let (Some(before), Some(after)) = (before, after) {
            self.ends.remove(&(before, extend.id.clone()));
            self.ends.insert((after, extend.id.clone()));
        }
        self.update_server(&extend.id);
        Ok(())
    }
}
