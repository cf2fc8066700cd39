//! The number of writes of each step, without the user's own write.

use super::*;

#[test]
fn start_takes_four_writes() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.settle();
    let expect = [Admit, Create(Kind::Secret, secret()), Create(Kind::Pod, pod(0)), Status(Phase::Running)];
    cluster.cost(&expect);
}

#[test]
fn start_of_gang_takes_additional_writes_for_service_and_pods() {
    let mut cluster = Cluster::new(gang());
    cluster.settle();
    cluster.cost(&[
        Admit,
        Create(Kind::Secret, secret()),
        Create(Kind::Service, "server-1".into()),
        Create(Kind::Pod, pod(0)),
        Create(Kind::Pod, pod(1)),
        Status(Phase::Running),
    ]);
}

#[test]
fn slow_start_takes_one_write_per_lasting_phase() {
    let mut cluster = Cluster::new(DevServer::test());
    for _ in 0..5 {
        cluster.tick(Duration::from_secs(3));
        cluster.kubelet();
    }
    cluster.settle();
    let starting = Status(Phase::Starting);
    let expect = [Admit, Create(Kind::Secret, secret()), Create(Kind::Pod, pod(0)), starting, Status(Phase::Running)];
    cluster.cost(&expect);
}

#[test]
fn queued_phase_is_written_once() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|index| cluster.lose_contact(index));
    cluster.pass(minutes(5));
    cluster.cost(&[UpdatePending, Status(Phase::Queued)]);
    cluster.is(Phase::Queued).has_condition(Type::Admitted, "False", "InsufficientCapacity", "Insufficient nodes.");
    cluster.after_event(&Event::Recover(0)).is(Phase::Running);
}

#[test]
fn hibernation_and_resume_take_three_writes_each() {
    let cluster = running(DevServer::test()).after_time(hours(1)).after_event(&Event::Desire(Desired::Hibernated));
    let running = Status(Phase::Running);
    assert_eq!(cluster.observer.log.iter().filter(|effect| **effect == running).count(), 0);
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Release, Status(Phase::Hibernated)]);
    cluster.is(Phase::Hibernated).has_condition(
        Type::Ready,
        "False",
        "HibernatedByUser",
        "Set spec.desired to Running",
    );
    let mut cluster = cluster.after_time(hours(10));
    cluster.observer.log.clear();
    let cluster = cluster.after_event(&Event::Desire(Desired::Running));
    cluster.cost(&[Admit, Create(Kind::Pod, pod(0)), Status(Phase::Running)]);
}

#[test]
fn idle_hibernation_stores_cause_first() {
    let cluster = running(DevServer::test()).after_event(&Event::Hibernate(HibernationCause::Idle));
    let stored = Status(Phase::Hibernating);
    cluster.cost(&[stored, Delete(Kind::Pod, pod(0)), Release, Status(Phase::Hibernated)]);
    cluster.has_condition(Type::Ready, "False", "HibernatedByIdleness", "Connect to it");
    cluster.after_event(&Event::Wake).is(Phase::Running);
}

#[test]
fn deletion_takes_three_writes_and_expiry_four() {
    let ended = running(DevServer::test()).after_event(&Event::Desire(Desired::Ended));
    ended.cost(&[Delete(Kind::Pod, pod(0)), Release, Status(Phase::Cancelled)]);
    let mut late = running(DevServer::test()).after_time(hours(8));
    late.observer.log.clear();
    let expired = late.after_time(minutes(2));
    expired.cost(&[Status(Phase::Stopping), Delete(Kind::Pod, pod(0)), Release, Status(Phase::Expired)]);
    let hibernated = hibernated(DevServer::test()).after_event(&Event::Desire(Desired::Ended));
    hibernated.cost(&[Status(Phase::Cancelled)]);
}

#[test]
fn extension_takes_one_write() {
    running(DevServer::test()).after_event(&Event::Lifetime(600)).cost(&[Status(Phase::Running)]);
}

#[test]
fn idle_hour_and_operator_restart_take_no_writes() {
    for cluster in [running(DevServer::test()), running(gang()), hibernated(DevServer::test())] {
        let mut cluster = cluster.after_time(hours(1));
        cluster.operator.crash();
        cluster.after_time(hours(1)).cost(&[]);
    }
}

#[test]
fn replaced_pod_takes_create_and_status_update() {
    let cluster = running(DevServer::test()).after_time(hours(3)).after_event(&Event::DeletePod(0));
    cluster.cost(&[Create(Kind::Pod, pod(0)), Status(Phase::Running)]);
    cluster.is(Phase::Running);
}
