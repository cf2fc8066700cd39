//! Servers whose admission the API server rejects.

use super::super::Planner;
use super::super::fixtures::line;
use super::*;

fn inadmissible(mut cluster: Cluster, name: &str) -> Cluster {
    cluster.inadmissible.insert(format!("uid-{name}"));
    cluster
}

#[test]
fn inadmissible_server_does_not_block_others() {
    let both = || Cluster::new([gpu_node("n1", 1)]).server("first", |server| server).server("second", |server| server);
    check(
        both(),
        &[
            "admit first on n1",
            "pending second #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 1 on one node; none free.",
        ],
    );
    // There is no decision about it either, because it could not be written.
    check(inadmissible(both(), "first"), &["admit second on n1"]);
}

#[test]
fn server_keeps_position_after_it_was_inadmissible() {
    let cluster = Cluster::new([gpu_node("n1", 1)]).server("first", |server| server);
    let mut planner = Planner::default();
    let mut cluster = inadmissible(cluster, "first");
    assert!(cluster.plan_with(&mut planner).decisions.is_empty());
    cluster = cluster.server("second", |server| server.gpus(1).owner("bob"));
    cluster.inadmissible.clear();
    let lines: Vec<String> = cluster.plan_with(&mut planner).decisions.iter().map(line).collect();
    assert_eq!(lines.first().map(String::as_str), Some("admit first on n1"));
}

#[test]
fn inadmissible_server_keeps_its_nodes() {
    let cluster = Cluster::new([gpu_node("n1", 1)])
        .server("running", |server| server.admitted(1, &["n1"]))
        .server("pending", |server| server);
    let lines = |cluster: &Cluster| cluster.plan().decisions.iter().map(line).collect::<Vec<_>>();
    assert_eq!(lines(&inadmissible(cluster.clone(), "running")), lines(&cluster));
}
