//! Pods whose termination is blocked or overdue.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

impl Cluster {
    fn set_finalizers(&mut self, finalizers: &[&str]) {
        self.pods[0].object.server.as_mut().unwrap().blocking_finalizers =
            finalizers.iter().map(|name| (*name).to_owned()).collect();
        self.changed();
    }
}

/// A running server whose pod has a finalizer.
fn with_finalizer(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.set_finalizers(&["example.org/hold"]);
    cluster.settle();
    cluster
}

/// The finalizer is removed.
fn without_finalizer(mut cluster: Cluster) -> Cluster {
    cluster.set_finalizers(&[]);
    cluster.settle();
    cluster
}

#[test]
fn blocked_termination_is_reported_while_hibernating() {
    let cluster = with_finalizer(DevServer::test())
        .after_event(&Event::Desire(Desired::Hibernated))
        .after_time(Duration::from_secs(9));
    cluster.is(Phase::Hibernating).has_condition(
        Type::Ready,
        "False",
        "HibernatedByUser",
        "Hibernating: running preStop and terminating pods.",
    );
    let cluster = cluster.after_time(SECOND);
    let message = "Pod server-1-0 is terminating but blocked by finalizers: example.org/hold";
    cluster.is(Phase::Hibernating).has_condition(Type::Ready, "False", "HibernatedByUser", message);
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Status(Phase::Hibernating), Status(Phase::Hibernating)]);
    // Reported once.
    let cluster = cluster.after_time(hours(5));
    assert_eq!(cluster.observer.log.len(), 3);
    without_finalizer(cluster).is(Phase::Hibernated);
}

#[test]
fn blocked_termination_is_reported_while_stopping() {
    let cluster = with_finalizer(DevServer::test()).after_time(hours(8) + minutes(3));
    cluster.is(Phase::Stopping).has_condition(
        Type::Ready,
        "False",
        "LifetimeExceeded",
        "blocked by finalizers: example.org/hold",
    );
    cluster.is_stopping_for(StopCause::Expired);
    without_finalizer(cluster).is(Phase::Expired);
    let cluster = with_finalizer(DevServer::test()).after_event(&Event::Desire(Desired::Ended)).after_time(minutes(1));
    cluster.is(Phase::Stopping).has_condition(Type::Ready, "False", "Ended", "blocked by finalizers: example.org/hold");
    cluster.is_stopping_for(StopCause::User);
    without_finalizer(cluster).is(Phase::Cancelled);
}

#[test]
fn blocked_termination_is_reported_while_starting() {
    let cluster = with_finalizer(DevServer::test()).after_event(&Event::DeletePod(0)).after_time(minutes(1));
    cluster.is(Phase::Starting).has_condition(
        Type::Ready,
        "False",
        "PodTerminationBlocked",
        "blocked by finalizers: example.org/hold",
    );
    without_finalizer(cluster).is(Phase::Running);
}

#[test]
fn blocked_termination_is_reported_while_preempted() {
    let cluster = with_finalizer(DevServer::test()).after_event(&Event::Preempt(0)).after_time(minutes(1));
    cluster.is(Phase::Queued).has_condition(
        Type::Ready,
        "False",
        "Preempted",
        "blocked by finalizers: example.org/hold",
    );
    without_finalizer(cluster).is(Phase::Running);
}

#[test]
fn blocked_termination_takes_precedence_over_lost_node() {
    let mut cluster = with_finalizer(DevServer::test().ephemeral("10Gi"));
    cluster.lose_contact(0);
    let cluster = cluster.after_time(minutes(11));
    cluster.is(Phase::Queued).has_condition(
        Type::Ready,
        "False",
        "NodeLost",
        "blocked by finalizers: example.org/hold",
    );
    cluster.has_failure("NodeLost", "will start on another node");
}

#[test]
fn overdue_termination_is_reported() {
    let mut cluster = running(DevServer::test());
    cluster.apply(&Event::Desire(Desired::Hibernated));
    cluster.tick(Duration::from_secs(59));
    cluster.is(Phase::Hibernating).has_condition(Type::Ready, "False", "HibernatedByUser", "terminating pods");
    cluster.tick(SECOND);
    cluster.has_condition(Type::Ready, "False", "HibernatedByUser", "did not terminate in time on node node-1");
    cluster.lose_contact(0);
    cluster.tick(SECOND);
    cluster.has_condition(
        Type::Ready,
        "False",
        "HibernatedByUser",
        "did not terminate in time: node node-1 is unreachable",
    );
    cluster.recover(0);
    cluster.settle();
    cluster.is(Phase::Hibernated);
}
