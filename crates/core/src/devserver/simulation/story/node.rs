//! What becomes of a server whose node falls silent, goes away or sends it away.

use super::*;

#[test]
fn a_silent_node_is_waited_for_and_then_lost() {
    let cluster = running(DevServer::test().ephemeral("1Gi")).after(&Event::Silence(0)).for_a(minutes(9));
    cluster.is(Phase::Running).says(Type::Ready, "False", "NodeLost", "does not answer at the moment");
    let cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Running);
    assert_eq!(cluster.on(), ["node-2"]);
    cluster.failed_by("NodeLost", "Node node-1 does not answer any more; the server starts on another one.");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn a_node_is_lost_also_if_its_pods_still_say_that_they_are_ready() {
    let mut cluster = running(DevServer::test().ephemeral("1Gi"));
    cluster.silence(0);
    cluster.pods[0].seen.server.as_mut().unwrap().ready = true;
    let cluster = cluster.for_a(minutes(9));
    cluster.is(Phase::Running).says(Type::Ready, "True", "Running", "");
    assert_eq!(cluster.operator.due, Some(cluster.now.saturating_add(minutes(1)).unwrap()));
    let cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Running);
    assert_eq!(cluster.on(), ["node-2"]);
}

#[test]
fn a_granted_node_that_is_gone_is_no_place_for_a_pod() {
    let mut cluster = Cluster::new(DevServer::test());
    assert!(cluster.queue());
    cluster.happen(&Event::RemoveNode(0));
    cluster.settle();
    cluster.is(Phase::Running);
    assert_eq!(cluster.on(), ["node-2"]);
    assert_eq!(cluster.observer.counts()[&Create(Kind::Pod, pod(0))], 1);
}

#[test]
fn a_node_that_is_missing_is_waited_for_as_one_that_is_silent() {
    let missing = running(DevServer::test().ephemeral("1Gi")).after(&Event::MissNode(0)).for_a(minutes(9));
    missing.is(Phase::Running).cost(&[]);
    // It registered anew, or our copy had been old.
    let back = missing.clone().after(&Event::Back(0)).for_a(hours(1));
    back.is(Phase::Running).cost(&[]);
    // Whoever comes next begins to wait anew, and nothing else.
    let restarted = missing.clone().after(&Event::Down(true)).after(&Event::Down(false)).for_a(minutes(9));
    restarted.is(Phase::Running).cost(&[]);
    let lost = missing.for_a(minutes(1));
    lost.is(Phase::Running).failed_by("NodeLost", "Node node-1 does not answer any more");
    assert_eq!(lost.on(), ["node-2"]);
}

#[test]
fn a_silent_node_that_comes_back_keeps_its_server() {
    let cluster = running(DevServer::test()).after(&Event::Silence(0)).for_a(minutes(9)).after(&Event::Back(0));
    cluster.is(Phase::Running).says(Type::Ready, "True", "Running", "");
    assert_eq!((cluster.on(), cluster.status().last_failure), (vec!["node-1"], None));
}

#[test]
fn a_lost_node_with_a_disk_is_waited_for() {
    let lost = running(DevServer::test()).after(&Event::Silence(0)).for_a(hours(5));
    lost.is(Phase::Queued).says(Type::Ready, "False", "NodeLost", "kubectl delete node node-1");
    assert_eq!((lost.processes.len(), lost.on()), (1, vec!["node-1"]));
    let back = lost.clone().after(&Event::Back(0));
    back.is(Phase::Running);
    assert_eq!(back.processes.len(), 1);
    let removed = lost.after(&Event::RemoveNode(0));
    removed.is(Phase::Running);
    assert_eq!(removed.on(), ["node-2"]);
}

#[test]
fn a_lost_node_of_a_spot_flavor_was_probably_reclaimed() {
    let mut spot = running(DevServer::test().ephemeral("1Gi"));
    spot.flavor_is(|flavor| flavor.spot = true);
    let mut removed = spot.clone().after(&Event::Silence(0)).for_a(minutes(10));
    removed.is(Phase::Running).failed_by("NodeLost", "probably because its spot capacity was reclaimed; the server");
    // The provider removed the node, and Kubernetes its pod.
    removed = spot.after(&Event::RemoveNode(0));
    removed.is(Phase::Running).failed_by("NodeLost", "its spot capacity was reclaimed");
    let mut disk = running(DevServer::test());
    disk.flavor_is(|flavor| flavor.spot = true);
    let lost = disk.after(&Event::Silence(0)).for_a(minutes(10));
    lost.is(Phase::Queued).says(
        Type::Ready,
        "False",
        "NodeLost",
        "spot capacity was reclaimed. Its pod may still write",
    );
}

#[test]
fn a_grant_of_another_size_is_told_and_taken_back() {
    for queue_first in [false, true] {
        let mut cluster = running(gang());
        cluster.queue_first = queue_first;
        cluster.request.server.status.as_mut().unwrap().admission.as_mut().unwrap().nodes.pop();
        cluster.touch();
        cluster.settle();
        cluster.is(Phase::Running);
        assert_eq!(cluster.observer.counts()[&Revoke], 1);
        if !queue_first {
            cluster.failed_by("Unschedulable", "Its grant names 1 nodes and it needs 2");
        }
    }
}

#[test]
fn a_gang_moves_as_one() {
    let gang = running(gang().ephemeral("1Gi")).after(&Event::Silence(1)).for_a(minutes(10));
    gang.is(Phase::Running);
    assert_eq!(gang.on(), ["node-1", "node-3"]);
    let runs: Vec<_> = gang.pods.iter().map(|pod| pod.details().run).collect();
    assert_eq!(runs, [Some(2), Some(2)]);
}

#[test]
fn a_gang_with_a_disk_waits_as_one() {
    let gang = running(gang()).after(&Event::Silence(1)).for_a(hours(1));
    gang.is(Phase::Queued).says(Type::Ready, "False", "NodeLost", "node-2");
    assert_eq!((gang.on(), gang.processes.len()), (vec!["node-2"], 1));
    gang.after(&Event::RemoveNode(1)).is(Phase::Running);
}

#[test]
fn a_pod_its_node_sends_away_goes_back_to_the_queue() {
    let cluster = running(DevServer::test()).for_a(hours(1)).after(&Event::Evict(0));
    cluster.is(Phase::Running).failed_by("PodGone", "(Evicted)");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn an_end_on_a_lost_node_is_told_why_it_takes_long() {
    let lost = running(DevServer::test()).after(&Event::Silence(0)).after(&Event::Desire(Desired::Ended));
    let lost = lost.for_a(hours(1));
    lost.is(Phase::Stopping).says(Type::Ready, "False", "Ended", "kubectl delete node node-1");
    lost.after(&Event::RemoveNode(0)).is(Phase::Cancelled);
}
