//! What the lines of a trace do.

use super::job::{Job, Outcome};
use super::run::Simulation;
use super::trace::{self, Error, What};
use crate::scheduler::{Account, Event};

impl Simulation<'_> {
    pub(super) fn happens(&mut self, line: usize, what: &What) -> Result<(), Error> {
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
                if let Some(there) = &plan.decided {
                    let here: Vec<String> = plan_of_then.decided(plan.now).collect();
                    if here != *there {
                        let words =
                            |lines: &[String]| if lines.is_empty() { "nothing".into() } else { lines.join("; ") };
                        return Err(Error::Otherwise { line, here: words(&here), there: words(there) });
                    }
                }
            }
            What::Policy(policy) => self.policy = *policy,
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
        self.note_reason(id);
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
}
