//! What becomes of a grant when its server has no use for it.

use super::*;

#[test]
fn a_grant_is_given_back_when_the_last_pod_is_gone() {
    let resting = || {
        Cluster::new([gpu_node("n1", 8)])
            .server("s", |server| server.gpus(8).granted(3, &["n1"]).want(Want::Rest))
            .server("next", |server| server.gpus(8))
    };
    let deleting = |pod: &mut Pod| (pod.node, pod.deleting) = (Some("n1".into()), Some(time(3_500)));
    let waits = "wait next #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.";
    check(resting().server_pod("s", 0, 3, deleting), &[waits]);
    // Somebody took its owner reference away, or it is of another run: it is there all the same.
    let stripped = |pod: &mut Pod| pod.server.as_mut().unwrap().owner = None;
    check(resting().server_pod("s", 0, 3, stripped), &[waits]);
    check(resting().server_pod("s", 7, 1, |_| {}), &[waits]);
    let after = check(resting(), &["release s", "grant next on n1"]);
    assert_eq!(after.servers[0].admission, Some(Admission { run: 3, epoch: 2, ..Admission::default() }));
    check(after, &[]);
}

#[test]
fn what_has_ended_gives_back_whatever_it_wants() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("s", |s| Server { ended: true, ..s.granted(1, &["n1"]) });
    check(cluster, &["release s"]);
}

#[test]
fn pods_of_another_namespace_are_not_ones_own() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("s", |server| server.granted(1, &["n1"]).want(Want::Rest))
        .server_pod("s", 0, 1, |pod| pod.namespace = "dev-eve".into());
    check(cluster, &["release s"]);
}

#[test]
fn what_only_waits_for_something_keeps_its_grant() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("s", |s| s.granted(1, &["n1"]).want(Want::Later));
    check(cluster, &[]);
}
