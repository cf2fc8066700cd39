//! What becomes of a server whose disk somebody else may still write to.

use super::*;
use crate::devserver::fixtures;

/// Its claim can be mounted by one only, and a pod of another server mounts it.
fn taken(mut cluster: Cluster) -> Cluster {
    cluster.request = cluster.request.claim(|_| {});
    let mut pod = fixtures::pod("other-0");
    let details = pod.server.as_mut().unwrap();
    (details.owner, details.made_for) = (Some("uid-other".into()), Some("uid-other".into()));
    pod.claims = ["claim-home".into()].into();
    cluster.request.neighbours = vec![pod];
    cluster.changed();
    cluster
}

/// The pod is gone, and nothing else tells of it.
fn free(mut cluster: Cluster) -> Cluster {
    cluster.request.neighbours.clear();
    cluster.changed();
    cluster.settle();
    cluster
}

#[test]
fn a_server_waits_for_another_ones_pod_on_its_disk() {
    let mut cluster = taken(Cluster::new(DevServer::test()));
    // Its server is gone, and it takes its time.
    cluster.request.neighbours[0].deleting = Some(cluster.now);
    let waiting = cluster.for_a(hours(1));
    waiting.is(Phase::Pending).says(Type::DiskReady, "False", "DiskInUse", "still mounted by pod other-0");
    waiting.cost(&[Status(Phase::Pending)]);
    free(waiting).is(Phase::Running).says(Type::DiskReady, "True", "Bound", "");
}

#[test]
fn a_sleeping_server_wakes_when_its_disk_is_let_go() {
    let waiting = taken(asleep(DevServer::test())).after(&Event::Desire(Desired::Running)).for_a(hours(1));
    waiting.is(Phase::Queued).says(Type::Ready, "False", "DiskInUse", "pod other-0");
    assert_eq!(waiting.observer.counts(), [].into());
    free(waiting).is(Phase::Running);
}

#[test]
fn a_grant_does_not_make_a_pod_beside_another_one_on_its_disk() {
    let mut cluster = Cluster::new(DevServer::test());
    assert!(cluster.queue());
    // Longer than a start may take: it is not its fault.
    let waiting = taken(cluster).for_a(hours(1));
    waiting.is(Phase::Starting).says(Type::Ready, "False", "DiskInUse", "pod other-0");
    assert_eq!(waiting.pods.len(), 0);
    free(waiting).is(Phase::Running);
}

#[test]
fn another_ones_pod_stops_nothing_that_runs() {
    let cluster = taken(running(DevServer::test())).for_a(hours(1));
    cluster.is(Phase::Running).says(Type::DiskReady, "False", "DiskInUse", "pod other-0");
    assert_eq!(cluster.observer.counts(), [].into());
}
