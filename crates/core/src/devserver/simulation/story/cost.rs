//! What each step costs in writes, as table 2.1 of the performance goals has it. The user's own write comes on top.

use super::*;

#[test]
fn a_start_costs_four_writes() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.settle();
    let expect = [Grant, Create(Kind::Secret, secret()), Create(Kind::Pod, pod(0)), Status(Phase::Running)];
    cluster.cost(&expect);
}

#[test]
fn a_gang_costs_a_service_and_a_pod_for_each_node_more() {
    let mut cluster = Cluster::new(gang());
    cluster.settle();
    cluster.cost(&[
        Grant,
        Create(Kind::Secret, secret()),
        Create(Kind::Service, "server-1".into()),
        Create(Kind::Pod, pod(0)),
        Create(Kind::Pod, pod(1)),
        Status(Phase::Running),
    ]);
}

#[test]
fn a_slow_start_costs_one_write_for_each_phase_that_lasts() {
    let mut cluster = Cluster::new(DevServer::test());
    for _ in 0..5 {
        cluster.tick(Duration::from_secs(3));
        cluster.kubelet();
    }
    cluster.settle();
    let starting = Status(Phase::Starting);
    let expect = [Grant, Create(Kind::Secret, secret()), Create(Kind::Pod, pod(0)), starting, Status(Phase::Running)];
    cluster.cost(&expect);
}

#[test]
fn a_queue_that_lasts_is_told_once() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|at| cluster.silence(at));
    cluster.pass(minutes(5));
    cluster.cost(&[Explain, Status(Phase::Queued)]);
    cluster.is(Phase::Queued).says(Type::Admitted, "False", "InsufficientCapacity", "Too few nodes are free.");
    cluster.after(&Event::Back(0)).is(Phase::Running);
}

#[test]
fn a_sleep_costs_three_writes_and_so_does_a_wake() {
    let cluster = running(DevServer::test()).for_a(hours(1)).after(&Event::Desire(Desired::Hibernated));
    let told = Status(Phase::Running);
    assert_eq!(cluster.observer.log.iter().filter(|did| **did == told).count(), 0);
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Release, Status(Phase::Hibernated)]);
    cluster.is(Phase::Hibernated).says(Type::Ready, "False", "HibernatedByUser", "set spec.desired to Running");
    let mut cluster = cluster.for_a(hours(10));
    cluster.observer.log.clear();
    let cluster = cluster.after(&Event::Desire(Desired::Running));
    cluster.cost(&[Grant, Create(Kind::Pod, pod(0)), Status(Phase::Running)]);
}

#[test]
fn a_sleep_for_idleness_is_noted_first() {
    let cluster = running(DevServer::test()).after(&Event::Sleep(HibernationCause::Idle));
    let noted = Status(Phase::Hibernating);
    cluster.cost(&[noted, Delete(Kind::Pod, pod(0)), Release, Status(Phase::Hibernated)]);
    cluster.says(Type::Ready, "False", "HibernatedByIdleness", "connect to it");
    cluster.after(&Event::Wake).is(Phase::Running);
}

#[test]
fn an_end_costs_three_writes_and_an_expiry_four() {
    let ended = running(DevServer::test()).after(&Event::Desire(Desired::Ended));
    ended.cost(&[Delete(Kind::Pod, pod(0)), Release, Status(Phase::Cancelled)]);
    let mut late = running(DevServer::test()).for_a(hours(8));
    late.observer.log.clear();
    let expired = late.for_a(minutes(2));
    expired.cost(&[Status(Phase::Stopping), Delete(Kind::Pod, pod(0)), Release, Status(Phase::Expired)]);
    let asleep = asleep(DevServer::test()).after(&Event::Desire(Desired::Ended));
    asleep.cost(&[Status(Phase::Cancelled)]);
}

#[test]
fn an_extension_costs_one_write() {
    running(DevServer::test()).after(&Event::Lifetime(600)).cost(&[Status(Phase::Running)]);
}

#[test]
fn an_untouched_hour_costs_nothing_and_a_restart_neither() {
    for cluster in [running(DevServer::test()), running(gang()), asleep(DevServer::test())] {
        let mut cluster = cluster.for_a(hours(1));
        cluster.operator.die();
        cluster.for_a(hours(1)).cost(&[]);
    }
}

#[test]
fn a_pod_that_comes_back_at_once_costs_itself_and_its_new_address() {
    let cluster = running(DevServer::test()).for_a(hours(3)).after(&Event::DeletePod(0));
    cluster.cost(&[Create(Kind::Pod, pod(0)), Status(Phase::Running)]);
    cluster.is(Phase::Running);
}
