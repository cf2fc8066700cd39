//! Turns the scheduler's plans into changes of `status.admission`: keeps, revokes or creates admissions. It changes no
//! other field.
//!
//! Only bound pods count as usage. An admission is provisional until its pods are bound, and is revoked if the
//! kube-scheduler or a node rejects them.
//!
//! An admission does not wait until pods of an earlier run are gone. They use their nodes like any other pod, and new pods
//! are created when their names are free.

pub(crate) mod capacity;
mod convert;
mod fit;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod hold_time;
mod node_assignment;
mod planner;
#[cfg(test)]
mod properties;
pub mod queue_view;
mod rejected_nodes;
mod revocation;
mod snapshot;
mod status;
mod stored_history;
#[cfg(test)]
mod tests;
pub mod volume_limits;
mod write_policy;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Admission;
use odc_api::v1alpha1::condition::Reason;

pub use crate::devserver::QueueIntent;
pub use crate::scheduler::Request;
pub use planner::{Planner, TraceFn};
pub use rejected_nodes::{Fingerprint, NodeRejection, NodeRejections, REJECTION_TTL};
pub use snapshot::{Account, AccountRef, Accounts, Server, Snapshot};
pub use write_policy::drop_dependents::drop_dependents;
pub use write_policy::status_throttle::StatusThrottle;
pub use write_policy::write_backoff::WriteBackoff;

pub(crate) use fit::is_schedulable;

use crate::plan::Requeue;
use crate::scheduler::{self, DelayedStart, Explanation};
use crate::time;
use capacity::FreeCapacity;
use convert::SchedulerInput;
use queue_view::QueueView;
use revocation::Review;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// A node that is not ready for this time is lost, and all admissions on it are revoked.
    pub node_lost_timeout: Duration,
    /// A pod that the kube-scheduler reports as unschedulable for this time counts as rejected.
    pub unschedulable_timeout: Duration,
    /// The fencing epoch of this leader.
    pub epoch: i64,
    pub scheduler: scheduler::Policy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            node_lost_timeout: Duration::from_secs(600),
            unschedulable_timeout: Duration::from_secs(30),
            epoch: 0,
            scheduler: scheduler::Policy::default(),
        }
    }
}

/// What to write, what to remember, and when to plan again.
#[derive(Clone, Debug)]
pub struct Plan {
    /// In the order of writing: releases, then admissions that use what was released, then status updates. The writer may
    /// stop after any of them.
    pub decisions: Vec<Decision>,
    pub new_rejections: Vec<NodeRejection>,
    /// All unexpired rejections, for the next snapshot.
    pub node_rejections: NodeRejections,
    /// Accounts of servers that release their nodes. Their usage must be stored before the release, so that it is not lost.
    pub released_accounts: BTreeSet<AccountRef>,
    pub delayed: Vec<DelayedStart>,
    pub requeue: Requeue,
}

/// A change of one server's admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub action: Action,
    /// The complete new value.
    pub admission: Admission,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The server has left the queue, its nodes, or both.
    Release,
    /// The admission is not valid any more.
    Revoke(Reason),
    Admit,
    /// The server has to release its nodes after the notice period.
    Preempt,
    ConfirmBooking,
    /// The server stays pending with a new position, ETA or reason.
    UpdatePending,
}

impl Planner {
    /// Decides about all servers. The plan does not depend on the order of the snapshot, and a plan that was written leaves
    /// nothing to decide, except that servers whose admission was revoked are considered again in the next one.
    pub fn plan(&mut self, snapshot: &Snapshot<'_>, policy: &Policy, now: Timestamp, trace: TraceFn<'_>) -> Plan {
        let review = revocation::review(snapshot, policy, now);
        let mut node_rejections = NodeRejections::unexpired(snapshot, &review.capacity, now);
        node_rejections.extend(review.rejections.iter().cloned());
        let input = SchedulerInput::new(snapshot, &review, &node_rejections, policy, now);
        let gone = self.sync(snapshot, input, policy, now, trace);
        let plan = self.decide(policy, now, trace);
        let requeue = review
            .requeue
            .earlier(until_next_lost_node(&review.capacity, policy, now))
            .earlier(until_next_rejection_expires(&node_rejections, now))
            .earlier(until(plan.requeue_at, now))
            .earlier(until_next_preemption(snapshot, now));
        let decisions = decisions(&snapshot.in_arrival_order(), &review, &plan, self.queue_view(), policy, now);
        let released_accounts = released_accounts(&decisions, snapshot).chain(gone).collect();
        let (new_rejections, delayed) = (review.rejections, plan.delayed);
        Plan { decisions, new_rejections, node_rejections, released_accounts, delayed, requeue }
    }
}

/// Returns the accounts of servers that release their nodes.
fn released_accounts<'a>(
    decisions: &'a [Decision],
    snapshot: &'a Snapshot<'_>,
) -> impl Iterator<Item = AccountRef> + 'a {
    let released = decisions.iter().filter(|decision| decision.releases_resources());
    let released: BTreeSet<&str> = released.map(|decision| decision.uid.as_str()).collect();
    let servers = snapshot.servers.iter();
    let servers = servers.filter(move |server| server.is_admitted() && released.contains(server.uid.as_str()));
    servers.flat_map(|server| server.accounts())
}

fn decisions(
    servers: &[&Server],
    review: &Review<'_>,
    plan: &scheduler::Plan,
    queue: &QueueView,
    policy: &Policy,
    now: Timestamp,
) -> Vec<Decision> {
    let by_uid: BTreeMap<&str, &Server> = servers.iter().map(|server| (server.uid.as_str(), *server)).collect();
    let positions = queue.pending().iter();
    let positions: BTreeMap<&str, i64> =
        positions.filter_map(|pending| Some((pending.id.as_str(), i64::from(pending.position?)))).collect();
    let position = |server: &Server| positions.get(server.uid.as_str()).copied();
    let released = servers.iter().filter_map(|server| {
        let is_released = !server.is_admitted() || review.released.contains(server.uid.as_str());
        let is_confirmed = plan.confirmed_bookings.contains(&server.uid);
        let admission = if server.is_stopped() && is_released {
            status::released(server)
        } else if server.intent == QueueIntent::Postponed && !server.is_admitted() && !is_confirmed {
            status::postponed(server)
        } else {
            return None;
        };
        decision(server, Action::Release, admission, policy)
    });
    let revoked = servers.iter().filter_map(|server| {
        let cause = review.revoked.get(server.uid.as_str())?;
        let revoked = status::revoked(server, position(server), cause.reason(), &cause.message());
        decision(server, Action::Revoke(cause.reason()), revoked, policy)
    });
    let preempted = plan.preemptions.iter().filter_map(|preemption| {
        let server = by_uid.get(preemption.id.as_str())?;
        let preempted = status::preempted(server, preemption.stop_at, preemption.reason)?;
        decision(server, Action::Preempt, preempted, policy)
    });
    let admitted = plan.assignments.iter().filter_map(|assignment| {
        let server = by_uid.get(assignment.id.as_str())?;
        decision(server, Action::Admit, status::admitted(server, assignment, now), policy)
    });
    let confirmed = plan.confirmed_bookings.iter().filter_map(|id| {
        let server = by_uid.get(id.as_str())?;
        decision(server, Action::ConfirmBooking, status::booking_confirmed(server), policy)
    });
    let mut planned_starts = queue.planned_starts();
    let mut explainer = queue.state().explainer();
    let pending = queue.pending().iter().filter_map(|pending| {
        let server = by_uid.get(pending.id.as_str())?;
        if review.revoked.contains_key(server.uid.as_str()) {
            return None;
        }
        let position = position(server)?;
        let Explanation { reason, message } = explainer.explain(pending);
        let (eta, planned_start) = (queue.eta(&pending.id), planned_starts.remove(&pending.id));
        let pending = status::PendingStatus { position, eta, planned_start, reason, message: &message };
        decision(server, Action::UpdatePending, status::pending(server, pending, now), policy)
    });
    released.chain(revoked).chain(preempted).chain(admitted).chain(confirmed).chain(pending).collect()
}

/// Returns the decision if it changes the admission.
fn decision(server: &Server, action: Action, admission: Admission, policy: &Policy) -> Option<Decision> {
    Some(Decision {
        namespace: server.namespace.clone(),
        name: server.name.clone(),
        uid: server.uid.clone(),
        action,
        admission: status::changed_admission(server, admission, policy)?,
    })
}

fn until(second: Option<i64>, now: Timestamp) -> Requeue {
    let remaining = second.map(|second| second.saturating_sub(now.as_second()).max(1));
    let remaining = remaining.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    remaining.map_or(Requeue::AwaitChange, Requeue::After)
}

/// Returns when the next unready node counts as lost.
fn until_next_lost_node(capacity: &FreeCapacity<'_>, policy: &Policy, now: Timestamp) -> Requeue {
    let nodes = capacity.iter();
    let remaining = nodes.filter_map(|node| node.node.until_lost(policy.node_lost_timeout, now));
    remaining.min().map_or(Requeue::AwaitChange, Requeue::After)
}

/// Returns when the next preempted server has to stop: from then on its pods may be deleted.
fn until_next_preemption(snapshot: &Snapshot<'_>, now: Timestamp) -> Requeue {
    let times = snapshot.servers.iter().filter_map(|server| server.preempt_at()).filter(|time| *time > now);
    times.map(|time| time::until(time, now)).min().map_or(Requeue::AwaitChange, Requeue::After)
}

fn until_next_rejection_expires(rejections: &NodeRejections, now: Timestamp) -> Requeue {
    let remaining = rejections.iter();
    let remaining = remaining.filter_map(|rejection| time::remaining(REJECTION_TTL, rejection.at, now));
    remaining.min().map_or(Requeue::AwaitChange, Requeue::After)
}
