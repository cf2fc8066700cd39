//! Which nodes a request could use, in four senses from the widest to the narrowest.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use odc_api::v1alpha1::Toleration;

use super::room::{Place, Room};
use super::taint::{lets_in, would_let_in};
use super::{Policy, Request, due, gang};
use crate::seen::Node;

/// Numbers of nodes, each list in the order of names and a part of the one before it; `open` alone is a part of `like`
/// only.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes {
    /// Its labels, lasting taints and reach are right.
    pub like: Vec<usize>,
    /// It could hold the request if it were empty and well, together with enough others.
    pub could: Vec<usize>,
    /// It could hold the request if only servers left. Waiting for these makes sense, so they are kept for whoever is
    /// first. A node out of service has no known end of that, and other people's pods are not the queue's to end:
    /// keeping the rest empty for them would only waste it.
    pub hope: Vec<usize>,
    /// It takes pods now, though perhaps not so large ones.
    pub open: Vec<usize>,
}

impl Nodes {
    fn of(request: &Request, room: &Room<'_>, policy: &Policy, now: Timestamp) -> Self {
        let numbers = |fits: &dyn Fn(&Place<'_>) -> bool, among: &[usize]| -> Vec<usize> {
            room.among(among).filter(|(_, place)| fits(place)).map(|(at, _)| at).collect()
        };
        let all: Vec<usize> = (0..room.len()).collect();
        let like = numbers(&|place| alike(request, place.node), &all);
        let open = numbers(&|place| is_open(place.node, &request.tolerations), &like);
        let could = numbers(&|place| place.node.allocatable.holds(&request.each), &like);
        let in_service = |place: &Place<'_>| {
            !place.node.cordoned
                && (place.node.is_ready() || due::until_lost(place.node, policy.lost_after, now).is_some())
        };
        let hope = numbers(&|place| in_service(place) && place.ceiling.holds(&request.each), &could);
        Self { like, could: gang::enough(request, room, &could), hope: gang::enough(request, room, &hope), open }
    }
}

fn alike(request: &Request, node: &Node) -> bool {
    has_labels(node, &request.selector)
        && would_let_in(node, &request.tolerations)
        && request.reach.iter().all(|reach| reach.includes(&node.labels))
}

pub(crate) fn has_labels(node: &Node, selector: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

/// Whether a node takes new pods with these tolerations.
pub(crate) fn is_open(node: &Node, tolerations: &[Toleration]) -> bool {
    node.is_ready() && !node.cordoned && lets_in(node, tolerations)
}

/// Whether a pod of the request could be on this node now, as far as can be seen.
pub(super) fn takes(request: &Request, place: &Place<'_>) -> bool {
    alike(request, place.node) && is_open(place.node, &request.tolerations) && place.free.holds(&request.each)
}

/// Requests that see the same nodes, so that these are looked for once. There are few kinds of request and many servers.
pub(super) struct Shapes<'a> {
    shapes: Vec<(&'a Request, Nodes)>,
    /// What tells requests apart most often, to compare few of them in full.
    known: BTreeMap<Key<'a>, Vec<usize>>,
}

type Key<'a> = (u32, Option<&'a str>, i64, i64, &'a BTreeMap<String, String>);

impl<'a> Shapes<'a> {
    pub fn new() -> Self {
        Self { shapes: Vec::new(), known: BTreeMap::new() }
    }

    /// The number of a request's shape.
    pub fn find(&mut self, request: &'a Request, room: &Room<'_>, policy: &Policy, now: Timestamp) -> usize {
        let Request { nodes, each, device, selector, .. } = request;
        let alike = self.known.entry((*nodes, device.as_deref(), each.cpu, each.memory, selector)).or_default();
        let same = |at: &&usize| self.shapes.get(**at).is_some_and(|(known, _)| *known == request);
        if let Some(at) = alike.iter().find(same) {
            return *at;
        }
        alike.push(self.shapes.len());
        self.shapes.push((request, Nodes::of(request, room, policy, now)));
        self.shapes.len() - 1
    }

    pub fn nodes(&self, shape: usize) -> Option<&Nodes> {
        self.shapes.get(shape).map(|(_, nodes)| nodes)
    }

    pub fn len(&self) -> usize {
        self.shapes.len()
    }
}
