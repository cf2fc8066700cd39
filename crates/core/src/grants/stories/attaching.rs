//! Nodes that can attach only so many volumes.

use super::*;
use crate::scheduler::State;

fn with_disk(name: &str, node: &str, claim: &str) -> Pod {
    Pod { claims: [claim.into()].into(), ..foreign(name, node, 0) }
}

const FULL: &str =
    "Needs 1 nvidia.com/gpu with 1 volume of disks.example.org on one node; no node can attach one more.";

#[test]
fn a_node_with_no_room_for_a_volume_is_waited_for() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).limit("n1", 2).pod(with_disk("a", "n1", "one"));
    let wants = |cluster: Cluster| cluster.server("wants", |server| server.disks(1));
    // Of one volume that two mount there is one.
    check(wants(cluster.clone().pod(with_disk("b", "n1", "one"))), &["grant wants on n1"]);
    let full = cluster.pod(with_disk("b", "n1", "two"));
    check(wants(full.clone()), &[&format!("wait wants #1 InsufficientCapacity: {FULL}")]);
    // Who brings none is not concerned.
    check(full.clone().server("plain", |server| server), &["grant plain on n1"]);
    // Another node limits nothing.
    let mut larger = full;
    larger.nodes.push(gpu_node("n2", 1));
    check(wants(larger), &["grant wants on n2"]);
}

#[test]
fn grants_take_the_volumes_they_will_attach() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .limit("n1", 2)
        .server("first", |server| server.disks(1))
        .server("second", |server| server.disks(1))
        .server("third", |server| server.disks(1));
    check(
        cluster,
        &["grant first on n1", "grant second on n1", &format!("wait third #1 InsufficientCapacity: {FULL}")],
    );
}

#[test]
fn a_volume_is_free_when_its_server_has_left() {
    let cluster = |ends: bool| {
        Cluster::new([gpu_node("n1", 8)])
            .limit("n1", 1)
            .server("has", |server| Server { ends: ends.then(|| time(7_200)), ..server.disks(1).granted(1, &["n1"]) })
            .server_pod("has", 0, 1, |pod| pod.node = Some("n1".into()))
            .server("wants", |server| server.disks(1))
    };
    check(cluster(false), &[&format!("wait wants #1 InsufficientCapacity: {FULL}")]);
    let outlook = cluster(true).outlook();
    let [wait] = outlook.waits() else { panic!("{:?}", outlook.waits()) };
    assert_eq!(wait.start, Some(time(7_200).as_second()));
    let has = outlook.world().get("uid-has").unwrap();
    let State::Running(running) = &has.state else { panic!("{has:?}") };
    assert_eq!(running.on[0].1.volumes().map(|(_, disks)| disks).sum::<i64>(), 1);
    let mut left = cluster(false);
    (left.pods, left.servers[0].want) = (vec![], Want::Rest);
    check(left, &["release has", "grant wants on n1"]);
}

#[test]
fn a_pod_that_is_replaced_has_its_volumes_already() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .limit("n1", 1)
        .server("has", |server| server.disks(1).granted(1, &["n1"]))
        .server_pod("has", 0, 1, |pod| (pod.node, pod.deleting) = (Some("n1".into()), Some(time(3_500))));
    check(cluster, &[]);
}

#[test]
fn more_volumes_than_any_node_attaches_never_fit() {
    let never = |most| Cluster::new([gpu_node("n1", 8)]).limit("n1", most).server("wants", |server| server.disks(2));
    let needs = "wait wants #1 Unsatisfiable: Needs 1 nvidia.com/gpu with 2 volumes of disks.example.org on one node";
    check(never(1), &[&format!("{needs}; no node has more than room for 1.")]);
    check(never(0), &[&format!("{needs}; no node can attach any.")]);
    check(never(2), &["grant wants on n1"]);
    let scattered = never(2).pod(with_disk("a", "n1", "one"));
    let short = "at most room for 1 is free on one node, 1 in all.";
    check(scattered, &[&format!("{}; {short}", needs.replace("Unsatisfiable", "InsufficientCapacity"))]);
}
