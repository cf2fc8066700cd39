//! Which of the nodes with room is taken.

use super::*;

#[test]
fn the_fullest_node_that_fits_is_taken() {
    let nodes = || ["n1", "n2", "n3"].map(|name| gpu_node(name, 8));
    let used = |one, two, three| {
        let pods = [("p1", "n1", one), ("p2", "n2", two), ("p3", "n3", three)];
        let mut cluster = Cluster::new(nodes()).server("s", |server| server.gpus(2));
        cluster.pods.extend(pods.map(|(name, node, gpus)| foreign(name, node, gpus)));
        cluster
    };
    check(used(0, 0, 0), &["grant s on n1"]);
    check(used(0, 3, 5), &["grant s on n3"]);
    check(used(0, 3, 7), &["grant s on n2"]);
    check(used(7, 8, 0), &["grant s on n3"]);
}

#[test]
fn a_small_whole_node_stays_whole() {
    let cluster = Cluster::new([gpu_node("n1", 2), gpu_node("n2", 8)]).pod(foreign("p", "n2", 1));
    check(cluster.server("s", |server| server), &["grant s on n2"]);
}

#[test]
fn of_equal_nodes_that_with_less_cpu_is_taken() {
    let mut busy = foreign("p", "n2", 0);
    busy.requests.cpu = 1_000;
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .pod(busy)
        .pod(foreign("p1", "n1", 1))
        .pod(foreign("p2", "n2", 1));
    check(cluster.server("s", |server| server), &["grant s on n2"]);
}

#[test]
fn servers_without_devices_leave_nodes_with_devices_alone() {
    // Though it is the fullest.
    let mut gpus = gpu_node("a-gpu", 8);
    gpus.allocatable.cpu = 4_000;
    let cluster = Cluster::new([gpus, cpu_node("b-cpu", 4, 16), cpu_node("c-cpu", 4, 16)])
        .server("has", |server| server.granted(1, &["a-gpu"]))
        .server("one", |server| server.cpus(2, 4))
        .server("two", |server| server.cpus(2, 4))
        .server("three", |server| server.cpus(4, 4))
        .server("four", |server| server.cpus(1, 4));
    check(cluster, &["grant one on b-cpu", "grant two on b-cpu", "grant three on c-cpu", "grant four on a-gpu"]);
}
