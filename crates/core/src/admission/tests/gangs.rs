//! Servers on several nodes.

use super::*;

#[test]
fn gang_is_admitted_on_all_nodes_or_none() {
    let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
    let cluster = Cluster::new(nodes()).pod(foreign("p", "n2", 1)).server("s", |s| s.gpus(8).nodes(2));
    check(cluster, &["admit s on n1, n3"]);
    let cluster = Cluster::new(nodes())
        .server("has", |server| server.admitted(1, &["n2"]))
        .server("s", |server| server.gpus(8).nodes(3));
    check(
        cluster,
        &["pending s #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on each of 3 nodes; only 2 \
           nodes have enough, 23 free in total."],
    );
    let cluster = Cluster::new(nodes()).server("s", |server| server.gpus(8).nodes(4));
    check(
        cluster,
        &["pending s #1 Unsatisfiable: Requires 8 nvidia.com/gpu on each of 4 nodes. Only 3 matching nodes are large \
           enough."],
    );
}

#[test]
fn second_gang_waits_while_first_holds_its_nodes() {
    let cluster = Cluster::new((1..=8).map(|number| gpu_node(&format!("n{number}"), 8)))
        .server("one", |server| server.gpus(8).nodes(5))
        .server("two", |server| server.gpus(8).nodes(5));
    let after = check(
        cluster,
        &[
            "admit one on n1, n2, n3, n4, n5",
            "pending two #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on each of 5 nodes; only 3 \
             nodes have enough, 24 free in total.",
        ],
    );
    check(after, &[]);
}

#[test]
fn gang_nodes_share_topology_label() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let gang = |nodes| move |server: Server| server.gpus(8).nodes(nodes).topology("zone");
    let nodes = || [zone("n1", "a"), zone("n2", "b"), zone("n3", "b"), zone("n4", "b"), gpu_node("n5", 8)];
    check(Cluster::new(nodes()).server("s", gang(2)), &["admit s on n2, n3"]);
    check(Cluster::new(nodes()).server("s", gang(1)), &["admit s on n1"]);
    check(
        Cluster::new(nodes()).server("has", |server| server.admitted(1, &["n3"])).server("s", gang(3)),
        &["pending s #1 Fragmented: Requires 8 nvidia.com/gpu on each of 3 nodes with the same zone. Only 2 \
             matching nodes have all requested resources free."],
    );
    check(
        Cluster::new(nodes()).server("s", gang(4)),
        &["pending s #1 Unsatisfiable: Requires 8 nvidia.com/gpu on each of 4 nodes with the same zone. Only 3 \
           matching nodes are large enough."],
    );
    check(
        Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)]).server("s", gang(2)),
        &["pending s #1 Unsatisfiable: Requires 8 nvidia.com/gpu on each of 2 nodes with the same zone. No node that \
           is large enough has the label zone."],
    );
}

#[test]
fn gang_uses_smallest_sufficient_zone() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let nodes = [zone("n1", "a"), zone("n2", "a"), zone("n3", "a"), zone("n4", "b"), zone("n5", "b")];
    let cluster = Cluster::new(nodes).server("s", |server| server.gpus(8).nodes(2).topology("zone"));
    check(cluster, &["admit s on n4, n5"]);
}

#[test]
fn gang_holds_only_zones_that_are_large_enough() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let cluster = Cluster::new([zone("n1", "a"), zone("n2", "b"), zone("n3", "b")])
        .server("has", |server| server.admitted(1, &["n2"]))
        .server("gang", |server| server.gpus(8).nodes(2).topology("zone"))
        .server("s", |server| server.gpus(8));
    check(
        cluster,
        &[
            "admit s on n1",
            "pending gang #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on each of 2 nodes with \
             the same zone; only 1 node has enough, 15 free in total.",
        ],
    );
}
