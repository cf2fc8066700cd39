//! Which node is used if several fit.

use super::*;

#[test]
fn fullest_node_that_fits_is_used() {
    let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
    let used = |one, two, three| {
        let pods = [("p1", "n1", one), ("p2", "n2", two), ("p3", "n3", three)];
        let mut cluster = Cluster::new(nodes()).server("s", |server| server.gpus(2));
        cluster.pods.extend(pods.map(|(name, node, gpus)| foreign(name, node, gpus)));
        cluster
    };
    check(used(0, 0, 0), &["admit s on n1"]);
    check(used(0, 3, 5), &["admit s on n3"]);
    check(used(0, 3, 7), &["admit s on n2"]);
    check(used(7, 8, 0), &["admit s on n3"]);
}

#[test]
fn empty_node_is_avoided() {
    let cluster = Cluster::new([gpu_node("n1", 2), gpu_node("n2", 8)]).pod(foreign("p", "n2", 1));
    check(cluster.server("s", |server| server), &["admit s on n2"]);
}

#[test]
fn node_with_less_free_cpu_breaks_ties() {
    let mut busy = foreign("p", "n2", 0);
    busy.requests.cpu = 1_000;
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .pod(busy)
        .pod(foreign("p1", "n1", 1))
        .pod(foreign("p2", "n2", 1));
    check(cluster.server("s", |server| server), &["admit s on n2"]);
}

#[test]
fn server_without_devices_avoids_device_nodes() {
    // The device node is the fullest.
    let mut gpus = gpu_node("a-gpu", 8);
    gpus.allocatable.cpu = 4_000;
    let cluster = Cluster::new([gpus, cpu_node("b-cpu", 4, 16), cpu_node("c-cpu", 4, 16)])
        .server("has", |server| server.admitted(1, &["a-gpu"]))
        .server("one", |server| server.cpus(2, 4))
        .server("two", |server| server.cpus(2, 4))
        .server("three", |server| server.cpus(4, 4))
        .server("four", |server| server.cpus(1, 4));
    check(cluster, &["admit one on b-cpu", "admit two on b-cpu", "admit three on c-cpu", "admit four on a-gpu"]);
}
