//! Pods that are still there when they should be gone.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl Cluster {
    fn hold_pod(&mut self, by: &[&str]) {
        self.pods[0].seen.server.as_mut().unwrap().held_by = by.iter().map(|name| (*name).to_owned()).collect();
        self.changed();
    }
}

/// Its pod will be kept when it is deleted.
fn held(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.hold_pod(&["example.org/hold"]);
    cluster.settle();
    cluster
}

/// They let go, and everything goes on by itself.
fn released(mut cluster: Cluster) -> Cluster {
    cluster.hold_pod(&[]);
    cluster.settle();
    cluster
}

#[test]
fn a_pod_that_a_finalizer_keeps_is_told_with_its_name_while_the_server_falls_asleep() {
    let cluster = held(DevServer::test()).after(&Event::Desire(Desired::Hibernated)).for_a(Duration::from_secs(9));
    cluster.is(Phase::Hibernating).says(Type::Ready, "False", "HibernatedByUser", "being put to sleep in order");
    let cluster = cluster.for_a(SECOND);
    let told = "Pod server-1-0 was stopped and is kept only by example.org/hold";
    cluster.is(Phase::Hibernating).says(Type::Ready, "False", "HibernatedByUser", told);
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Status(Phase::Hibernating), Status(Phase::Hibernating)]);
    // Told once, however long it lasts.
    let cluster = cluster.for_a(hours(5));
    assert_eq!(cluster.observer.log.len(), 3);
    released(cluster).is(Phase::Hibernated);
}

#[test]
fn it_is_told_while_the_server_ends_and_that_it_ends_is_not_forgotten() {
    let cluster = held(DevServer::test()).for_a(hours(8) + minutes(3));
    cluster.is(Phase::Stopping).says(Type::Ready, "False", "LifetimeUsedUp", "kept only by example.org/hold");
    released(cluster).is(Phase::Expired);
    let cluster = held(DevServer::test()).after(&Event::Desire(Desired::Ended)).for_a(minutes(1));
    cluster.is(Phase::Stopping).says(Type::Ready, "False", "Ended", "kept only by example.org/hold");
    released(cluster).is(Phase::Cancelled);
}

#[test]
fn it_is_told_while_the_server_starts_anew() {
    let cluster = held(DevServer::test()).after(&Event::DeletePod(0)).for_a(minutes(1));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "PodHeld", "kept only by example.org/hold");
    released(cluster).is(Phase::Running);
}

#[test]
fn it_is_told_while_the_server_waits_for_its_old_pod() {
    let cluster = held(DevServer::test()).after(&Event::AskedAway(0)).for_a(minutes(1));
    cluster.is(Phase::Queued).says(Type::Ready, "False", "Preempted", "kept only by example.org/hold");
    released(cluster).is(Phase::Running);
}

#[test]
fn it_is_told_before_that_the_node_is_lost_since_nothing_else_keeps_the_server() {
    let mut cluster = held(DevServer::test().ephemeral("10Gi"));
    cluster.silence(0);
    let cluster = cluster.for_a(minutes(11));
    cluster.is(Phase::Queued).says(Type::Ready, "False", "NodeLost", "kept only by example.org/hold");
    cluster.failed_by("NodeLost", "starts on another one");
}

#[test]
fn a_node_that_does_not_stop_a_pod_is_told() {
    let mut cluster = running(DevServer::test());
    cluster.happen(&Event::Desire(Desired::Hibernated));
    cluster.tick(Duration::from_secs(59));
    cluster.is(Phase::Hibernating).says(Type::Ready, "False", "HibernatedByUser", "in order");
    cluster.tick(SECOND);
    cluster.says(Type::Ready, "False", "HibernatedByUser", "node node-1 does not say that it is gone");
    cluster.silence(0);
    cluster.tick(SECOND);
    cluster.says(Type::Ready, "False", "HibernatedByUser", "its node node-1 does not answer");
    cluster.back(0);
    cluster.settle();
    cluster.is(Phase::Hibernated);
}
