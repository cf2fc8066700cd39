//! Which grants stand. A grant is a promise of the queue; where it cannot be kept it is taken back, and the server waits
//! again in its old place.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::condition::{Reason, Sentence};

use super::grant::{Grant, Pods, Slot};
use super::overdraft::Overdraft;
use super::room::Room;
use super::{Facts, Fingerprint, Holder, Policy, Refusal, Server, due, fit};
use crate::amounts::Amounts;
use crate::plan::Again;
use crate::seen::Pod;

/// All grants, sorted by what becomes of them.
pub(super) struct Review<'a> {
    pub kept: Vec<Held<'a>>,
    /// By uid.
    pub released: BTreeSet<&'a str>,
    /// By uid.
    pub revoked: BTreeMap<&'a str, Cause<'a>>,
    pub refused: Vec<Refusal>,
    /// What bound pods and the kept grants leave.
    pub room: Room<'a>,
    pub again: Again,
}

/// A server with what it holds.
pub(super) struct Held<'a> {
    pub server: &'a Server,
    /// What its pods use, or will.
    pub on: Vec<(&'a str, Amounts)>,
}

/// Why a grant cannot be kept.
#[derive(Clone)]
pub(super) enum Cause<'a> {
    /// The node does not exist any more.
    Gone(&'a str),
    /// The node is silent for too long.
    Lost(&'a str),
    /// The node, or the kube-scheduler in its name, did not keep or take the pod.
    Refused { node: &'a str, pod: &'a Pod },
    /// Others have the room: another leader granted it too, or other people's pods took it.
    Crowded(&'a str),
    /// It names more or fewer nodes than the server has: somebody else wrote it.
    Misfit,
    /// Another leader granted from the same quota at the same time.
    Overdrawn(Holder),
    /// It gave way to somebody with a better right.
    GaveWay,
}

pub(super) fn review<'a>(world: &'a Facts<'a>, policy: &Policy, now: Timestamp) -> Review<'a> {
    let pods = Pods::of(world);
    let bound = Room::of(world);
    let mut review = Review {
        kept: Vec::new(),
        released: BTreeSet::new(),
        revoked: BTreeMap::new(),
        refused: Vec::new(),
        room: bound.clone(),
        again: Again::OnChange,
    };
    let mut unproven = Vec::new();
    for grant in world.in_order().into_iter().filter_map(|server| Grant::of(server, &pods)) {
        if grant.server.rests() {
            review.rest(&grant);
        } else if let Some(cause) = broken(&grant, &bound, policy, now) {
            review.refused.extend(refusals(&grant, &bound, policy, now));
            review.revoked.insert(&grant.server.uid, cause);
        } else if grant.server.gives_way(now) {
            review.give_way(&grant);
        } else {
            review.again = review.again.or(until_refused(&grant, policy, now));
            unproven.push(grant);
        }
    }
    unproven.sort_by_key(Grant::precedence);
    let mut overdraft = Overdraft::default();
    review.kept.iter().for_each(|kept| overdraft.charge(kept.server));
    for grant in &unproven {
        match overdraft.overdrawn(grant.server, &world.accounts).filter(|_| grant.is_unbound()) {
            Some(holder) => drop(review.revoked.insert(&grant.server.uid, Cause::Overdrawn(holder))),
            None => review.keep_if_it_fits(grant),
        }
        if !review.revoked.contains_key(grant.server.uid.as_str()) {
            overdraft.charge(grant.server);
        }
    }
    review
}

impl<'a> Review<'a> {
    /// What a server held is free when its last pod is gone, and not before: an orderly stop takes its time.
    fn rest(&mut self, grant: &Grant<'a>) {
        if grant.deserted {
            self.released.insert(&grant.server.uid);
        } else {
            self.room.reserve(grant);
            self.kept.push(Held::of(grant));
        }
    }

    /// The same for one that has to leave and wants to stay: it gets its place in the queue back.
    fn give_way(&mut self, grant: &Grant<'a>) {
        if grant.deserted {
            self.revoked.insert(&grant.server.uid, Cause::GaveWay);
        } else {
            self.room.reserve(grant);
            self.kept.push(Held::of(grant));
        }
    }

    /// A gang of which some pods are bound needs the room of the others all the same.
    fn keep_if_it_fits(&mut self, grant: &Grant<'a>) {
        let fits =
            |(node, missing): &(&str, &Amounts)| self.room.on(node).is_some_and(|place| place.free.holds(missing));
        if let Some((node, _)) = grant.missing().find(|missing| !fits(missing)) {
            self.revoked.insert(&grant.server.uid, Cause::Crowded(node));
        } else {
            self.room.reserve(grant);
            self.kept.push(Held::of(grant));
        }
    }
}

impl<'a> Held<'a> {
    fn of(grant: &Grant<'a>) -> Self {
        let on = grant.slots.iter().filter_map(|slot| match (&slot.missing, slot.pod) {
            // What is on its way out is this server's for as long as it takes.
            (Some(missing), _) => match slot.outgoing {
                Some(pod) => Some((slot.node, missing.plus(&grant.used(pod)))),
                None => Some((slot.node, missing.clone())),
            },
            (None, Some(pod)) => Some((pod.node.as_deref()?, grant.used(pod).into_owned())),
            (None, None) => None,
        });
        Self { server: grant.server, on: on.collect() }
    }
}

/// What breaks a grant apart from others that want the same room. A lost node comes first: what its pods say is old.
fn broken<'a>(grant: &Grant<'a>, room: &Room<'_>, policy: &Policy, now: Timestamp) -> Option<Cause<'a>> {
    let lost = grant.slots.iter().find_map(|slot| match room.on(slot.node) {
        None => Some(Cause::Gone(slot.node)),
        Some(place) => due::is_lost(place.node, policy.lost_after, now).then_some(Cause::Lost(slot.node)),
    });
    let refused = || grant.slots.iter().find_map(|slot| refused_pod(slot, policy, now).map(|pod| (slot.node, pod)));
    let misfit = (grant.slots.len() != grant.server.request.nodes()).then_some(Cause::Misfit);
    lost.or(misfit).or_else(|| refused().map(|(node, pod)| Cause::Refused { node, pod }))
}

/// The pod of a slot, if its node will not have it. Pods that are being deleted are not looked at: they end in the same
/// phases as pods that were evicted.
fn refused_pod<'a>(slot: &Slot<'a>, policy: &Policy, now: Timestamp) -> Option<&'a Pod> {
    slot.pod.filter(|pod| match unplaced_since(pod) {
        Some(since) => due::left(since, policy.refused_after, now).is_none(),
        None => pod.is_over(),
    })
}

/// Since when the kube-scheduler finds no place for a pod.
fn unplaced_since(pod: &Pod) -> Option<Timestamp> {
    let unbound = pod.node.is_none() && !pod.is_over();
    pod.server.as_ref().filter(|_| unbound).and_then(|server| server.unschedulable)
}

fn until_refused(grant: &Grant<'_>, policy: &Policy, now: Timestamp) -> Again {
    let since = grant.slots.iter().filter_map(|slot| unplaced_since(slot.pod?));
    since.filter_map(|since| due::left(since, policy.refused_after, now)).min().map_or(Again::OnChange, Again::After)
}

/// The nodes to stay away from. Only refusals that cannot be understood from here are kept: a node that is full or
/// closed is not granted while it is, and may be right as soon as it is not.
fn refusals(grant: &Grant<'_>, bound: &Room<'_>, policy: &Policy, now: Timestamp) -> Vec<Refusal> {
    let server = grant.server;
    let refusal = |slot: &Slot<'_>| {
        let pod = refused_pod(slot, policy, now)?;
        let place = bound.on(slot.node).filter(|place| fit::takes(&server.request, place))?;
        Some(Refusal {
            uid: server.uid.clone(),
            node: slot.node.to_owned(),
            fingerprint: Fingerprint::of(place.node),
            at: now,
            why: Sentence::start_of(&words(pod)),
        })
    };
    grant.slots.iter().filter_map(refusal).collect()
}

/// What Kubernetes says about a pod, without a full stop.
fn words(pod: &Pod) -> String {
    let said = |text: &Option<Box<str>>| {
        let text = text.as_deref().unwrap_or_default();
        text.trim().trim_end_matches('.').to_owned()
    };
    let (reason, message) =
        pod.server.as_ref().map_or_else(Default::default, |pod| (said(&pod.reason), said(&pod.message)));
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => "it did not say why".to_owned(),
        (false, true) => reason,
        (true, false) => message,
        (false, false) => format!("{reason}: {message}"),
    }
}

impl Cause<'_> {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Gone(_) | Self::Lost(_) => Reason::NodeLost,
            Self::Refused { .. } | Self::Crowded(_) | Self::Misfit => Reason::Unschedulable,
            Self::Overdrawn(_) => Reason::QuotaExceeded,
            Self::GaveWay => Reason::Preempted,
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::Gone(node) => format!("Node {node} does not exist any more."),
            Self::Lost(node) => format!("Node {node} does not answer any more and counts as lost."),
            Self::Refused { node, pod } if pod.is_over() => format!("Node {node} ended the pod: {}.", words(pod)),
            Self::Refused { node, pod } => format!("Node {node} did not take the pod: {}.", words(pod)),
            Self::Crowded(node) => format!("Others took the room on node {node} before the server could start there."),
            Self::Misfit => "Its grant was not of its size.".to_owned(),
            Self::Overdrawn(Holder::User(name)) => format!("The quota of user {name} was used up at the same time."),
            Self::Overdrawn(Holder::Team(name)) => format!("The quota of team {name} was used up at the same time."),
            Self::GaveWay => "It gave way to somebody with a better right and is back in its old place.".to_owned(),
        }
    }
}
