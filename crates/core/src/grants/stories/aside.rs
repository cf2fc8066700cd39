//! Servers of which the API server stores no decision.

use super::super::Planner;
use super::super::fixtures::told;
use super::*;

fn aside(mut cluster: Cluster, name: &str) -> Cluster {
    cluster.aside.insert(format!("uid-{name}"));
    cluster
}

#[test]
fn nobody_waits_for_room_that_cannot_be_granted() {
    let both = || Cluster::new([gpu_node("n1", 1)]).server("first", |server| server).server("second", |server| server);
    check(
        both(),
        &[
            "grant first on n1",
            "wait second #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; none is free.",
        ],
    );
    // Nothing is said about it either: that could not be stored.
    check(aside(both(), "first"), &["grant second on n1"]);
}

#[test]
fn it_has_its_old_place_when_it_is_back() {
    let cluster = Cluster::new([gpu_node("n1", 1)]).server("first", |server| server);
    let mut planner = Planner::default();
    let mut cluster = aside(cluster, "first");
    assert!(cluster.plan_with(&mut planner).decisions.is_empty());
    cluster = cluster.server("second", |server| server.gpus(1).owner("bob"));
    cluster.aside.clear();
    let decided: Vec<String> = cluster.plan_with(&mut planner).decisions.iter().map(told).collect();
    assert_eq!(decided.first().map(String::as_str), Some("grant first on n1"));
}

#[test]
fn what_it_holds_stays_its_own() {
    let cluster = Cluster::new([gpu_node("n1", 1)])
        .server("runs", |server| server.granted(1, &["n1"]))
        .server("waits", |server| server);
    let lines = |cluster: &Cluster| cluster.plan().decisions.iter().map(told).collect::<Vec<_>>();
    assert_eq!(lines(&aside(cluster.clone(), "runs")), lines(&cluster));
}
