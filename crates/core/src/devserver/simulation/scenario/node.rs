//! Unreachable, deleted and evicting nodes.

use super::*;

#[test]
fn unreachable_node_is_lost_after_timeout() {
    let cluster =
        running(DevServer::test().ephemeral("1Gi")).after_event(&Event::LoseContact(0)).after_time(minutes(9));
    cluster.is(Phase::Running).has_condition(
        Type::Ready,
        "False",
        "NodeLost",
        "Node node-1 is unreachable. If it does not recover",
    );
    let cluster = cluster.after_time(minutes(1));
    cluster.is(Phase::Running);
    assert_eq!(cluster.nodes(), ["node-2"]);
    cluster.has_failure("NodeLost", "Node node-1 is unreachable. The server will start on another node.");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn node_is_lost_even_if_its_pods_are_ready() {
    let mut cluster = running(DevServer::test().ephemeral("1Gi"));
    cluster.lose_contact(0);
    cluster.pods[0].object.server.as_mut().unwrap().ready = true;
    let cluster = cluster.after_time(minutes(9));
    cluster.is(Phase::Running).has_condition(Type::Ready, "True", "Running", "");
    assert_eq!(cluster.operator.due, Some(cluster.now.saturating_add(minutes(1)).unwrap()));
    let cluster = cluster.after_time(minutes(1));
    cluster.is(Phase::Running);
    assert_eq!(cluster.nodes(), ["node-2"]);
}

#[test]
fn no_pod_is_created_on_deleted_node() {
    let mut cluster = Cluster::new(DevServer::test());
    assert!(cluster.schedule());
    cluster.apply(&Event::DeleteNode(0));
    cluster.settle();
    cluster.is(Phase::Running);
    assert_eq!(cluster.nodes(), ["node-2"]);
    assert_eq!(cluster.observer.counts()[&Create(Kind::Pod, pod(0))], 1);
}

#[test]
fn missing_node_is_treated_as_unreachable() {
    let missing = running(DevServer::test().ephemeral("1Gi")).after_event(&Event::HideNode(0)).after_time(minutes(9));
    missing.is(Phase::Running).cost(&[]);
    // The node was registered again, or the cache was stale.
    let back = missing.clone().after_event(&Event::Recover(0)).after_time(hours(1));
    back.is(Phase::Running).cost(&[]);
    // A restarted operator starts to wait again.
    let restarted = missing
        .clone()
        .after_event(&Event::SetOperatorDown(true))
        .after_event(&Event::SetOperatorDown(false))
        .after_time(minutes(9));
    restarted.is(Phase::Running).cost(&[]);
    let lost = missing.after_time(minutes(1));
    lost.is(Phase::Running).has_failure("NodeLost", "Node node-1 is unreachable");
    assert_eq!(lost.nodes(), ["node-2"]);
}

#[test]
fn recovered_node_keeps_its_server() {
    let cluster = running(DevServer::test())
        .after_event(&Event::LoseContact(0))
        .after_time(minutes(9))
        .after_event(&Event::Recover(0));
    cluster.is(Phase::Running).has_condition(Type::Ready, "True", "Running", "");
    assert_eq!((cluster.nodes(), cluster.status().last_failure), (vec!["node-1"], None));
}

#[test]
fn server_with_volume_waits_for_lost_node() {
    let lost = running(DevServer::test()).after_event(&Event::LoseContact(0)).after_time(hours(5));
    lost.is(Phase::Queued).has_condition(Type::Ready, "False", "NodeLost", "kubectl delete node node-1");
    assert_eq!((lost.processes.len(), lost.nodes()), (1, vec!["node-1"]));
    let back = lost.clone().after_event(&Event::Recover(0));
    back.is(Phase::Running);
    assert_eq!(back.processes.len(), 1);
    let removed = lost.after_event(&Event::DeleteNode(0));
    removed.is(Phase::Running);
    assert_eq!(removed.nodes(), ["node-2"]);
}

#[test]
fn message_for_lost_spot_node_names_likely_cause() {
    let mut spot = running(DevServer::test().ephemeral("1Gi"));
    spot.set_flavor(|flavor| flavor.spot = true);
    let mut removed = spot.clone().after_event(&Event::LoseContact(0)).after_time(minutes(10));
    removed.is(Phase::Running).has_failure("NodeLost", "probably because its spot capacity was reclaimed. The server");
    // The provider deleted the node, and Kubernetes its pod.
    removed = spot.after_event(&Event::DeleteNode(0));
    removed.is(Phase::Running).has_failure("NodeLost", "its spot capacity was reclaimed");
    let mut disk = running(DevServer::test());
    disk.set_flavor(|flavor| flavor.spot = true);
    let lost = disk.after_event(&Event::LoseContact(0)).after_time(minutes(10));
    lost.is(Phase::Queued).has_condition(
        Type::Ready,
        "False",
        "NodeLost",
        "spot capacity was reclaimed. Its pod may still write",
    );
}

#[test]
fn admission_of_wrong_size_is_reported_and_revoked() {
    for scheduler_first in [false, true] {
        let mut cluster = running(gang());
        cluster.scheduler_first = scheduler_first;
        cluster.request.server.status.as_mut().unwrap().admission.as_mut().unwrap().nodes.pop();
        cluster.touch();
        cluster.settle();
        cluster.is(Phase::Running);
        assert_eq!(cluster.observer.counts()[&Revoke], 1);
        if !scheduler_first {
            cluster.has_failure("Unschedulable", "The admission assigns 1 nodes but the server requires 2");
        }
    }
}

#[test]
fn gang_is_restarted_as_a_whole() {
    let gang = running(gang().ephemeral("1Gi")).after_event(&Event::LoseContact(1)).after_time(minutes(10));
    gang.is(Phase::Running);
    assert_eq!(gang.nodes(), ["node-1", "node-3"]);
    let runs: Vec<_> = gang.pods.iter().map(|pod| pod.details().run).collect();
    assert_eq!(runs, [Some(2), Some(2)]);
}

#[test]
fn gang_with_volume_waits_for_lost_node() {
    let gang = running(gang()).after_event(&Event::LoseContact(1)).after_time(hours(1));
    gang.is(Phase::Queued).has_condition(Type::Ready, "False", "NodeLost", "node-2");
    assert_eq!((gang.nodes(), gang.processes.len()), (vec!["node-2"], 1));
    gang.after_event(&Event::DeleteNode(1)).is(Phase::Running);
}

#[test]
fn evicted_pod_returns_server_to_queue() {
    let cluster = running(DevServer::test()).after_time(hours(1)).after_event(&Event::EvictPod(0));
    cluster.is(Phase::Running).has_failure("PodEvicted", "from node node-1: Evicted");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn stop_on_lost_node_reports_reason() {
    let lost =
        running(DevServer::test()).after_event(&Event::LoseContact(0)).after_event(&Event::Desire(Desired::Ended));
    let lost = lost.after_time(hours(1));
    lost.is(Phase::Stopping).has_condition(Type::Ready, "False", "Ended", "kubectl delete node node-1");
    lost.after_event(&Event::DeleteNode(0)).is(Phase::Cancelled);
}
