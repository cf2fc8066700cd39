//! Questions that change nothing: when would this start, and what would another rule change?

use super::event::{Event, Server, State};
use super::plan::{Plan, Stop};
use super::{Policy, World};

/// What the queue would answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it would start at the latest: now, later, or nobody knows.
    pub start: Option<i64>,
    /// Where, if it would start now.
    pub nodes: Vec<String>,
    pub position: Option<u32>,
    /// What stands in the way, if it would not start now.
    pub stop: Option<Stop>,
    /// The same in one sentence.
    pub message: Option<String>,
}

/// What a change would change for one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub id: String,
    /// Planned starts. Now, for those that would start at once.
    pub before: Option<i64>,
    pub after: Option<i64>,
}

impl World {
    /// When a server would start, if it were asked for now. Nobody is promised anything, and the world stays as it is.
    pub fn dry_run(&mut self, server: Server, policy: &Policy, now: i64) -> Answer {
        let before = self.get(&server.id).cloned();
        let id = server.id.clone();
        let asked = Server { state: State::Waiting, ..server };
        let forgotten = self.promised.clone();
        self.apply(Event::Server(Box::new(asked)), policy.half_life, now);
        let plan = self.sketch(policy, now);
        let answer = self.answer(&id, &plan, now);
        let back = before.map_or_else(|| Event::ServerGone(id), |before| Event::Server(Box::new(before)));
        self.apply(back, policy.half_life, now);
        self.promised = forgotten;
        answer
    }

    fn answer(&self, id: &str, plan: &Plan, now: i64) -> Answer {
        if let Some(grant) = plan.grants.iter().find(|grant| grant.id == id) {
            let nodes = grant.nodes.clone();
            return Answer { start: Some(now), nodes, position: None, stop: None, message: None };
        }
        let wait = plan.waits.iter().find(|wait| wait.id == id);
        Answer {
            start: wait.and_then(|wait| wait.start),
            nodes: Vec::new(),
            position: wait.and_then(|wait| wait.position),
            stop: wait.map(|wait| wait.stop.clone()),
            message: wait.map(|wait| self.explained().why(wait).1),
        }
    }

    /// How planned starts would change if something were otherwise, such as a quota or a node.
    pub fn what_if(&self, changes: &[Event], policy: &Policy, now: i64) -> Vec<Difference> {
        let starts = |world: &mut Self| {
            let plan = world.sketch(policy, now);
            let granted = plan.grants.into_iter().map(|grant| (grant.id, Some(now)));
            granted.chain(plan.waits.into_iter().map(|wait| (wait.id, wait.start))).collect::<Vec<_>>()
        };
        let mut other = self.clone();
        for change in changes {
            other.apply(change.clone(), policy.half_life, now);
        }
        let after: std::collections::BTreeMap<_, _> = starts(&mut other).into_iter().collect();
        let before = starts(&mut self.clone());
        let pairs = before.into_iter().map(|(id, before)| {
            let after = after.get(&id).copied().flatten();
            Difference { id, before, after }
        });
        pairs.filter(|difference| difference.before != difference.after).collect()
    }
}
