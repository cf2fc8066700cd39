//! Deletion, TTL and preemption.

use super::*;

#[test]
fn ended_server_is_deleted_after_ttl() {
    let cluster =
        running(DevServer::test()).after_event(&Event::Desire(Desired::Ended)).after_time(minutes(24 * 60 - 1));
    assert!(!cluster.deleted);
    let cluster = cluster.after_time(minutes(1));
    assert!(cluster.deleted);
}

#[test]
fn deleted_server_with_finalizer_is_stopped_and_reported() {
    let mut cluster = running(gang());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::to_api_precision(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into(), "example.org/hold".into()]);
    cluster.touch();
    cluster.settle();
    cluster.is(Phase::Stopping).has_condition(
        Type::Ready,
        "False",
        "Stopping",
        "being deleted, but finalizers block it: example.org/hold",
    );
    cluster.is_stopping_for(StopCause::User);
    assert!(cluster.pods.is_empty());
}

#[test]
fn foreground_deletion_is_not_reported() {
    let mut cluster = running(DevServer::test());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::to_api_precision(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
    cluster.touch();
    cluster.settle();
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Release]);
}

#[test]
fn simulated_pod_has_requests_of_server() {
    let cluster = running(DevServer::test());
    let pod = &cluster.pods[0].object;
    cluster.request.valid(|valid| assert_eq!(pod.requests, crate::devserver::build::size::per_node(valid)));
}

#[test]
fn preempted_server_runs_until_notice_ends_and_is_queued_again() {
    let cluster = running(DevServer::test()).after_event(&Event::Preempt(120));
    cluster.is(Phase::Running).has_condition(
        Type::Admitted,
        "True",
        "Preempted",
        "Preempted by a server with higher priority",
    );
    let cluster = cluster.after_time(Duration::from_secs(119));
    cluster.is(Phase::Running).cost(&[Status(Phase::Running)]);
    // The node is still free, so the server is admitted again immediately.
    let cluster = cluster.after_time(minutes(1));
    cluster.is(Phase::Running).has_condition(Type::Admitted, "True", "Admitted", "");
    let restart = [Delete(Kind::Pod, pod(0)), Revoke, Admit, Create(Kind::Pod, pod(0)), Status(Phase::Running)];
    cluster.cost(&[&[Status(Phase::Running)][..], &restart].concat());
    assert_eq!(cluster.status().admission.unwrap().run, 2);
}

#[test]
fn preemption_ends_when_server_hibernates() {
    let cluster =
        running(DevServer::test()).after_event(&Event::Preempt(120)).after_event(&Event::Desire(Desired::Hibernated));
    cluster.is(Phase::Hibernated);
    let cluster = cluster.after_event(&Event::Desire(Desired::Running)).after_time(minutes(5));
    cluster.is(Phase::Running).has_condition(Type::Admitted, "True", "Admitted", "");
}
