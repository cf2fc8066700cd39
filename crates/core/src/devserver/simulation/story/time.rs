//! How long a server runs.

use super::*;

#[test]
fn the_lifetime_is_exact_over_sleep_and_restarts() {
    let mut cluster = running(DevServer::test());
    for _ in 0..3 {
        cluster = cluster.for_a(hours(1)).after(&Event::Desire(Desired::Hibernated)).for_a(hours(7));
        cluster.operator.die();
        cluster = cluster.after(&Event::Desire(Desired::Running)).for_a(minutes(30));
        cluster.operator.die();
        cluster = cluster.after(&Event::DeletePod(0)).for_a(minutes(30));
    }
    assert_eq!(cluster.observer.ran, hours(6));
    let expires = cluster.status().expires_at.unwrap().0;
    assert_eq!(cluster.now.duration_until(expires).as_secs(), 2 * 3_600);
    let cluster = cluster.for_a(hours(2) + Duration::from_secs(119));
    cluster.is(Phase::Running).says(Type::Expiring, "True", "EndsSoon", "about to stop");
    cluster.for_a(Duration::from_secs(1)).is(Phase::Expired);
}

#[test]
fn the_end_of_its_time_is_told_in_stages() {
    let cluster = running(DevServer::test()).for_a(hours(7));
    cluster.says(Type::Expiring, "False", "TimeLeft", "");
    let mut cluster = cluster.for_a(minutes(30));
    cluster.says(Type::Expiring, "True", "EndsSoon", "within half an hour");
    // The stages go on while a container is being started again.
    cluster.container_dies(0, "Error");
    cluster.tick(minutes(30));
    cluster.says(Type::Expiring, "True", "EndsSoon", "about to stop");
    cluster.tick(minutes(2));
    cluster.is(Phase::Stopping).says(Type::Expiring, "True", "LifetimeUsedUp", "");
    cluster.settle();
    cluster.is(Phase::Expired);
}

#[test]
fn that_its_end_is_near_is_an_event_each_time_it_comes_near() {
    let cluster = running(DevServer::test()).for_a(minutes(7 * 60 + 29));
    assert_eq!(cluster.observer.warnings, [] as [&str; 0]);
    let mut cluster = cluster.for_a(minutes(1));
    let first = "Came near its end: it expires at 1970-01-12T21:46:40Z; raise spec.lifetime to extend it.";
    assert_eq!(cluster.observer.warnings, [first]);
    // Nobody repeats it: not the next stage, and not the next operator.
    cluster.operator.die();
    let cluster = cluster.for_a(minutes(31));
    cluster.says(Type::Expiring, "True", "EndsSoon", "about to stop");
    assert_eq!(cluster.observer.warnings.len(), 1);
    let cluster = cluster.after(&Event::Lifetime(9 * 60));
    cluster.says(Type::Expiring, "False", "TimeLeft", "");
    let cluster = cluster.for_a(minutes(29));
    let second = "Came near its end: it expires at 1970-01-12T22:46:40Z; raise spec.lifetime to extend it.";
    assert_eq!(cluster.observer.warnings, [first, second]);
    // A stop is told as such.
    let cluster = cluster.for_a(hours(1));
    cluster.is(Phase::Expired);
    assert_eq!(cluster.observer.warnings.len(), 2);
}

#[test]
fn an_operator_that_was_away_over_the_end_ends_it_when_it_is_back() {
    let cluster = running(DevServer::test()).after(&Event::Down(true)).for_a(hours(20));
    cluster.is(Phase::Running);
    cluster.after(&Event::Down(false)).is(Phase::Expired);
}

#[test]
fn an_operator_that_was_away_over_a_start_gives_it_its_time() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.between = None;
    cluster.work();
    cluster.pods.clear();
    cluster.happen(&Event::Down(true));
    cluster.pass(hours(5));
    cluster.after(&Event::Down(false)).is(Phase::Running);
}

#[test]
fn a_server_that_was_refused_at_first_gets_no_more_time_than_others() {
    let mut cluster = Cluster::new(DevServer::test().lifetime("100h"));
    cluster.happen(&Event::FlavorGone);
    let mut cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Pending).says(Type::Accepted, "False", "UnknownFlavor", "");
    let limited = DevServerFlavor::test().limits("24h", "12h", "48h").spec;
    cluster.flavor_is(|flavor| *flavor = limited);
    cluster.settle();
    cluster.is(Phase::Running);
    assert_eq!(cluster.status().lifetime.unwrap().granted, "24h".parse().unwrap());
}

#[test]
fn an_extension_asked_while_the_flavor_is_gone_is_granted_when_it_is_back() {
    let cluster = running(DevServer::test()).after(&Event::FlavorGone).after(&Event::Lifetime(20 * 60));
    assert_eq!(cluster.status().lifetime.unwrap().granted, "8h".parse().unwrap());
    let cluster = cluster.after(&Event::FlavorBack);
    assert_eq!(cluster.status().lifetime.unwrap().granted, "20h".parse().unwrap());
}

#[test]
fn a_booking_begins_at_its_time() {
    let mut cluster = Cluster::new(DevServer::test());
    let booked = cluster.now.saturating_add(hours(3)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::stored(booked)));
    let cluster = cluster.for_a(Duration::from_secs(3 * 3_600 - 1));
    cluster.is(Phase::Queued).says(Type::Admitted, "False", "Booked", "has not come");
    cluster.cost(&[Status(Phase::Queued)]);
    cluster.for_a(Duration::from_secs(1)).is(Phase::Running);
}

#[test]
fn a_booking_that_meets_a_full_cluster_waits_in_the_queue() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|at| cluster.silence(at));
    let booked = cluster.now.saturating_add(minutes(5)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::stored(booked)));
    let cluster = cluster.for_a(minutes(5));
    cluster.is(Phase::Queued).says(Type::Admitted, "False", "InsufficientCapacity", "Too few nodes");
}

#[test]
fn a_booking_that_was_explained_before_tells_of_the_queue_by_itself() {
    let mut cluster = Cluster::new(DevServer::test());
    (0..3).for_each(|at| cluster.silence(at));
    let mut cluster = cluster.for_a(minutes(5));
    cluster.says(Type::Admitted, "False", "InsufficientCapacity", "");
    let booked = cluster.now.saturating_add(hours(3)).unwrap();
    cluster.edit(|spec| spec.scheduling.not_before = Some(odc_api::time::stored(booked)));
    let cluster = cluster.for_a(hours(2));
    cluster.says(Type::Admitted, "False", "Booked", "");
    cluster.for_a(hours(1)).says(Type::Admitted, "False", "InsufficientCapacity", "");
}
