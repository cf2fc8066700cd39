//! The queue timeout.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(48 * 3_600);
const SECOND: Duration = Duration::from_secs(1);

/// A server in a cluster without ready nodes.
fn without_nodes(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    (0..3).for_each(|index| cluster.lose_contact(index));
    cluster
}

/// A server whose phase Queued was just stored.
fn queued() -> Cluster {
    let cluster = without_nodes(DevServer::test()).after_time(SECOND);
    cluster.is(Phase::Queued);
    assert_eq!(cluster.status().waiting_since.map(|since| since.0), Some(cluster.now));
    cluster
}

impl Cluster {
    #[track_caller]
    fn is_timed_out(&self) {
        self.is(Phase::Cancelled).has_condition(Type::Ready, "False", "QueueTimeout", "after waiting 2d");
        assert!(!self.observer.log.contains(&Admit), "{:?}", self.observer.log);
        assert_eq!(self.status().waiting_since, None);
    }
}

#[test]
fn new_server_is_cancelled_exactly_at_timeout() {
    let cluster = queued().after_time(TIMEOUT.saturating_sub(SECOND));
    cluster.is(Phase::Queued);
    let mut cluster = cluster.after_time(SECOND);
    cluster.is_timed_out();
    let cost = [UpdatePending, Status(Phase::Queued), Status(Phase::Cancelled)];
    assert_eq!(cluster.observer.log.iter().filter(|effect| cost.contains(effect)).count(), cluster.observer.log.len());
    // A node that becomes ready afterwards has no effect.
    cluster.recover(0);
    cluster.settle();
    cluster.is_timed_out();
}

#[test]
fn timeout_during_operator_downtime_takes_effect_afterwards() {
    let cluster = queued().after_event(&Event::SetOperatorDown(true)).after_time(TIMEOUT);
    cluster.is(Phase::Queued);
    cluster.after_event(&Event::SetOperatorDown(false)).is_timed_out();
}

#[test]
fn timeout_of_booking_starts_at_its_start_time() {
    let mut cluster = without_nodes(DevServer::test());
    let booked = cluster.now.saturating_add(hours(72)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::to_api_precision(booked)));
    let cluster = cluster.after_time(hours(72) + TIMEOUT.saturating_sub(SECOND));
    cluster.is(Phase::Queued);
    cluster.after_time(SECOND).is_timed_out();
}

#[test]
fn server_that_ran_before_is_never_cancelled() {
    let mut cluster = hibernated(DevServer::test());
    (0..3).for_each(|index| cluster.lose_contact(index));
    let mut cluster = cluster.after_event(&Event::Desire(Desired::Running)).after_time(hours(100));
    cluster.is(Phase::Queued);
    cluster.recover(1);
    cluster.settle();
    cluster.is(Phase::Running);

    let mut cluster = running(DevServer::test().ephemeral("10Gi"));
    (0..3).for_each(|index| cluster.lose_contact(index));
    let mut cluster = cluster.after_time(hours(100));
    cluster.is(Phase::Queued);
    cluster.recover(2);
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn time_outside_the_queue_does_not_count() {
    let cluster =
        queued().after_time(TIMEOUT.saturating_sub(hours(1))).after_event(&Event::DeleteFlavor).after_time(hours(2));
    cluster.is(Phase::Queued).has_condition(Type::Accepted, "False", "FlavorNotFound", "");
    let mut cluster = cluster.after_event(&Event::RestoreFlavor).after_time(TIMEOUT.saturating_sub(hours(1)));
    cluster.is(Phase::Queued);
    cluster.recover(0);
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn either_admission_or_timeout_takes_effect() {
    let mut cluster = queued().after_time(TIMEOUT.saturating_sub(SECOND));
    cluster.set_clock(cluster.now.saturating_add(SECOND).unwrap());
    let (version, plan) = (cluster.version, cluster.plan());
    assert_eq!(plan.phase, Some(Phase::Cancelled));
    let status = plan.status.unwrap();

    // The scheduler writes first.
    let mut admitted = cluster.clone();
    admitted.recover(0);
    admitted.now = admitted.now.saturating_sub(SECOND).unwrap();
    assert!(admitted.schedule());
    admitted.now = cluster.now;
    assert!(matches!(admitted.store(version, status.clone()), Ok(Answer::Conflict)));
    admitted.settle();
    admitted.is(Phase::Running);

    // The controller writes first; after the timeout the scheduler admits nothing.
    cluster.recover(0);
    assert!(!cluster.schedule());
    assert!(matches!(cluster.store(version, status), Ok(Answer::Done)));
    cluster.settle();
    cluster.is_timed_out();
}
