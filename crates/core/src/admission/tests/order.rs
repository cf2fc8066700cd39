//! Queue order.

use super::*;

#[test]
fn server_queued_first_is_admitted_first() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("late", |server| server.gpus(8).queued_at(20))
        .server("early", |server| server.gpus(8).queued_at(10));
    let after = check(
        cluster,
        &[
            "admit early on n1",
            "pending late #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; none free.",
        ],
    );
    check(after, &[]);
}

#[test]
fn name_breaks_ties_within_a_second() {
    let mut cluster = Cluster::new([gpu_node("n1", 1)]).server("b", |server| server).server("a", |server| server);
    cluster.servers[0].queued_at = time(7) + std::time::Duration::from_millis(1);
    cluster.servers[1].queued_at = time(7) + std::time::Duration::from_millis(999);
    check(
        cluster,
        &[
            "admit a on n1",
            "pending b #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 1 on one node; none free.",
        ],
    );
}

#[test]
fn small_server_does_not_overtake_large_one_with_unknown_end() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .pod(foreign("p", "n1", 0))
        .server("running", |server| server.gpus(4).admitted(1, &["n1"]))
        .server("large", |server| server.gpus(8))
        .server("small", |server| server.gpus(1));
    check(
        cluster,
        &[
            "pending large #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; at most 4 \
             free on a node, 4 in total.",
            "pending small #2 Reserved: Requires 1 nvidia.com/gpu on one node. Capacity is free but \
             reserved for servers ahead in the queue.",
        ],
    );
}

#[test]
fn servers_on_different_nodes_do_not_block_each_other() {
    let pool = |node, pool| labelled(node, "pool", pool);
    let cluster = Cluster::new([pool(gpu_node("n1", 8), "a"), pool(gpu_node("n2", 8), "b")])
        .server("running", |server| server.gpus(8).admitted(1, &["n1"]))
        .server("pending", |server| server.gpus(8).selects("pool", "a"))
        .server("else", |server| server.selects("pool", "b"))
        .server("any", |server| server.gpus(2));
    check(
        cluster,
        &[
            "admit else on n2",
            "admit any on n2",
            "pending pending #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; none free.",
        ],
    );
}

#[test]
fn unsatisfiable_server_does_not_block_others() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("huge", |server| server.gpus(9)).server("s", |s| s);
    check(
        cluster,
        &[
            "admit s on n1",
            "pending huge #1 Unsatisfiable: Requires 9 nvidia.com/gpu on one node. No node has more than 8 nvidia.com/gpu.",
        ],
    );
}

#[test]
fn server_waiting_for_foreign_pods_does_not_block_others() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .pod(foreign("p", "n1", 1))
        .server("whole", |server| server.gpus(8))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "admit s on n1",
            "pending whole #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; at most 6 \
             free on a node, 6 in total.",
        ],
    );
}

#[test]
fn gang_waiting_for_cordoned_node_holds_no_nodes() {
    let cluster = Cluster::new([Node { cordoned: true, ..gpu_node("n1", 8) }, gpu_node("n2", 8)])
        .server("gang", |server| server.gpus(8).nodes(2))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "admit s on n2",
            "pending gang #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on each of 2 nodes; at \
             most 7 free on a node, 7 in total.",
        ],
    );
}

#[test]
fn restarting_node_is_waited_for() {
    let restarting = Node { readiness: Readiness::Unready(time(3_590)), ..gpu_node("n1", 8) };
    let cluster = Cluster::new([restarting, gpu_node("n2", 8)])
        .server("gang", |server| server.gpus(8).nodes(2))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "pending gang #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on each of 2 nodes; only \
             1 node has enough, 8 free in total.",
            "pending s #2 Reserved: Requires 1 nvidia.com/gpu on one node. Capacity is free but reserved \
             for servers ahead in the queue.",
        ],
    );
}

#[test]
fn stopped_and_postponed_servers_are_not_queued() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("booked", |server| server.intent(QueueIntent::Postponed))
        .server("hibernated", |server| server.intent(QueueIntent::Stopped))
        .server("over", |server| Server { ended: true, ..server });
    check(cluster, &[]);
}

#[test]
fn leaving_the_queue_clears_admission() {
    let queued = |server: Server| {
        let queued_at = server.queued_at;
        server.admission(|admission| {
            *admission = Admission {
                run: 3,
                epoch: 1,
                queued_at: Some(to_api_precision(queued_at)),
                position: Some(4),
                reason: Some(Reason::InsufficientCapacity.into()),
                message: Some("Insufficient gpu.".into()),
                ..Admission::default()
            }
        })
    };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("booked", |server| queued(server).intent(QueueIntent::Postponed))
        .server("hibernated", |server| queued(server).intent(QueueIntent::Stopped));
    let after = check(cluster, &["release booked", "release hibernated"]);
    let counters = Admission { run: 3, epoch: 2, ..Admission::default() };
    assert_eq!(
        after.servers[0].admission,
        Some(Admission { queued_at: Some(to_api_precision(time(0))), ..counters.clone() })
    );
    assert_eq!(after.servers[1].admission, Some(counters));
    check(after, &[]);
}
