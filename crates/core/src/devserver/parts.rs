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

/// Whether a pod is of the server with this uid.
pub fn is_ours(details: &ServerPod, uid: &str) -> bool {
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

/// A node that has not been ready for so long will not bring its pods back.
pub fn is_lost(node: &Node, after: Duration, now: Timestamp) -> bool {
    match node.readiness {
        Readiness::Unready(since) => {
            Duration::try_from(now.duration_since(since)).is_ok_and(|unready| unready >= after)
        }
        Readiness::Ready | Readiness::New => false,
    }
}

/// The pod's node, if the pod has one and it is lost. Of one that nobody has told of it cannot be said.
pub fn lost_node<'a>(pod: &'a Pod, nodes: &BTreeMap<&str, &Node>, after: Duration, now: Timestamp) -> Option<&'a str> {
    let node = pod.node.as_deref()?;
    nodes.get(node).is_some_and(|seen| is_lost(seen, after, now)).then_some(node)
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

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::seen::PodPhase;

    fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = fixtures::pod(name);
        change(&mut pod);
        pod
    }

    /// The same for what only pods of servers have.
    fn detailed(name: &str, change: impl FnOnce(&mut ServerPod)) -> Pod {
        pod(name, |pod| change(pod.server.as_mut().unwrap()))
    }

    /// Where the first pod of a server of two nodes belongs, by the name of the list.
    #[track_caller]
    fn check(run: Option<i64>, given: &Pod, expect: &str) {
        let parts = sort(&[given], "server-1", "uid-server-1", 2, run);
        let Parts { current, surplus, over, leaving, orphaned, foreign } = &parts;
        let lists = [("surplus", surplus), ("over", over), ("leaving", leaving), ("orphaned", orphaned)];
        let lists = lists.into_iter().chain([("foreign", foreign)]).filter(|(_, list)| !list.is_empty());
        let mut found: Vec<&str> = lists.map(|(name, _)| name).collect();
        found.extend(current.iter().flatten().map(|_| "current"));
        assert_eq!(found, [expect].iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>());
        let ours = !["foreign", ""].contains(&expect);
        assert_eq!((parts.all().count(), parts.none_left()), (usize::from(ours), !ours));
    }

    #[test]
    fn a_pod_is_ours_by_uid_and_of_this_run_by_number() {
        check(Some(3), &pod("server-1-0", |_| {}), "current");
        check(Some(3), &pod("server-1-1", |_| {}), "current");
        check(Some(4), &pod("server-1-0", |_| {}), "surplus");
        check(None, &pod("server-1-0", |_| {}), "surplus");
        check(Some(3), &detailed("server-1-0", |details| details.run = None), "surplus");
        check(Some(3), &pod("server-1-2", |_| {}), "surplus");
        check(Some(3), &detailed("server-1-0", |details| details.owner = Some("uid-2".into())), "foreign");
        check(Some(3), &detailed("another", |details| details.owner = Some("uid-2".into())), "");
        check(Some(3), &pod("server-1-0", |pod| pod.server = None), "foreign");
    }

    #[test]
    fn a_pod_without_owner_is_ours_if_it_was_made_for_us() {
        check(Some(3), &detailed("server-1-0", |details| details.owner = None), "orphaned");
        check(Some(9), &detailed("server-1-0", |details| details.owner = None), "orphaned");
        let stranger = detailed("server-1-0", |details| (details.owner, details.made_for) = (None, None));
        check(Some(3), &stranger, "foreign");
    }

    #[test]
    fn a_pod_on_its_way_out_is_only_that() {
        let leaving = |change: fn(&mut Pod)| {
            pod("server-1-0", |pod| {
                pod.deleting = Some(Timestamp::UNIX_EPOCH);
                change(pod);
            })
        };
        check(Some(3), &leaving(|_| {}), "leaving");
        check(Some(3), &leaving(|pod| pod.phase = PodPhase::Failed), "leaving");
        check(Some(3), &leaving(|pod| pod.server.as_mut().unwrap().owner = None), "leaving");
    }

    #[test]
    fn a_pod_its_node_sent_away_is_over() {
        check(Some(3), &pod("server-1-0", |pod| pod.phase = PodPhase::Failed), "over");
        check(Some(3), &pod("server-1-0", |pod| pod.phase = PodPhase::Succeeded), "over");
        check(Some(4), &pod("server-1-0", |pod| pod.phase = PodPhase::Failed), "surplus");
    }

    #[test]
    fn a_server_is_ready_with_all_its_pods() {
        let (ready, other) = (pod("server-1-0", |_| {}), detailed("server-1-1", |details| details.ready = false));
        let all_ready = |pods: &[&Pod]| sort(pods, "server-1", "uid-server-1", 2, Some(3)).all_ready();
        assert!(!all_ready(&[&ready]));
        assert!(!all_ready(&[&ready, &other]));
        assert!(all_ready(&[&ready, &pod("server-1-1", |_| {})]));
    }

    #[test]
    fn a_node_is_lost_when_it_is_missing_or_silent_for_long() {
        let after = Duration::from_secs(600);
        let at = fixtures::at;
        let node = |readiness| Node { readiness, ..fixtures::node("node-1") };
        for (node, now, expect) in [
            (Node::missing("node-1", at(0)), 599, false),
            (Node::missing("node-1", at(0)), 600, true),
            (node(Readiness::Ready), 0, false),
            (node(Readiness::New), 99_999, false),
            (node(Readiness::Unready(at(0))), 599, false),
            (node(Readiness::Unready(at(0))), 600, true),
            // A clock that was set back.
            (node(Readiness::Unready(at(9_999))), 0, false),
        ] {
            assert_eq!(is_lost(&node, after, at(now)), expect, "{node:?} at {now}");
            let (pod, nodes) = (pod("server-1-0", |_| {}), BTreeMap::from([("node-1", &node)]));
            assert_eq!(lost_node(&pod, &nodes, after, at(now)).is_some(), expect);
            assert_eq!(lost_node(&pod, &BTreeMap::new(), after, at(now)), None);
        }
    }
}
