//! Classification of the pods of a server.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{Node, Pod};
use crate::manifest::Kind;
use crate::plan::Target;

/// The pods of a server by state. A pod belongs to the server by uid ([`ServerPod::belongs_to`]) and to the current run
/// by run number.
///
/// [`ServerPod::belongs_to`]: crate::cluster::ServerPod::belongs_to
#[derive(Debug, Default)]
pub struct ServerPods<'a> {
    /// The live pod of each ordinal of the current run.
    pub current: Vec<Option<&'a Pod>>,
    /// Live pods that are no longer needed: of an older run, or beyond the number of nodes.
    pub surplus: Vec<&'a Pod>,
    /// Pods of the current run that have terminated: evicted, rejected by the node, or shut down with it. The scheduler
    /// revokes the admission.
    pub terminated: Vec<&'a Pod>,
    /// Pods that are being deleted.
    pub terminating: Vec<&'a Pod>,
    /// Pods created for the server whose owner reference was removed.
    pub orphaned: Vec<&'a Pod>,
    /// Pods of other owners with a name that the server needs.
    pub foreign: Vec<&'a Pod>,
}

pub fn pod_name(server: &str, ordinal: usize) -> String {
    format!("{server}-{ordinal}")
}

/// Classifies pods. `run` is the admitted run; without one, no pod is current.
pub fn classify<'a>(pods: &[&'a Pod], server: &str, uid: &str, nodes: usize, run: Option<i64>) -> ServerPods<'a> {
    let mut all = ServerPods { current: vec![None; nodes], ..ServerPods::default() };
    for pod in pods {
        let ordinal = (0..nodes).find(|ordinal| pod.name == pod_name(server, *ordinal));
        let Some(details) = pod.server.as_deref().filter(|details| details.belongs_to(uid)) else {
            if ordinal.is_some() {
                all.foreign.push(pod);
            }
            continue;
        };
        let of_current_run = run.is_some() && details.run == run;
        match ordinal {
            _ if pod.deletion_timestamp.is_some() => all.terminating.push(pod),
            _ if details.owner.is_none() => all.orphaned.push(pod),
            Some(_) if of_current_run && pod.is_terminated() => all.terminated.push(pod),
            Some(ordinal) if of_current_run => all.current[ordinal] = Some(pod),
            _ => all.surplus.push(pod),
        }
    }
    all
}

impl<'a> ServerPods<'a> {
    pub fn live(&self) -> impl Iterator<Item = &'a Pod> {
        self.current.iter().copied().flatten()
    }

    /// Returns all pods that belong to the server.
    pub fn all(&self) -> impl Iterator<Item = &'a Pod> {
        let rest = [&self.surplus, &self.terminated, &self.terminating, &self.orphaned];
        self.live().chain(rest.into_iter().flatten().copied())
    }

    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    pub fn all_ready(&self) -> bool {
        self.current.iter().all(|pod| pod.is_some_and(is_ready))
    }
}

pub fn is_ready(pod: &Pod) -> bool {
    pod.server.as_ref().is_some_and(|details| details.ready)
}

/// Returns the node of the pod if it is lost. A node that is not in `nodes` is not considered lost.
pub fn lost_node<'a>(
    pod: &'a Pod,
    nodes: &BTreeMap<&str, &Node>,
    node_lost_timeout: Duration,
    now: Timestamp,
) -> Option<&'a str> {
    let name = pod.node.as_deref()?;
    nodes.get(name).is_some_and(|node| node.is_lost(node_lost_timeout, now)).then_some(name)
}

pub fn target(pod: &Pod, grace: Option<u32>) -> Target {
    Target { grace, ..Target::new(Kind::Pod, Some(&pod.namespace), &pod.name, &pod.uid) }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use crate::cluster::{PodPhase, Readiness, ServerPod};

    fn pod(name: &str, change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = fixtures::pod(name);
        change(&mut pod);
        pod
    }

    /// As [`pod`], for the details of server pods.
    fn detailed(name: &str, change: impl FnOnce(&mut ServerPod)) -> Pod {
        pod(name, |pod| change(pod.server.as_mut().unwrap()))
    }

    /// Checks in which list a pod of a server with two nodes is put.
    #[track_caller]
    fn check(run: Option<i64>, given: &Pod, expect: &str) {
        let pods = classify(&[given], "server-1", "uid-server-1", 2, run);
        let ServerPods { current, surplus, terminated, terminating, orphaned, foreign } = &pods;
        let lists =
            [("surplus", surplus), ("terminated", terminated), ("terminating", terminating), ("orphaned", orphaned)];
        let lists = lists.into_iter().chain([("foreign", foreign)]).filter(|(_, list)| !list.is_empty());
        let mut found: Vec<&str> = lists.map(|(name, _)| name).collect();
        found.extend(current.iter().flatten().map(|_| "current"));
        assert_eq!(found, [expect].iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>());
        let owned = !["foreign", ""].contains(&expect);
        assert_eq!((pods.all().count(), pods.is_empty()), (usize::from(owned), !owned));
    }

    #[test]
    fn pod_belongs_to_server_by_uid_and_to_run_by_number() {
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
    fn pod_without_owner_belongs_to_server_it_was_created_for() {
        check(Some(3), &detailed("server-1-0", |details| details.owner = None), "orphaned");
        check(Some(9), &detailed("server-1-0", |details| details.owner = None), "orphaned");
        let unmarked = detailed("server-1-0", |details| (details.owner, details.created_for) = (None, None));
        check(Some(3), &unmarked, "foreign");
    }

    #[test]
    fn deleted_pod_is_terminating_whatever_its_state() {
        let terminating = |change: fn(&mut Pod)| {
            pod("server-1-0", |pod| {
                pod.deletion_timestamp = Some(Timestamp::UNIX_EPOCH);
                change(pod);
            })
        };
        check(Some(3), &terminating(|_| {}), "terminating");
        check(Some(3), &terminating(|pod| pod.phase = PodPhase::Failed), "terminating");
        check(Some(3), &terminating(|pod| pod.server.as_mut().unwrap().owner = None), "terminating");
    }

    #[test]
    fn evicted_pod_of_current_run_is_terminated() {
        check(Some(3), &pod("server-1-0", |pod| pod.phase = PodPhase::Failed), "terminated");
        check(Some(3), &pod("server-1-0", |pod| pod.phase = PodPhase::Succeeded), "terminated");
        check(Some(4), &pod("server-1-0", |pod| pod.phase = PodPhase::Failed), "surplus");
    }

    #[test]
    fn server_is_ready_when_all_pods_are_ready() {
        let (ready, other) = (pod("server-1-0", |_| {}), detailed("server-1-1", |details| details.ready = false));
        let all_ready = |pods: &[&Pod]| classify(pods, "server-1", "uid-server-1", 2, Some(3)).all_ready();
        assert!(!all_ready(&[&ready]));
        assert!(!all_ready(&[&ready, &other]));
        assert!(all_ready(&[&ready, &pod("server-1-1", |_| {})]));
    }

    #[test]
    fn node_is_lost_when_missing_or_unready_for_too_long() {
        let node_lost_timeout = Duration::from_secs(600);
        let at = fixtures::at;
        let node = |readiness| Node { readiness, ..fixtures::node("node-1") };
        for (node, now, expect) in [
            (Node::missing("node-1", at(0)), 599, false),
            (Node::missing("node-1", at(0)), 600, true),
            (node(Readiness::Ready), 0, false),
            (node(Readiness::New), 99_999, false),
            (node(Readiness::Unready(at(0))), 599, false),
            (node(Readiness::Unready(at(0))), 600, true),
            // The clock was set back.
            (node(Readiness::Unready(at(9_999))), 0, false),
        ] {
            assert_eq!(node.is_lost(node_lost_timeout, at(now)), expect, "{node:?} at {now}");
            let (pod, nodes) = (pod("server-1-0", |_| {}), BTreeMap::from([("node-1", &node)]));
            assert_eq!(lost_node(&pod, &nodes, node_lost_timeout, at(now)).is_some(), expect);
            assert_eq!(lost_node(&pod, &BTreeMap::new(), node_lost_timeout, at(now)), None);
        }
    }
}
