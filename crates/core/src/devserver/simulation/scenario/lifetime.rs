//! Lifetime, expiry and bookings.

use super::*;

#[test]
fn lifetime_is_exact_across_hibernation_and_restarts() {
    let mut cluster = running(DevServer::test());
    for _ in 0..3 {
        cluster = cluster.after_time(hours(1)).after_event(&Event::Desire(Desired::Hibernated)).after_time(hours(7));
        cluster.operator.crash();
        cluster = cluster.after_event(&Event::Desire(Desired::Running)).after_time(minutes(30));
        cluster.operator.crash();
        cluster = cluster.after_event(&Event::DeletePod(0)).after_time(minutes(30));
    }
    assert_eq!(cluster.observer.ran, hours(6));
    let expires = cluster.status().expires_at.unwrap().0;
    assert_eq!(cluster.now.duration_until(expires).as_secs(), 2 * 3_600);
    let cluster = cluster.after_time(hours(2) + Duration::from_secs(119));
    cluster.is(Phase::Running).has_condition(Type::Expiring, "True", "ExpiringSoon", "will be stopped");
    cluster.after_time(Duration::from_secs(1)).is(Phase::Expired);
}

#[test]
fn expiring_condition_passes_through_stages() {
    let cluster = running(DevServer::test()).after_time(hours(7));
    cluster.has_condition(Type::Expiring, "False", "LifetimeRemaining", "");
    let mut cluster = cluster.after_time(minutes(30));
    cluster.has_condition(Type::Expiring, "True", "ExpiringSoon", "within 30m");
    // The stages continue while a container restarts.
    cluster.crash_container(0, "Error");
    cluster.tick(minutes(30));
    cluster.has_condition(Type::Expiring, "True", "ExpiringSoon", "will be stopped");
    cluster.tick(minutes(2));
    cluster.is(Phase::Stopping).has_condition(Type::Expiring, "True", "LifetimeExceeded", "");
    cluster.settle();
    cluster.is(Phase::Expired);
}

#[test]
fn expiry_in_progress_stays_expiry_whatever_conditions_and_spec_say() {
    let mut cluster = running(DevServer::test()).after_time(hours(8));
    cluster.tick(minutes(2));
    cluster.is(Phase::Stopping).is_stopping_for(StopCause::Expired);
    cluster.request.server.status.as_mut().unwrap().conditions.clear();
    cluster.touch();
    let cluster = cluster.after_event(&Event::Desire(Desired::Ended));
    cluster.is(Phase::Expired);
    assert_eq!(cluster.status().stopping, None);
}

#[test]
fn expiring_event_is_published_once_per_expiry() {
    let cluster = running(DevServer::test()).after_time(minutes(7 * 60 + 29));
    assert_eq!(cluster.observer.warnings, [] as [&str; 0]);
    let mut cluster = cluster.after_time(minutes(1));
    let first = "Expires at 1970-01-12T21:46:40Z. Raise spec.lifetime to extend it.";
    assert_eq!(cluster.observer.warnings, [first]);
    // Neither the next stage nor an operator restart repeats it.
    cluster.operator.crash();
    let cluster = cluster.after_time(minutes(31));
    cluster.has_condition(Type::Expiring, "True", "ExpiringSoon", "will be stopped");
    assert_eq!(cluster.observer.warnings.len(), 1);
    let cluster = cluster.after_event(&Event::Lifetime(9 * 60));
    cluster.has_condition(Type::Expiring, "False", "LifetimeRemaining", "");
    let cluster = cluster.after_time(minutes(29));
    let second = "Expires at 1970-01-12T22:46:40Z. Raise spec.lifetime to extend it.";
    assert_eq!(cluster.observer.warnings, [first, second]);
    // A stop has its own event.
    let cluster = cluster.after_time(hours(1));
    cluster.is(Phase::Expired);
    assert_eq!(cluster.observer.warnings.len(), 2);
}

#[test]
fn expiry_during_operator_downtime_takes_effect_afterwards() {
    let cluster = running(DevServer::test()).after_event(&Event::SetOperatorDown(true)).after_time(hours(20));
    cluster.is(Phase::Running);
    cluster.after_event(&Event::SetOperatorDown(false)).is(Phase::Expired);
}

#[test]
fn start_timeout_does_not_include_operator_downtime() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.interleaved = None;
    cluster.work();
    cluster.pods.clear();
    cluster.apply(&Event::SetOperatorDown(true));
    cluster.pass(hours(5));
    cluster.after_event(&Event::SetOperatorDown(false)).is(Phase::Running);
}

#[test]
fn initially_rejected_server_is_subject_to_lifetime_limits() {
    let mut cluster = Cluster::new(DevServer::test().lifetime("100h"));
    cluster.apply(&Event::DeleteFlavor);
    let mut cluster = cluster.after_time(minutes(1));
    cluster.is(Phase::Pending).has_condition(Type::Accepted, "False", "FlavorNotFound", "");
    let limited = DevServerFlavor::test().limits("24h", "12h", "48h").spec;
    cluster.set_flavor(|flavor| *flavor = limited);
    cluster.settle();
    cluster.is(Phase::Running);
    assert_eq!(cluster.status().lifetime.unwrap().granted, "24h".parse().unwrap());
}

#[test]
fn extension_without_flavor_is_granted_when_flavor_is_restored() {
    let cluster = running(DevServer::test()).after_event(&Event::DeleteFlavor).after_event(&Event::Lifetime(20 * 60));
    assert_eq!(cluster.status().lifetime.unwrap().granted, "8h".parse().unwrap());
    let cluster = cluster.after_event(&Event::RestoreFlavor);
    assert_eq!(cluster.status().lifetime.unwrap().granted, "20h".parse().unwrap());
}

#[test]
fn booked_server_starts_at_start_time() {
    let mut cluster = Cluster::new(DevServer::test());
    let booked = cluster.now.saturating_add(hours(3)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::to_api_precision(booked)));
    let cluster = cluster.after_time(Duration::from_secs(3 * 3_600 - 1));
    cluster.is(Phase::Queued).has_condition(Type::Admitted, "False", "Booked", "Booking not confirmed");
    cluster.cost(&[Status(Phase::Queued)]);
    cluster.after_time(Duration::from_secs(1)).is(Phase::Running);
}

#[test]
fn booked_server_is_queued_if_cluster_is_full() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|index| cluster.lose_contact(index));
    let booked = cluster.now.saturating_add(minutes(5)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::to_api_precision(booked)));
    let cluster = cluster.after_time(minutes(5));
    cluster.is(Phase::Queued).has_condition(Type::Admitted, "False", "InsufficientCapacity", "Insufficient nodes");
}

#[test]
fn message_of_booked_server_follows_queue_after_start_time() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|index| cluster.lose_contact(index));
    let mut cluster = cluster.after_time(minutes(5));
    cluster.has_condition(Type::Admitted, "False", "InsufficientCapacity", "");
    let booked = cluster.now.saturating_add(hours(3)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::to_api_precision(booked)));
    let cluster = cluster.after_time(hours(2));
    cluster.has_condition(Type::Admitted, "False", "Booked", "");
    cluster.after_time(hours(1)).has_condition(Type::Admitted, "False", "InsufficientCapacity", "");
}
