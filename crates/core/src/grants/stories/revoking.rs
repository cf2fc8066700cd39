//! Grants that cannot be kept.

use super::*;

fn granted(node: Node) -> Cluster {
    Cluster::new([node]).server("s", |server| server.gpus(4).granted(1, &["n1"]))
}

fn bound(pod: &mut Pod) {
    pod.node = Some("n1".into());
}

#[test]
fn a_node_that_is_gone_or_lost_loses_its_grants() {
    let gone = granted(gpu_node("n2", 8)).server_pod("s", 0, 1, bound);
    let after = check(gone, &["revoke s #1 NodeLost: Node n1 does not exist any more."]);
    let back = Admission {
        run: 1,
        epoch: 2,
        queued_at: Some(stored(time(0))),
        position: Some(1),
        reason: Some(Reason::NodeLost.into()),
        message: Some("Node n1 does not exist any more.".into()),
        ..Admission::default()
    };
    assert_eq!(after.servers[0].admission, Some(back));
    let after = check(after, &["grant s on n2"]);
    assert_eq!(after.servers[0].admission.as_ref().map(|admission| admission.run), Some(2));
    check(after, &[]);

    let silent = |since| granted(Node { readiness: Readiness::Unready(time(since)), ..gpu_node("n1", 8) });
    check(silent(3_000), &["revoke s #1 NodeLost: Node n1 does not answer any more and counts as lost."]);
    let waiting = silent(3_001);
    assert_eq!(waiting.plan().again, Again::After(std::time::Duration::from_secs(1)));
    check(waiting, &[]);
    check(granted(Node { readiness: Readiness::New, ..gpu_node("n1", 8) }), &[]);
}

#[test]
fn a_stop_in_order_is_not_hurried_by_a_lost_node() {
    let lost = Node { readiness: Readiness::Unready(time(0)), ..gpu_node("n1", 8) };
    let mut cluster = granted(lost).server_pod("s", 0, 1, bound);
    cluster.servers[0].want = Want::Rest;
    check(cluster, &[]);
}

#[test]
fn a_pod_that_was_ended_takes_its_grant_with_it() {
    let evicted = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
        let server = pod.server.as_mut().unwrap();
        server.reason = Some("UnexpectedAdmissionError".into());
        server.message = Some("no healthy devices.".into());
    };
    let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, evicted);
    let plan = cluster.plan();
    assert_eq!(plan.refused.len(), 1);
    assert_eq!(plan.again, Again::After(cluster.policy.retry_after));
    let said = "UnexpectedAdmissionError: no healthy devices";
    let after = check(cluster, &[&format!("revoke s #1 Unschedulable: Node n1 ended the pod: {said}.")]);
    // Its place and the reason stay, so nothing is written; whoever asks is told what it waits for.
    let after = check(after, &[]);
    let refused = format!("node n1 did not take it ({said}) and is tried again when it changes.");
    assert!(after.outlook().standings()[0].message.ends_with(&refused));

    // Others are not refused.
    let other = check(after.clone().server("other", |server| server.gpus(8)), &["grant other on n1"]);
    drop(other);
    // It goes where it is not refused, comes back when the node is another one, and some time later anyway.
    let mut elsewhere = after.clone();
    elsewhere.nodes.push(gpu_node("n2", 8));
    check(elsewhere, &["grant s on n2"]);
    let mut changed = after.clone();
    changed.nodes[0].allocatable.cpu += 1;
    let plan = changed.plan();
    assert_eq!((plan.decisions[0].what, plan.unfit.of_server("uid-s").count()), (What::Grant, 0));
    let mut later = after;
    later.now = time(3_900);
    check(later, &["grant s on n1"]);
}

#[test]
fn a_node_that_changed_and_changed_back_has_changed() {
    let over = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
    };
    let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, over);
    let mut cluster = check(cluster, &["revoke s #1 Unschedulable: Node n1 ended the pod: it did not say why."]);
    cluster.nodes[0].readiness = Readiness::Unready(cluster.now);
    let plan = cluster.plan();
    let mut cluster = cluster.after(&plan);
    cluster.nodes[0].readiness = Readiness::Ready;
    check(cluster, &["grant s on n1"]);
}

#[test]
fn a_pod_on_its_way_out_was_not_refused() {
    let ending = |pod: &mut Pod| {
        bound(pod);
        (pod.phase, pod.deleting) = (PodPhase::Failed, Some(time(3_599)));
    };
    check(granted(gpu_node("n1", 8)).server_pod("s", 0, 1, ending), &[]);
}

#[test]
fn a_pod_of_another_run_says_nothing() {
    let over = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
    };
    check(granted(gpu_node("n1", 8)).server_pod("s", 0, 0, over), &[]);
}

#[test]
fn a_pod_without_a_place_goes_back_to_the_queue() {
    let unplaced = |since: i64| {
        move |pod: &mut Pod| {
            let server = pod.server.as_mut().unwrap();
            (server.unschedulable, server.message) = (Some(time(since)), Some("0/1 nodes are available.".into()));
        }
    };
    let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, unplaced(3_571));
    assert_eq!(cluster.plan().again, Again::After(std::time::Duration::from_secs(1)));
    check(cluster, &[]);
    let cluster = granted(gpu_node("n1", 8)).server_pod("s", 0, 1, unplaced(3_570));
    assert_eq!(cluster.plan().refused.len(), 1);
    check(cluster, &["revoke s #1 Unschedulable: Node n1 did not take the pod: 0/1 nodes are available."]);

    // It found a place after all.
    let placed = |pod: &mut Pod| {
        unplaced(3_000)(pod);
        bound(pod);
    };
    check(granted(gpu_node("n1", 8)).server_pod("s", 0, 1, placed), &[]);

    // A closed node is not held against it once it opens.
    let closed = Node { cordoned: true, ..gpu_node("n1", 8) };
    assert_eq!(granted(closed).server_pod("s", 0, 1, unplaced(3_000)).plan().refused, []);
}

#[test]
fn the_later_of_two_grants_of_the_same_room_is_taken_back() {
    let grant = |epoch, second| {
        move |server: Server| {
            server.gpus(8).granted(1, &["n1"]).admission(|admission| {
                (admission.epoch, admission.granted_at) = (epoch, Some(stored(time(second))));
            })
        }
    };
    let double =
        |first, second| Cluster::new([gpu_node("n1", 8)]).server("a", grant(first, 60)).server("b", grant(second, 50));
    let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
    check(double(1, 2), &[&format!("revoke b #1 {took}")]);
    check(double(2, 1), &[&format!("revoke a #1 {took}")]);
    check(double(1, 1), &[&format!("revoke a #1 {took}")]);
    let after = check(double(1, 2), &[&format!("revoke b #1 {took}")]);
    check(after, &["wait b #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free."]);
}

#[test]
fn a_pod_that_is_bound_has_won() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("first", |server| server.gpus(8).granted(1, &["n1"]))
        .server("second", |server| server.gpus(8).granted(1, &["n1"]))
        .server_pod("second", 0, 1, bound);
    let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
    check(cluster, &[&format!("revoke first #1 {took}")]);
}

#[test]
fn foreign_pods_take_back_only_what_has_not_begun() {
    let cluster = granted(gpu_node("n1", 8)).pod(foreign("p", "n1", 6));
    let took = "Unschedulable: Others took the room on node n1 before the server could start there.";
    assert_eq!(cluster.plan().refused, []);
    check(cluster.clone(), &[&format!("revoke s #1 {took}")]);
    check(cluster.server_pod("s", 0, 1, bound), &[]);
}

#[test]
fn a_grant_of_another_size_is_taken_back() {
    let nodes = || [gpu_node("n1", 8), gpu_node("n2", 8)];
    let small = Cluster::new(nodes()).server("s", |server| server.gpus(1).nodes(2).granted(1, &["n1"]));
    let after = check(small, &["revoke s #1 Unschedulable: Its grant was not of its size."]);
    check(after, &["grant s on n1, n2"]);
    let large = Cluster::new(nodes()).server("s", |server| server.gpus(1).granted(1, &["n1", "n2"]));
    check(large, &["revoke s #1 Unschedulable: Its grant was not of its size."]);
}

#[test]
fn a_gang_is_taken_back_as_a_whole() {
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .server("s", |server| server.gpus(8).nodes(2).granted(1, &["n1", "n2"]))
        .server_pod("s", 0, 1, bound);
    check(cluster.clone(), &[]);
    let after = check(
        cluster.pod(foreign("p", "n2", 1)),
        &["revoke s #1 Unschedulable: Others took the room on node n2 before the server could start there."],
    );
    assert_eq!(after.servers[0].admission.as_ref().unwrap().nodes, Vec::<String>::new());
}

#[test]
fn who_was_taken_back_keeps_the_place() {
    // Nobody behind it gets what it will be given in the next round.
    let cluster = Cluster::new([gpu_node("n2", 8)])
        .server("s", |server| server.gpus(8).granted(1, &["n1"]))
        .server("behind", |server| server.gpus(8));
    let after = check(
        cluster,
        &[
            "revoke s #1 NodeLost: Node n1 does not exist any more.",
            "wait behind #2 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; that is free, but servers ahead \
             of it in the queue come first.",
        ],
    );
    let after = check(
        after,
        &["grant s on n2", "wait behind #1 InsufficientCapacity: Needs 8 nvidia.com/gpu on one node; none is free."],
    );
    check(after, &[]);
}

#[test]
fn who_does_not_want_to_run_now_is_taken_back_without_a_place() {
    let cluster = Cluster::new([]).server("s", |server| server.granted(1, &["n1"]).want(Want::Later));
    let after = check(cluster, &["revoke s NodeLost: Node n1 does not exist any more."]);
    let after = check(after, &["release s"]);
    check(after, &[]);
}

#[test]
fn the_server_of_a_pod_is_known_without_its_owner_reference() {
    let cluster = granted(gpu_node("n1", 4)).server("next", |server| server.gpus(4));
    let mut pod = server_pod(&cluster.servers[0], 0, 1);
    bound(&mut pod);
    pod.server.as_mut().unwrap().owner = None;
    check(cluster.pod(pod), &["wait next #1 InsufficientCapacity: Needs 4 nvidia.com/gpu on one node; none is free."]);
}
