//! Volume limits of nodes.

use super::*;
use crate::scheduler::ServerState;

fn with_disk(name: &str, node: &str, claim: &str) -> Pod {
    Pod { claims: [claim.into()].into(), ..foreign(name, node, 0) }
}

const FULL: &str = "Insufficient volume attachments of disks.example.org: requires 1 on one node; none free.";

#[test]
fn node_without_free_attachment_is_waited_for() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).limit("n1", 2).pod(with_disk("a", "n1", "one"));
    let wants = |cluster: Cluster| cluster.server("wants", |server| server.disks(1));
    // A volume that two pods mount counts once.
    check(wants(cluster.clone().pod(with_disk("b", "n1", "one"))), &["admit wants on n1"]);
    let full = cluster.pod(with_disk("b", "n1", "two"));
    check(wants(full.clone()), &[&format!("pending wants #1 InsufficientCapacity: {FULL}")]);
    // Servers without volumes are not affected.
    check(full.clone().server("plain", |server| server), &["admit plain on n1"]);
    // Another node has no limit.
    let mut larger = full;
    larger.nodes.push(gpu_node("n2", 1));
    check(wants(larger), &["admit wants on n2"]);
}

#[test]
fn assignments_count_their_volumes() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .limit("n1", 2)
        .server("first", |server| server.disks(1))
        .server("second", |server| server.disks(1))
        .server("third", |server| server.disks(1));
    check(
        cluster,
        &["admit first on n1", "admit second on n1", &format!("pending third #1 InsufficientCapacity: {FULL}")],
    );
}

#[test]
fn attachment_is_free_after_release() {
    let cluster = |is_known: bool| {
        Cluster::new([gpu_node("n1", 8)])
            .limit("n1", 1)
            .server("has", |server| Server {
                release_time: is_known.then(|| time(7_200)),
                ..server.disks(1).admitted(1, &["n1"])
            })
            .server_pod("has", 0, 1, |pod| pod.node = Some("n1".into()))
            .server("wants", |server| server.disks(1))
    };
    check(cluster(false), &[&format!("pending wants #1 InsufficientCapacity: {FULL}")]);
    let queue = cluster(true).queue_view();
    let [pending] = queue.pending() else { panic!("{:?}", queue.pending()) };
    assert_eq!(pending.planned_start, Some(time(7_200).as_second()));
    let has = queue.state().server("uid-has").unwrap();
    let ServerState::Running(running) = &has.state else { panic!("{has:?}") };
    assert_eq!(running.nodes[0].1.volumes().map(|(_, disks)| disks).sum::<i64>(), 1);
    let mut left = cluster(false);
    (left.pods, left.servers[0].intent) = (vec![], QueueIntent::Stopped);
    check(left, &["release has", "admit wants on n1"]);
}

#[test]
fn replaced_pod_keeps_its_attachments() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .limit("n1", 1)
        .server("has", |server| server.disks(1).admitted(1, &["n1"]))
        .server_pod("has", 0, 1, |pod| (pod.node, pod.deletion_timestamp) = (Some("n1".into()), Some(time(3_500))));
    check(cluster, &[]);
}

#[test]
fn more_volumes_than_any_node_attaches_are_unsatisfiable() {
    let cluster =
        |limit| Cluster::new([gpu_node("n1", 8)]).limit("n1", limit).server("wants", |server| server.disks(2));
    let requires = "pending wants #1 Unsatisfiable: Requires 1 nvidia.com/gpu with 2 volumes of disks.example.org on one \
                    node.";
    let attachments = "volume attachments of disks.example.org";
    check(cluster(1), &[&format!("{requires} No node has more than 1 {attachments}.")]);
    check(cluster(0), &[&format!("{requires} No node provides {attachments}.")]);
    check(cluster(2), &["admit wants on n1"]);
    let used = cluster(2).pod(with_disk("a", "n1", "one"));
    let free = "requires 2 on one node; at most 1 free on a node, 1 in total.";
    check(used, &[&format!("pending wants #1 InsufficientCapacity: Insufficient {attachments}: {free}")]);
}
