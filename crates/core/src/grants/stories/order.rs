//! Whose turn it is.

use super::*;

#[test]
fn the_first_who_asked_is_the_first_who_gets() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("late", |server| server.gpus(8).since(20))
        .server("early", |server| server.gpus(8).since(10));
    let after = check(
        cluster,
        &["grant early on n1", "wait late #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free."],
    );
    check(after, &[]);
}

#[test]
fn of_two_at_the_same_second_the_name_decides() {
    let mut cluster = Cluster::new([gpu_node("n1", 1)]).server("b", |server| server).server("a", |server| server);
    cluster.servers[0].since = time(7) + std::time::Duration::from_millis(1);
    cluster.servers[1].since = time(7) + std::time::Duration::from_millis(999);
    check(
        cluster,
        &["grant a on n1", "wait b #1 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; none is free."],
    );
}

#[test]
fn a_small_one_does_not_pass_a_large_one_on_the_same_nodes() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .pod(foreign("p", "n1", 0))
        .server("running", |server| server.gpus(4).granted(1, &["n1"]))
        .server("large", |server| server.gpus(8))
        .server("small", |server| server.gpus(1));
    check(
        cluster,
        &[
            "wait large #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; at most 4 are free on one node, \
             4 in all.",
            "wait small #2 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; that is free, but servers ahead \
             of it in the queue come first.",
        ],
    );
}

#[test]
fn servers_on_other_nodes_do_not_wait_for_each_other() {
    let pool = |node, pool| labelled(node, "pool", pool);
    let cluster = Cluster::new([pool(gpu_node("n1", 8), "a"), pool(gpu_node("n2", 8), "b")])
        .server("running", |server| server.gpus(8).granted(1, &["n1"]))
        .server("waits", |server| server.gpus(8).selects("pool", "a"))
        .server("else", |server| server.selects("pool", "b"))
        .server("any", |server| server.gpus(2));
    check(
        cluster,
        &[
            "grant else on n2",
            "grant any on n2",
            "wait waits #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free.",
        ],
    );
}

#[test]
fn who_can_never_be_served_holds_nobody_up() {
    let cluster = Cluster::new([gpu_node("n1", 8)]).server("huge", |server| server.gpus(9)).server("s", |s| s);
    check(
        cluster,
        &["grant s on n1", "wait huge #1 Unsatisfiable: Needs 9 nvidia.com/gpu on one node; no node has more than 8."],
    );
}

#[test]
fn who_waits_for_other_peoples_pods_holds_nobody_up() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .pod(foreign("p", "n1", 1))
        .server("whole", |server| server.gpus(8))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "grant s on n1",
            "wait whole #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; at most 6 are free on one node, \
             6 in all.",
        ],
    );
}

#[test]
fn who_waits_for_a_cordoned_node_does_not_keep_the_others_empty() {
    let cluster = Cluster::new([Node { cordoned: true, ..gpu_node("n1", 8) }, gpu_node("n2", 8)])
        .server("gang", |server| server.gpus(8).nodes(2))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "grant s on n2",
            "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes; at most 7 are free on one \
             node, 7 in all.",
        ],
    );
}

#[test]
fn a_node_that_restarts_is_waited_for() {
    let restarting = Node { readiness: Readiness::Unready(time(3_590)), ..gpu_node("n1", 8) };
    let cluster = Cluster::new([restarting, gpu_node("n2", 8)])
        .server("gang", |server| server.gpus(8).nodes(2))
        .server("s", |server| server);
    check(
        cluster,
        &[
            "wait gang #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on each of 2 nodes; only 1 node has enough, \
             and 8 are free in all.",
            "wait s #2 InsufficientCapacity: Needs 1 nvidia.com/gpu on one node; that is free, but servers ahead of it \
             in the queue come first.",
        ],
    );
}

#[test]
fn who_does_not_compete_is_not_in_the_queue() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("booked", |server| server.want(Want::Later))
        .server("sleeping", |server| server.want(Want::Rest))
        .server("over", |server| Server { ended: true, ..server });
    check(cluster, &[]);
}

#[test]
fn leaving_the_queue_is_noted() {
    let queued = |server: Server| {
        let since = server.since;
        server.admission(|admission| {
            *admission = Admission {
                run: 3,
                epoch: 1,
                queued_at: Some(stored(since)),
                position: Some(4),
                reason: Some(Reason::InsufficientCapacity.into()),
                message: Some("Too bad.".into()),
                ..Admission::default()
            }
        })
    };
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("booked", |server| queued(server).want(Want::Later))
        .server("sleeping", |server| queued(server).want(Want::Rest));
    let after = check(cluster, &["release booked", "release sleeping"]);
    let kept = Admission { run: 3, epoch: 2, ..Admission::default() };
    assert_eq!(after.servers[0].admission, Some(Admission { queued_at: Some(stored(time(0))), ..kept.clone() }));
    assert_eq!(after.servers[1].admission, Some(kept));
    check(after, &[]);
}
