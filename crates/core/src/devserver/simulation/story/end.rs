//! What is left of a server that ended or was deleted.

use super::*;

#[test]
fn an_ended_server_stays_readable_for_its_time_and_is_deleted() {
    let cluster = running(DevServer::test()).after(&Event::Desire(Desired::Ended)).for_a(minutes(24 * 60 - 1));
    assert!(!cluster.deleted);
    let cluster = cluster.for_a(minutes(1));
    assert!(cluster.deleted);
}

#[test]
fn a_deleted_server_that_somebody_holds_stops_and_names_the_holder() {
    let mut cluster = running(gang());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::stored(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into(), "example.org/hold".into()]);
    cluster.touch();
    cluster.settle();
    cluster.is(Phase::Stopping).says(Type::Ready, "False", "Stopping", "kept only by example.org/hold:");
    assert!(cluster.pods.is_empty());
}

#[test]
fn a_server_deleted_in_the_foreground_is_left_to_kubernetes() {
    let mut cluster = running(DevServer::test());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::stored(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
    cluster.touch();
    cluster.settle();
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Release]);
}

#[test]
fn what_is_seen_of_a_pod_is_what_kubernetes_would_say() {
    let cluster = running(DevServer::test());
    let seen: &seen::Pod = &cluster.pods[0].seen;
    cluster.request.valid(|valid| assert_eq!(seen.requests, crate::devserver::build::size::each(valid)));
}
