//! What people are told while they wait.

use super::*;

#[test]
fn what_is_missing_is_named_with_its_numbers() {
    let used = |one, two| {
        Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
            .server("one", |server| server.gpus(one).granted(1, &["n1"]))
            .server("two", |server| server.gpus(two).granted(1, &["n2"]))
            .server("s", |server| server.gpus(4))
    };
    let needs = "Needs 4 nvidia.com/gpu on one node;";
    for (one, two, expect) in [
        (5, 5, "Fragmented: {} at most 3 are free on one node, 6 in all."),
        (7, 6, "InsufficientCapacity: {} at most 2 are free on one node, 3 in all."),
        (7, 7, "InsufficientCapacity: {} at most 1 is free on one node, 2 in all."),
        (8, 8, "InsufficientCapacity: {} none is free."),
    ] {
        check(used(one, two), &[&format!("wait s #1 {}", expect.replace("{}", needs))]);
    }
}

#[test]
fn flavors_without_devices_speak_of_cpu_and_memory() {
    let cluster = |nodes: &[Node]| Cluster::new(nodes.to_vec()).server("s", |server| server.cpus(4, 16));
    let needs = "Needs 4 CPU and 16Gi of memory on one node;";
    let mut half = foreign("p", "n1", 0);
    half.requests.cpu = 500;
    for (cluster, expect) in [
        (cluster(&[cpu_node("n1", 2, 64)]), "Unsatisfiable: {} no node has more than 2 CPU."),
        (cluster(&[cpu_node("n1", 8, 8)]), "Unsatisfiable: {} no node has more than 8Gi of memory."),
        (cluster(&[cpu_node("n1", 8, 8), cpu_node("n2", 2, 64)]), "Unsatisfiable: {} no node has all of that."),
        (
            cluster(&[cpu_node("n1", 4, 64)]).pod(half.clone()),
            "InsufficientCapacity: {} at most 3.5 CPU are free on one node, 3.5 in all.",
        ),
        (
            cluster(&[cpu_node("n1", 4, 64), cpu_node("n2", 2, 64)]).pod(half),
            "Fragmented: {} at most 3.5 CPU are free on one node, 5.5 in all.",
        ),
    ] {
        check(cluster, &[&format!("wait s #1 {}", expect.replace("{}", needs))]);
    }
}

#[test]
fn what_is_short_besides_the_device_is_named_too() {
    let mut node = gpu_node("n1", 8);
    node.allocatable.cpu = 8_000;
    let hungry = |mut server: Server| {
        server.request.each.cpu = 6_000;
        server
    };
    let cluster =
        Cluster::new([node.clone()]).server("has", |server| hungry(server).granted(1, &["n1"])).server("s", hungry);
    check(
        cluster,
        &["wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu with 6 CPU on one node; at most 2 CPU are free on \
           one node, 2 in all."],
    );
    node.allocatable.pods = 1;
    let cluster = Cluster::new([node]).server("has", |s| s.granted(1, &["n1"])).server("s", |server| server);
    check(
        cluster,
        &["wait s #1 InsufficientCapacity: Needs 1 nvidia.com/gpu with room for a pod on one node; no node takes \
           one more pod."],
    );
}

#[test]
fn enough_of_each_but_not_together_is_fragmentation() {
    let mut busy = foreign("p", "n1", 0);
    busy.requests.cpu = 255_500;
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .pod(busy)
        .server("has", |server| server.gpus(8).granted(1, &["n2"]))
        .server("s", |server| server);
    check(
        cluster,
        &["wait s #1 Fragmented: Needs 1 nvidia.com/gpu on one node; no node has all of that free at once."],
    );
}

#[test]
fn what_no_node_has_right_is_named() {
    let needs = "wait s #1 Unsatisfiable: Needs 1 nvidia.com/gpu on one node;";
    let said = |cluster: Cluster, expect: &str| {
        check(cluster, &[&format!("{needs} {expect}.")]);
    };
    said(Cluster::new([]).server("s", |server| server), "the cluster has no node");
    said(
        Cluster::new([gpu_node("n1", 8)]).server("s", |server| server.selects("pool", "a").selects("disk", "fast")),
        "no node has the labels it asks for (disk=fast, pool=a)",
    );
    let tainted = Node { taints: vec![taint("a:NoSchedule")], ..gpu_node("n1", 8) };
    said(
        Cluster::new([tainted]).server("s", |server| server),
        "every node it could use has a taint that its flavor does not tolerate",
    );
    said(Cluster::new([cpu_node("n1", 8, 8)]).server("s", |server| server), "no node has any");
    said(
        Cluster::new([labelled(node("n1"), "pool", "a")]).server("s", |server| server.selects("pool", "a")),
        "no node with the labels it asks for has any",
    );
}
