//! How long a server waits.

use super::*;

const LIMIT: Duration = Duration::from_secs(48 * 3_600);
const SECOND: Duration = Duration::from_secs(1);

/// No node takes anything.
fn full(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    (0..3).for_each(|at| cluster.silence(at));
    cluster
}

/// It has just been told that it waits.
fn queued() -> Cluster {
    let cluster = full(DevServer::test()).for_a(SECOND);
    cluster.is(Phase::Queued);
    assert_eq!(cluster.status().waiting_since.map(|since| since.0), Some(cluster.now));
    cluster
}

impl Cluster {
    #[track_caller]
    fn is_cancelled_for_waiting(&self) {
        self.is(Phase::Cancelled).says(Type::Ready, "False", "QueuedTooLong", "waited 48h");
        assert!(!self.observer.log.contains(&Grant), "{:?}", self.observer.log);
        assert_eq!(self.status().waiting_since, None);
    }
}

#[test]
fn whoever_waits_for_a_first_start_is_cancelled_exactly_at_the_limit() {
    let cluster = queued().for_a(LIMIT.saturating_sub(SECOND));
    cluster.is(Phase::Queued);
    let mut cluster = cluster.for_a(SECOND);
    cluster.is_cancelled_for_waiting();
    let cost = [Explain, Status(Phase::Queued), Status(Phase::Cancelled)];
    assert_eq!(cluster.observer.log.iter().filter(|did| cost.contains(did)).count(), cluster.observer.log.len());
    // What is free now comes too late.
    cluster.back(0);
    cluster.settle();
    cluster.is_cancelled_for_waiting();
}

#[test]
fn an_operator_that_was_away_over_the_limit_cancels_when_it_is_back() {
    let cluster = queued().after(&Event::Down(true)).for_a(LIMIT);
    cluster.is(Phase::Queued);
    cluster.after(&Event::Down(false)).is_cancelled_for_waiting();
}

#[test]
fn a_booking_waits_from_its_time_on() {
    let mut cluster = full(DevServer::test());
    let booked = cluster.now.saturating_add(hours(72)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::stored(booked)));
    let cluster = cluster.for_a(hours(72) + LIMIT.saturating_sub(SECOND));
    cluster.is(Phase::Queued);
    cluster.for_a(SECOND).is_cancelled_for_waiting();
}

#[test]
fn whoever_ran_before_is_never_given_up() {
    let mut cluster = asleep(DevServer::test());
    (0..3).for_each(|at| cluster.silence(at));
    let mut cluster = cluster.after(&Event::Desire(Desired::Running)).for_a(hours(100));
    cluster.is(Phase::Queued);
    cluster.back(1);
    cluster.settle();
    cluster.is(Phase::Running);

    let mut cluster = running(DevServer::test().ephemeral("10Gi"));
    (0..3).for_each(|at| cluster.silence(at));
    let mut cluster = cluster.for_a(hours(100));
    cluster.is(Phase::Queued);
    cluster.back(2);
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn time_in_which_it_could_not_compete_is_not_held_against_it() {
    let cluster = queued().for_a(LIMIT.saturating_sub(hours(1))).after(&Event::FlavorGone).for_a(hours(2));
    cluster.is(Phase::Queued).says(Type::Accepted, "False", "UnknownFlavor", "");
    let mut cluster = cluster.after(&Event::FlavorBack).for_a(LIMIT.saturating_sub(hours(1)));
    cluster.is(Phase::Queued);
    cluster.back(0);
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn of_a_grant_and_the_limit_at_the_same_instant_one_wins() {
    let mut cluster = queued().for_a(LIMIT.saturating_sub(SECOND));
    cluster.run_clock_to(cluster.now.saturating_add(SECOND).unwrap());
    let (version, plan) = (cluster.version, cluster.decide());
    assert_eq!(plan.phase, Some(Phase::Cancelled));
    let status = plan.status.unwrap();

    // The queue looked a moment before, and was faster.
    let mut granted = cluster.clone();
    granted.back(0);
    granted.now = granted.now.saturating_sub(SECOND).unwrap();
    assert!(granted.queue());
    granted.now = cluster.now;
    assert!(matches!(granted.store(version, status.clone()), Ok(Answer::Conflict)));
    granted.settle();
    granted.is(Phase::Running);

    // The driver was faster, and from the limit on the queue gives nothing.
    cluster.back(0);
    assert!(!cluster.queue());
    assert!(matches!(cluster.store(version, status), Ok(Answer::Done)));
    cluster.settle();
    cluster.is_cancelled_for_waiting();
}
