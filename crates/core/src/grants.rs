//! What the scheduler's plans mean for the objects in Kubernetes: which grants stand, which are taken back, and what is
//! written as `status.admission`, and nothing else. The kube-scheduler remains the arbiter: what counts as use is a pod
//! that is bound, and a grant is a promise that is taken back where it cannot be kept.
//!
//! A grant does not wait until pods of an earlier run are gone. Where they still are they use their nodes like any other
//! pod, and the new ones are made when their names are free; waiting for them here would only make a second rule for what
//! the names already enforce.

mod admission;
pub mod attach;
mod due;
mod facts;
mod fallout;
mod fit;
#[cfg(test)]
pub(crate) mod fixtures;
mod grant;
pub mod outlook;
mod overdraft;
mod planner;
#[cfg(test)]
mod properties;
mod queue;
mod record;
mod refusal;
mod revoke;
pub(crate) mod room;
mod setback;
#[cfg(test)]
mod stories;
mod telling;
pub mod term;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Admission;
use odc_api::v1alpha1::condition::Reason;

pub use crate::scheduler::Ask as Request;
pub use facts::{Account, Accounts, Facts, Holder, Server, Want};
pub use fallout::independent;
pub use planner::{Planner, Watch};
pub use refusal::{Fingerprint, Refusal, Refusals};
pub use setback::Setbacks;
pub use telling::Telling;

pub(crate) use fit::is_open;

use crate::plan::Again;
use crate::scheduler::{self, Moved};
use outlook::Outlook;
use queue::Picture;
use revoke::Review;
use room::Room;

/// What the scheduler goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A node that is silent for so long is lost, with all grants on it.
    pub lost_after: Duration,
    /// A pod for which the kube-scheduler finds no place for so long was refused.
    pub refused_after: Duration,
    /// A node that refused a server and never changed is tried again after so long: some of what makes a node refuse,
    /// such as volumes that are still being detached, is not seen from here.
    pub retry_after: Duration,
    /// The number of this leader.
    pub epoch: i64,
    /// Whose turn it is.
    pub queue: scheduler::Policy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lost_after: Duration::from_secs(600),
            refused_after: Duration::from_secs(30),
            retry_after: Duration::from_secs(300),
            epoch: 0,
            queue: scheduler::Policy::default(),
        }
    }
}

/// What to write, what to remember, and when to look again.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order of writing: what is given back first, then what is granted from it, then what people are told. Any
    /// prefix of it is a fine place to go on from.
    pub decisions: Vec<Decision>,
    /// Refusals that are new.
    pub refused: Vec<Refusal>,
    /// All refusals that count from now on: the next world's `unfit`.
    pub unfit: Refusals,
    /// Users and teams of whose servers one leaves. What they used is stored before that is, so that it is known whatever
    /// happens.
    pub leaving: BTreeSet<Holder>,
    /// Why planned starts are later than they were.
    pub moved: Vec<Moved>,
    pub again: Again,
}

/// A change of one server's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub what: What,
    /// The complete new value.
    pub admission: Admission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It has left: the queue, its nodes or both.
    Release,
    /// Its grant cannot be kept.
    Revoke(Reason),
    Grant,
    /// It has to leave its nodes, in order and after a while.
    Preempt,
    /// The time it booked is promised.
    Book,
    /// It stays in the queue, for a reason or at a place that is new.
    Wait,
}

impl Planner {
    /// Decides about everybody. The same facts give the same plan, in whatever order they are listed, and a plan that was
    /// carried out leaves nothing to decide; only servers whose grant was taken back get another chance in the next one.
    pub fn plan(&mut self, facts: &Facts<'_>, policy: &Policy, now: Timestamp, watch: Watch<'_>) -> Plan {
        let review = revoke::review(facts, policy, now);
        let mut unfit = Refusals::holding(facts, &review.room, policy, now);
        unfit.extend(review.refused.iter().cloned());
        let picture = Picture::of(facts, &review, &unfit, policy, now);
        let gone = self.keep_up(facts, picture, policy, now, watch);
        let queued = self.decide(policy, now, watch);
        let again = review.again.or(silent(&review.room, policy, now)).or(forgiving(&unfit, policy, now));
        let again = again.or(until(queued.again, now)).or(giving_way(facts, now));
        let decisions = decisions(&facts.in_order(), &review, &queued, self.outlook(), policy, now);
        let leaving = leaving(&decisions, facts).chain(gone).collect();
        Plan { decisions, refused: review.refused, unfit, leaving, moved: queued.moved, again }
    }
}

/// Whose servers leave their nodes by these decisions.
fn leaving<'a>(decisions: &'a [Decision], facts: &'a Facts<'_>) -> impl Iterator<Item = Holder> + 'a {
    let left: BTreeSet<&str> = decisions
        .iter()
        .filter(|decision| matches!(decision.what, What::Release | What::Revoke(_)))
        .map(|decision| decision.uid.as_str())
        .collect();
    let servers = facts.servers.iter();
    let left = servers.filter(move |server| server.is_granted() && left.contains(server.uid.as_str()));
    left.flat_map(|server| server.holders())
}

fn decisions(
    servers: &[&Server],
    review: &Review<'_>,
    plan: &scheduler::Plan,
    outlook: &Outlook,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Decision> {
    let by_uid: BTreeMap<&str, &Server> = servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
    let positions: BTreeMap<&str, i64> =
        outlook.waits().iter().filter_map(|wait| Some((wait.id.as_str(), i64::from(wait.position?)))).collect();
    let position = |server: &Server| positions.get(server.uid.as_str()).copied();
    let left = servers.iter().filter_map(|server| {
        let left = if server.rests() && (!server.is_granted() || review.released.contains(server.uid.as_str())) {
            admission::resting(server)
        } else if server.want == Want::Later && !server.is_granted() && !plan.booked.contains(&server.uid) {
            admission::postponed(server)
        } else {
            return None;
        };
        decision(server, What::Release, left, policy)
    });
    let revoked = servers.iter().filter_map(|server| {
        let cause = review.revoked.get(server.uid.as_str())?;
        let revoked = admission::revoked(server, position(server), cause.reason(), &cause.message());
        decision(server, What::Revoke(cause.reason()), revoked, policy)
    });
    let preempted = plan.preemptions.iter().filter_map(|preemption| {
        let server = by_uid.get(preemption.id.as_str())?;
        decision(server, What::Preempt, admission::giving_way(server, preemption.stop, preemption.right)?, policy)
    });
    let granted = plan.grants.iter().filter_map(|grant| {
        let server = by_uid.get(grant.id.as_str())?;
        decision(server, What::Grant, admission::granted(server, grant, now), policy)
    });
    let booked = plan.booked.iter().filter_map(|id| {
        let server = by_uid.get(id.as_str())?;
        decision(server, What::Book, admission::booked(server), policy)
    });
    let mut planned = outlook.planned();
    let mut explained = outlook.world().explained();
    let waiting = outlook.waits().iter().filter_map(|wait| {
        let server = by_uid.get(wait.id.as_str())?;
        if review.revoked.contains_key(server.uid.as_str()) {
            return None;
        }
        let position = position(server)?;
        let (reason, message) = explained.why(wait);
        let (eta, planned) = (outlook.eta(&wait.id), planned.remove(&wait.id));
        let standing = admission::Standing { position, eta, planned, reason, message: &message };
        decision(server, What::Wait, admission::waiting(server, standing, now), policy)
    });
    left.chain(revoked).chain(preempted).chain(granted).chain(booked).chain(waiting).collect()
}

fn until(second: Option<i64>, now: Timestamp) -> Again {
    let left = second.map(|second| second.saturating_sub(now.as_second()).max(1));
    left.and_then(|left| u64::try_from(left).ok())
        .map_or(Again::OnChange, |left| Again::After(Duration::from_secs(left)))
}

fn decision(server: &Server, what: What, admission: Admission, policy: &Policy) -> Option<Decision> {
    Some(Decision {
        namespace: server.namespace.clone(),
        name: server.name.clone(),
        uid: server.uid.clone(),
        what,
        admission: admission::news(server, admission, policy)?,
    })
}

/// When the next silent node counts as lost.
fn silent(room: &Room<'_>, policy: &Policy, now: Timestamp) -> Again {
    let left = room.all().filter_map(|(_, place)| due::until_lost(place.node, policy.lost_after, now));
    left.min().map_or(Again::OnChange, Again::After)
}

/// When the next one begins to stop for somebody else: from then on its pods may go.
fn giving_way(facts: &Facts<'_>, now: Timestamp) -> Again {
    let left = facts.servers.iter().filter_map(|server| server.gives_way_at()).filter(|at| *at > now);
    let left = left.filter_map(|at| Duration::try_from(now.duration_until(at)).ok());
    left.min().map_or(Again::OnChange, Again::After)
}

/// When the next refusal is forgotten.
fn forgiving(unfit: &Refusals, policy: &Policy, now: Timestamp) -> Again {
    let left = unfit.iter().filter_map(|refusal| due::left(refusal.at, policy.retry_after, now));
    left.min().map_or(Again::OnChange, Again::After)
}
