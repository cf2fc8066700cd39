//! Revocation of admissions.

use super::*;

fn admitted(node: Node) -> Cluster {
    Cluster::new([node]).server("s", |server| server.gpus(4).admitted(1, &["n1"]))
}

fn bound(pod: &mut Pod) {
    pod.node = Some("n1".into());
}

#[test]
fn deleted_or_lost_node_revokes_admissions() {
    let gone = admitted(gpu_node("n2", 8)).server_pod("s", 0, 1, bound);
    let after = check(gone, &["revoke s #1 NodeLost: Node n1 was deleted."]);
    let back = Admission {
        run: 1,
        epoch: 2,
        queued_at: Some(to_api_precision(time(0))),
        position: Some(1),
        reason: Some(Reason::NodeLost.into()),
        message: Some("Node n1 was deleted.".into()),
        ..Admission::default()
    };
    assert_eq!(after.servers[0].admission, Some(back));
    let after = check(after, &["admit s on n2"]);
    assert_eq!(after.servers[0].admission.as_ref().map(|admission| admission.run), Some(2));
    check(after, &[]);

    let unready = |since| admitted(Node { readiness: Readiness::Unready(time(since)), ..gpu_node("n1", 8) });
    check(unready(3_000), &["revoke s #1 NodeLost: Node n1 is unreachable and considered lost."]);
    let waiting = unready(3_001);
    assert_eq!(waiting.plan().requeue, Requeue::After(std::time::Duration::from_secs(1)));
    check(waiting, &[]);
    check(admitted(Node { readiness: Readiness::New, ..gpu_node("n1", 8) }), &[]);
}

#[test]
fn stopping_server_on_lost_node_is_not_revoked() {
    let lost = Node { readiness: Readiness::Unready(time(0)), ..gpu_node("n1", 8) };
    let mut cluster = admitted(lost).server_pod("s", 0, 1, bound);
    cluster.servers[0].intent = QueueIntent::Stopped;
    check(cluster, &[]);
}

#[test]
fn terminated_pod_revokes_admission_and_rejects_node() {
    let evicted = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
        let server = pod.server.as_mut().unwrap();
        server.reason = Some("UnexpectedAdmissionError".into());
        server.message = Some("no healthy devices.".into());
    };
    let cluster = admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, evicted);
    let plan = cluster.plan();
    assert_eq!(plan.new_rejections.len(), 1);
    assert_eq!(plan.requeue, Requeue::After(REJECTION_TTL));
    let message = "UnexpectedAdmissionError: no healthy devices";
    let after = check(cluster, &[&format!("revoke s #1 Unschedulable: Node n1 terminated the pod: {message}.")]);
    // Position and reason are unchanged, so nothing is written; the queue API returns the new message.
    let after = check(after, &[]);
    let rejected = format!("Node n1 rejected the pod: {message}. The node is retried when it changes, or after 5m.");
    assert!(after.queue_view().positions()[0].message.ends_with(&rejected));

    // Other servers are not affected.
    let other = check(after.clone().server("other", |server| server.gpus(8)), &["admit other on n1"]);
    drop(other);
    // It is admitted on other nodes, on the same node after a change, and on the unchanged node after the TTL.
    let mut elsewhere = after.clone();
    elsewhere.nodes.push(gpu_node("n2", 8));
    check(elsewhere, &["admit s on n2"]);
    let mut changed = after.clone();
    changed.nodes[0].allocatable.cpu += 1;
    let plan = changed.plan();
    assert_eq!((plan.decisions[0].action, plan.node_rejections.for_server("uid-s").count()), (Action::Admit, 0));
    let mut later = after;
    later.now = time(3_900);
    check(later, &["admit s on n1"]);
}

#[test]
fn rejection_ends_when_node_changes_back() {
    let over = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
    };
    let cluster = admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, over);
    let mut cluster = check(cluster, &["revoke s #1 Unschedulable: Node n1 terminated the pod: no reason given."]);
    cluster.nodes[0].readiness = Readiness::Unready(cluster.now);
    let plan = cluster.plan();
    let mut cluster = cluster.after(&plan);
    cluster.nodes[0].readiness = Readiness::Ready;
    check(cluster, &["admit s on n1"]);
}

#[test]
fn terminating_pod_is_not_a_rejection() {
    let ending = |pod: &mut Pod| {
        bound(pod);
        (pod.phase, pod.deletion_timestamp) = (PodPhase::Failed, Some(time(3_599)));
    };
    check(admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, ending), &[]);
}

#[test]
fn pod_of_earlier_run_is_not_a_rejection() {
    let over = |pod: &mut Pod| {
        bound(pod);
        pod.phase = PodPhase::Failed;
    };
    check(admitted(gpu_node("n1", 8)).server_pod("s", 0, 0, over), &[]);
}

#[test]
fn unschedulable_pod_revokes_admission_after_timeout() {
    let unschedulable = |since: i64| {
        move |pod: &mut Pod| {
            let server = pod.server.as_mut().unwrap();
            (server.unschedulable_since, server.message) = (Some(time(since)), Some("0/1 nodes are available.".into()));
        }
    };
    let cluster = admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, unschedulable(3_571));
    assert_eq!(cluster.plan().requeue, Requeue::After(std::time::Duration::from_secs(1)));
    check(cluster, &[]);
    let cluster = admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, unschedulable(3_570));
    assert_eq!(cluster.plan().new_rejections.len(), 1);
    check(cluster, &["revoke s #1 Unschedulable: Node n1 rejected the pod: 0/1 nodes are available."]);

    // The pod was bound later.
    let bound_later = |pod: &mut Pod| {
        unschedulable(3_000)(pod);
        bound(pod);
    };
    check(admitted(gpu_node("n1", 8)).server_pod("s", 0, 1, bound_later), &[]);

    // A cordoned node is not recorded as a rejection.
    let cordoned = Node { cordoned: true, ..gpu_node("n1", 8) };
    assert_eq!(admitted(cordoned).server_pod("s", 0, 1, unschedulable(3_000)).plan().new_rejections, []);
}

#[test]
fn later_of_two_conflicting_admissions_is_revoked() {
    let admission = |epoch, second| {
        move |server: Server| {
            server.gpus(8).admitted(1, &["n1"]).admission(|admission| {
                (admission.epoch, admission.admitted_at) = (epoch, Some(to_api_precision(time(second))));
            })
        }
    };
    let double = |first, second| {
        Cluster::new([gpu_node("n1", 8)]).server("a", admission(first, 60)).server("b", admission(second, 50))
    };
    let taken = "Unschedulable: Capacity on node n1 was used by other pods before the server could start.";
    check(double(1, 2), &[&format!("revoke b #1 {taken}")]);
    check(double(2, 1), &[&format!("revoke a #1 {taken}")]);
    check(double(1, 1), &[&format!("revoke a #1 {taken}")]);
    let after = check(double(1, 2), &[&format!("revoke b #1 {taken}")]);
    check(
        after,
        &["pending b #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; none \
                    free."],
    );
}

#[test]
fn admission_with_bound_pod_wins_conflict() {
    let cluster = Cluster::new([gpu_node("n1", 8)])
        .server("first", |server| server.gpus(8).admitted(1, &["n1"]))
        .server("second", |server| server.gpus(8).admitted(1, &["n1"]))
        .server_pod("second", 0, 1, bound);
    let taken = "Unschedulable: Capacity on node n1 was used by other pods before the server could start.";
    check(cluster, &[&format!("revoke first #1 {taken}")]);
}

#[test]
fn foreign_pods_revoke_only_unbound_admission() {
    let cluster = admitted(gpu_node("n1", 8)).pod(foreign("p", "n1", 6));
    let taken = "Unschedulable: Capacity on node n1 was used by other pods before the server could start.";
    assert_eq!(cluster.plan().new_rejections, []);
    check(cluster.clone(), &[&format!("revoke s #1 {taken}")]);
    check(cluster.server_pod("s", 0, 1, bound), &[]);
}

#[test]
fn admission_with_wrong_number_of_nodes_is_revoked() {
    let nodes = || [gpu_node("n1", 8), gpu_node("n2", 8)];
    let small = Cluster::new(nodes()).server("s", |server| server.gpus(1).nodes(2).admitted(1, &["n1"]));
    let after = check(
        small,
        &["revoke s #1 Unschedulable: Admission revoked: the number of assigned nodes does not \
        match spec.nodes."],
    );
    check(after, &["admit s on n1, n2"]);
    let large = Cluster::new(nodes()).server("s", |server| server.gpus(1).admitted(1, &["n1", "n2"]));
    check(
        large,
        &["revoke s #1 Unschedulable: Admission revoked: the number of assigned nodes does not match \
                    spec.nodes."],
    );
}

#[test]
fn admission_of_gang_is_revoked_as_a_whole() {
    let cluster = Cluster::new([gpu_node("n1", 8), gpu_node("n2", 8)])
        .server("s", |server| server.gpus(8).nodes(2).admitted(1, &["n1", "n2"]))
        .server_pod("s", 0, 1, bound);
    check(cluster.clone(), &[]);
    let after = check(
        cluster.pod(foreign("p", "n2", 1)),
        &["revoke s #1 Unschedulable: Capacity on node n2 was used by other pods before the server could start."],
    );
    assert_eq!(after.servers[0].admission.as_ref().unwrap().nodes, Vec::<String>::new());
}

#[test]
fn revoked_server_keeps_queue_position() {
    // Servers behind it do not get the node that it is admitted to in the next pass.
    let cluster = Cluster::new([gpu_node("n2", 8)])
        .server("s", |server| server.gpus(8).admitted(1, &["n1"]))
        .server("behind", |server| server.gpus(8));
    let after = check(
        cluster,
        &[
            "revoke s #1 NodeLost: Node n1 was deleted.",
            "pending behind #2 Reserved: Requires 8 nvidia.com/gpu on one node. Capacity is free but \
             reserved for servers ahead in the queue.",
        ],
    );
    let after = check(
        after,
        &[
            "admit s on n2",
            "pending behind #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 8 on one node; none free.",
        ],
    );
    check(after, &[]);
}

#[test]
fn revoked_server_that_is_not_queued_has_no_position() {
    let cluster = Cluster::new([]).server("s", |server| server.admitted(1, &["n1"]).intent(QueueIntent::Postponed));
    let after = check(cluster, &["revoke s NodeLost: Node n1 was deleted."]);
    let after = check(after, &["release s"]);
    check(after, &[]);
}

#[test]
fn pod_without_owner_reference_belongs_to_server() {
    let cluster = admitted(gpu_node("n1", 4)).server("next", |server| server.gpus(4));
    let mut pod = server_pod(&cluster.servers[0], 0, 1);
    bound(&mut pod);
    pod.server.as_mut().unwrap().owner = None;
    check(
        cluster.pod(pod),
        &["pending next #1 InsufficientCapacity: Insufficient nvidia.com/gpu: requires 4 on one \
        node; none free."],
    );
}
