//! The pods of a server, sorted by what is to be done about them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::object::Kind;
use crate::plan::Target;
use crate::seen::{Node, Pod, Readiness, ServerPod};

/// Pods by their place in the server. A pod is ours if it carries our uid, and of this run only with its number and
/// alive.
#[derive(Debug, Default)]
pub struct Parts<'a> {
    /// The live pod of each ordinal, of the granted run.
    pub current: Vec<Option<&'a Pod>>,
    /// Ours, alive, and no longer wanted: of an older run, or too many.
    pub surplus: Vec<&'a Pod>,
    /// Ours, of this run, and over: evicted, refused by its node, shut down. The queue takes the grant back.
    pub over: Vec<&'a Pod>,
    /// Ours and on its way out.
    pub leaving: Vec<&'a Pod>,
    /// Made for us, but somebody took our owner reference away.
    pub orphaned: Vec<&'a Pod>,
    /// Of somebody else, with a name we need.
    pub foreign: Vec<&'a Pod>,
}

pub fn name(server: &str, ordinal: usize) -> String {
    format!("{server}-{ordinal}")
}

/// `run` is the granted run; none while nothing is granted, and then no pod is current.
pub fn sort<'a>(pods: &[&'a Pod], server: &str, uid: &str, nodes: usize, run: Option<i64>) -> Parts<'a> {
    let mut parts = Parts { current: vec![None; nodes], ..Parts::default() };
    for pod in pods {
        let ordinal = (0..nodes).find(|ordinal| pod.name == name(server, *ordinal));
        let Some(details) = pod.server.as_deref().filter(|details| is_ours(details, uid)) else {
            if ordinal.is_some() {
                parts.foreign.push(pod);
            }
            continue;
        };
        let of_this_run = run.is_some() && details.run == run;
        match ordinal {
            _ if pod.deleting.is_some() => parts.leaving.push(pod),
            _ if details.owner.is_none() => parts.orphaned.push(pod),
            Some(_) if of_this_run && pod.is_over() => parts.over.push(pod),
            Some(ordinal) if of_this_run => parts.current[ordinal] = Some(pod),
            _ => parts.surplus.push(pod),
        }
    }
    parts
}

fn is_ours(details: &ServerPod, uid: &str) -> bool {
    match &details.owner {
        Some(owner) => owner == uid,
        None => details.made_for.as_deref() == Some(uid),
    }
}

impl<'a> Parts<'a> {
    pub fn live(&self) -> impl Iterator<Item = &'a Pod> {
        self.current.iter().copied().flatten()
    }

    /// Everything of ours that exists.
    pub fn all(&self) -> impl Iterator<Item = &'a Pod> {
        let rest = [&self.surplus, &self.over, &self.leaving, &self.orphaned];
        self.live().chain(rest.into_iter().flatten().copied())
    }

    pub fn none_left(&self) -> bool {
        self.all().next().is_none()
    }

    pub fn all_ready(&self) -> bool {
        self.current.iter().all(|pod| pod.is_some_and(is_ready))
    }
}

pub fn is_ready(pod: &Pod) -> bool {
    pod.server.as_ref().is_some_and(|details| details.ready)
}

/// A node that has not been ready for so long, or is no more, will not bring its pods back.
pub fn is_lost(node: Option<&Node>, after: Duration, now: Timestamp) -> bool {
    match node.map(|node| node.readiness) {
        None => true,
        Some(Readiness::Unready(since)) => {
            Duration::try_from(now.duration_since(since)).is_ok_and(|unready| unready >= after)
        }
        Some(Readiness::Ready | Readiness::New) => false,
    }
}

/// The pod's node, if the pod has one and it is lost.
pub fn lost_node<'a>(pod: &'a Pod, nodes: &BTreeMap<&str, &Node>, after: Duration, now: Timestamp) -> Option<&'a str> {
    let node = pod.node.as_deref()?;
    is_lost(nodes.get(node).copied(), after, now).then_some(node)
}

pub fn target(pod: &Pod, grace: Option<u32>) -> Target {
    Target {
        kind: Kind::Pod,
        namespace: Some(pod.namespace.clone()),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        grace,
    }
}
