//! Volumes that another pod may still write to.

use super::*;
use crate::devserver::fixtures;

/// Its claim can be mounted by one server only, and a pod of another server mounts it.
fn with_volume_in_use(mut cluster: Cluster) -> Cluster {
    cluster.request = cluster.request.claim(|_| {});
    let mut pod = fixtures::pod("other-0");
    let details = pod.server.as_mut().unwrap();
    (details.owner, details.created_for) = (Some("uid-other".into()), Some("uid-other".into()));
    pod.claims = ["claim-home".into()].into();
    cluster.request.neighbours = vec![pod];
    cluster.changed();
    cluster
}

/// The other pod is deleted.
fn release_volume(mut cluster: Cluster) -> Cluster {
    cluster.request.neighbours.clear();
    cluster.changed();
    cluster.settle();
    cluster
}

#[test]
fn server_waits_for_pod_that_uses_its_volume() {
    let mut cluster = with_volume_in_use(Cluster::new(DevServer::test()));
    // The other server was deleted; its pod is terminating.
    cluster.request.neighbours[0].deletion_timestamp = Some(cluster.now);
    let waiting = cluster.after_time(hours(1));
    waiting.is(Phase::Pending).has_condition(Type::DiskReady, "False", "DiskInUse", "still mounted by pod other-0");
    waiting.cost(&[Status(Phase::Pending)]);
    release_volume(waiting).is(Phase::Running).has_condition(Type::DiskReady, "True", "Bound", "");
}

#[test]
fn hibernated_server_resumes_when_volume_is_released() {
    let waiting = with_volume_in_use(hibernated(DevServer::test()))
        .after_event(&Event::Desire(Desired::Running))
        .after_time(hours(1));
    waiting.is(Phase::Queued).has_condition(Type::Ready, "False", "DiskInUse", "pod other-0");
    assert_eq!(waiting.observer.counts(), [].into());
    release_volume(waiting).is(Phase::Running);
}

#[test]
fn admitted_server_creates_no_pod_while_volume_is_in_use() {
    let mut cluster = Cluster::new(DevServer::test());
    assert!(cluster.schedule());
    // Longer than the start timeout, which does not apply here.
    let waiting = with_volume_in_use(cluster).after_time(hours(1));
    waiting.is(Phase::Starting).has_condition(Type::Ready, "False", "DiskInUse", "pod other-0");
    assert_eq!(waiting.pods.len(), 0);
    release_volume(waiting).is(Phase::Running);
}

#[test]
fn running_server_is_not_affected_by_other_pod() {
    let cluster = with_volume_in_use(running(DevServer::test())).after_time(hours(1));
    cluster.is(Phase::Running).has_condition(Type::DiskReady, "False", "DiskInUse", "pod other-0");
    assert_eq!(cluster.observer.counts(), [].into());
}
