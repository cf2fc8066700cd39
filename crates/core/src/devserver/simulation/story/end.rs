//! What is left of a server that ended, was deleted or had to give way.

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

#[test]
fn one_that_is_asked_away_runs_until_then_stops_in_order_and_waits_again() {
    let cluster = running(DevServer::test()).after(&Event::AskedAway(120));
    cluster.is(Phase::Running).says(Type::Admitted, "True", "Preempted", "needs its place");
    let cluster = cluster.for_a(Duration::from_secs(119));
    cluster.is(Phase::Running).cost(&[Status(Phase::Running)]);
    // Here nobody else wants the node, so it is back at once. Its lifetime stood still meanwhile.
    let cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Running).says(Type::Admitted, "True", "Granted", "");
    let again = [Delete(Kind::Pod, pod(0)), Revoke, Grant, Create(Kind::Pod, pod(0)), Status(Phase::Running)];
    cluster.cost(&[&[Status(Phase::Running)][..], &again].concat());
    assert_eq!(cluster.status().admission.unwrap().run, 2);
}

#[test]
fn one_that_leaves_by_itself_meanwhile_is_not_asked_again() {
    let cluster = running(DevServer::test()).after(&Event::AskedAway(120)).after(&Event::Desire(Desired::Hibernated));
    cluster.is(Phase::Hibernated);
    let cluster = cluster.after(&Event::Desire(Desired::Running)).for_a(minutes(5));
    cluster.is(Phase::Running).says(Type::Admitted, "True", "Granted", "");
}
