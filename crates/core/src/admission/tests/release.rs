//! Release of admissions.

use super::*;

#[test]
fn stopped_server_is_released_after_last_pod() {
    let stopped = || {
        Cluster::new([gpu_node("n1", 8)])
            .server("s", |server| server.gpus(8).admitted(3, &["n1"]).intent(QueueIntent::Stopped))
            .server("next", |server| server.gpus(8))
    };
    let deleting = |pod: &mut Pod| (pod.node, pod.deletion_timestamp) = (Some("n1".into()), Some(time(3_500)));
    let pending =
        "pending next #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; none free.";
    check(stopped().server_pod("s", 0, 3, deleting), &[pending]);
    // A pod without owner reference or of another run counts too.
    let stripped = |pod: &mut Pod| pod.server.as_mut().unwrap().owner = None;
    check(stopped().server_pod("s", 0, 3, stripped), &[pending]);
    check(stopped().server_pod("s", 7, 1, |_| {}), &[pending]);
    let after = check(stopped(), &["release s", "admit next on n1"]);
    assert_eq!(after.servers[0].admission, Some(Admission { run: 3, epoch: 2, ..Admission::default() }));
    check(after, &[]);
}

#[test]
fn ended_server_is_released() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("s", |s| Server { ended: true, ..s.admitted(1, &["n1"]) });
    check(cluster, &["release s"]);
}

#[test]
fn pods_of_other_namespace_do_not_block_release() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("s", |server| server.admitted(1, &["n1"]).intent(QueueIntent::Stopped))
        .server_pod("s", 0, 1, |pod| pod.namespace = "dev-eve".into());
    check(cluster, &["release s"]);
}

#[test]
fn server_that_is_not_ready_keeps_admission() {
    let cluster =
        Cluster::new([gpu_node("n1", 8)]).server("s", |s| s.admitted(1, &["n1"]).intent(QueueIntent::Postponed));
    check(cluster, &[]);
}
