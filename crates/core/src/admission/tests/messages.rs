//! Messages of pending servers.

use super::*;

#[test]
fn insufficient_devices_are_reported_with_amounts() {
    let used = |one, two| {
        Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
            .server("one", |server| server.gpus(one).admitted(1, &["n1"]))
            .server("two", |server| server.gpus(two).admitted(1, &["n2"]))
            .server("s", |server| server.gpus(4))
    };
    let insufficient = "Insufficient nvidia.com/gpu: requires 4 on one node;";
    for (one, two, expect) in [
        (5, 5, "Fragmented: {} at most 3 free on a node, 6 in total."),
        (7, 6, "InsufficientCapacity: {} at most 2 free on a node, 3 in total."),
        (7, 7, "InsufficientCapacity: {} at most 1 free on a node, 2 in total."),
        (8, 8, "InsufficientCapacity: {} none free."),
    ] {
        check(used(one, two), &[&format!("pending s #1 {}", expect.replace("{}", insufficient))]);
    }
}

#[test]
fn server_without_devices_reports_cpu_and_memory() {
    let cluster = |nodes: &[Node]| Cluster::new(nodes.to_vec()).server("s", |server| server.cpus(4, 16));
    let requires = "Requires 4 CPU and 16Gi of memory on one node.";
    let mut half = foreign("p", "n1", 0);
    half.requests.cpu = 500;
    for (cluster, expect) in [
        (cluster(&[cpu_node("n1", 2, 64)]), "Unsatisfiable: {} No node has more than 2 CPU."),
        (cluster(&[cpu_node("n1", 8, 8)]), "Unsatisfiable: {} No node has more than 8Gi memory."),
        (
            cluster(&[cpu_node("n1", 8, 8), cpu_node("n2", 2, 64)]),
            "Unsatisfiable: {} No node has all requested resources.",
        ),
        (
            cluster(&[cpu_node("n1", 4, 64)]).pod(half.clone()),
            "InsufficientCapacity: Insufficient CPU: requires 4 on one node; at most 3.5 free on a node, 3.5 in total.",
        ),
        (
            cluster(&[cpu_node("n1", 4, 64), cpu_node("n2", 2, 64)]).pod(half),
            "Fragmented: Insufficient CPU: requires 4 on one node; at most 3.5 free on a node, 5.5 in total.",
        ),
    ] {
        check(cluster, &[&format!("pending s #1 {}", expect.replace("{}", requires))]);
    }
}

#[test]
fn insufficient_cpu_of_device_server_is_reported() {
    let mut node = gpu_node("n1", 8);
    node.allocatable.cpu = 8_000;
    let hungry = |mut server: Server| {
        server.request.per_node.cpu = 6_000;
        server
    };
    let cluster =
        Cluster::new([node.clone()]).server("has", |server| hungry(server).admitted(1, &["n1"])).server("s", hungry);
    check(
        cluster,
        &[
            "pending s #1 InsufficientCapacity: Insufficient CPU: requires 6 on one node; at most 2 free on a node, 2 in \
           total.",
        ],
    );
    node.allocatable.pods = 1;
    let cluster = Cluster::new([node]).server("has", |s| s.admitted(1, &["n1"])).server("s", |server| server);
    check(cluster, &["pending s #1 InsufficientCapacity: Insufficient pods: requires 1 on one node; none free."]);
}

#[test]
fn resources_free_on_different_nodes_are_fragmented() {
    let mut busy = foreign("p", "n1", 0);
    busy.requests.cpu = 255_500;
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .pod(busy)
        .server("has", |server| server.gpus(8).admitted(1, &["n2"]))
        .server("s", |server| server);
    check(
        cluster,
        &["pending s #1 Fragmented: Requires 1 nvidia.com/gpu on one node. No single node has all requested \
           resources free."],
    );
}

#[test]
fn unmatched_constraint_is_reported() {
    let requires = "pending s #1 Unsatisfiable: Requires 1 nvidia.com/gpu on one node.";
    let check = |cluster: Cluster, cause: &str| {
        check(cluster, &[&format!("{requires} {cause}")]);
    };
    check(Cluster::new([]).server("s", |server| server), "The cluster has no nodes.");
    check(
        Cluster::new([gpu_node("n1", 8)]).server("s", |server| server.selects("pool", "a").selects("disk", "fast")),
        "No node has the requested labels (disk=fast, pool=a).",
    );
    let tainted = Node { taints: vec![taint("a:NoSchedule")], ..gpu_node("n1", 8) };
    check(
        Cluster::new([tainted]).server("s", |server| server),
        "All matching nodes have a taint that the flavor does not tolerate.",
    );
    check(Cluster::new([cpu_node("n1", 8, 8)]).server("s", |server| server), "No node provides nvidia.com/gpu.");
    check(
        Cluster::new([labelled(node("n1"), "pool", "a")]).server("s", |server| server.selects("pool", "a")),
        "No node with the requested labels provides nvidia.com/gpu.",
    );
}
