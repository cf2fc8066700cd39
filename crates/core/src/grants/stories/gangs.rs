//! Servers on several nodes.

use super::*;

#[test]
fn a_gang_gets_all_nodes_or_none() {
    let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
    let cluster = Cluster::new(nodes()).pod(foreign("p", "n2", 1)).server("s", |s| s.gpus(8).nodes(2));
    check(cluster, &["grant s on n1, n3"]);
    let cluster = Cluster::new(nodes())
        .server("has", |server| server.granted(1, &["n2"]))
        .server("s", |server| server.gpus(8).nodes(3));
    check(
        cluster,
        &["wait s #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 3 nodes; only 2 nodes have enough, and \
           23 are free in all."],
    );
    let cluster = Cluster::new(nodes()).server("s", |server| server.gpus(8).nodes(4));
    check(
        cluster,
        &["wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 4 nodes; only 3 such nodes could ever hold \
           that."],
    );
}

#[test]
fn two_gangs_never_hold_half_each() {
    let cluster = Cluster::new((1..=8).map(|number| gpu_node(&format!("n{number}"), 8)))
        .server("one", |server| server.gpus(8).nodes(5))
        .server("two", |server| server.gpus(8).nodes(5));
    let after = check(
        cluster,
        &[
            "grant one on n1, n2, n3, n4, n5",
            "wait two #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 5 nodes; only 3 nodes have enough, \
             and 24 are free in all.",
        ],
    );
    check(after, &[]);
}

#[test]
fn a_gang_agrees_on_the_topology() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let gang = |nodes| move |server: Server| server.gpus(8).nodes(nodes).topology("zone");
    let nodes = || [zone("n1", "a"), zone("n2", "b"), zone("n3", "b"), zone("n4", "b"), gpu_node("n5", 8)];
    check(Cluster::new(nodes()).server("s", gang(2)), &["grant s on n2, n3"]);
    check(Cluster::new(nodes()).server("s", gang(1)), &["grant s on n1"]);
    check(
        Cluster::new(nodes()).server("has", |server| server.granted(1, &["n3"])).server("s", gang(3)),
        &[
            "wait s #1 Fragmented: Needs 8 nvidia.com/gpu on each of 3 nodes with the same zone; only 2 such nodes have \
           all of that free at once.",
        ],
    );
    check(
        Cluster::new(nodes()).server("s", gang(4)),
        &["wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 4 nodes with the same zone; only 3 such nodes \
           could ever hold that."],
    );
    check(
        Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)]).server("s", gang(2)),
        &["wait s #1 Unsatisfiable: Needs 8 nvidia.com/gpu on each of 2 nodes with the same zone; no node that could \
           hold it has that label."],
    );
}

#[test]
fn the_tightest_zone_that_will_do_is_taken() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let nodes = [zone("n1", "a"), zone("n2", "a"), zone("n3", "a"), zone("n4", "b"), zone("n5", "b")];
    let cluster = Cluster::new(nodes).server("s", |server| server.gpus(8).nodes(2).topology("zone"));
    check(cluster, &["grant s on n4, n5"]);
}

#[test]
fn a_gang_keeps_only_zones_that_could_hold_it() {
    let zone = |name: &str, zone| labelled(gpu_node(name, 8), "zone", zone);
    let cluster = Cluster::new([zone("n1", "a"), zone("n2", "b"), zone("n3", "b")])
        .server("has", |server| server.granted(1, &["n2"]))
        .server("gang", |server| server.gpus(8).nodes(2).topology("zone"))
        .server("s", |server| server.gpus(8));
    check(
        cluster,
        &[
            "grant s on n1",
            "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes with the same zone; only 1 \
             node has enough, and 15 are free in all.",
        ],
    );
}
