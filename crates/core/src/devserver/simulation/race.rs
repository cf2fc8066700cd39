//! Two who write at the same instant: whatever the order, there is one winner, and it is the one who was told so.

use std::time::Duration;

use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};

use super::Cluster;
use super::script::Event;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.pass(minutes(1));
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster
}

/// Plays `act` once for each of its writes, with `event` right before it, and once with it after the last.
fn at_every_write(before: &Cluster, event: &Event, act: impl Fn(&mut Cluster), check: impl Fn(&Cluster, usize)) {
    let mut reference = before.clone();
    act(&mut reference);
    let writes = reference.writes - before.writes;
    assert!(writes > 0, "nothing was written");
    for number in 1..=writes + 1 {
        let mut cluster = before.clone();
        cluster.between = Some((cluster.writes + number, event.clone()));
        act(&mut cluster);
        if let Some((_, event)) = cluster.between.take() {
            cluster.happen(&event);
        }
        cluster.pass(minutes(5));
        check(&cluster, number);
    }
}

#[test]
fn an_extension_and_an_expiry_have_one_winner() {
    for server in [DevServer::test(), DevServer::test().size("flavor-gpu", 1, 2)] {
        let mut cluster = running(server);
        cluster.pass(minutes(8 * 60));
        let expire = |cluster: &mut Cluster| cluster.pass(minutes(10));
        let asked = "1200m".parse().unwrap();
        at_every_write(&cluster, &Event::Lifetime(1200), expire, |cluster, number| {
            let extended = cluster.server().spec.lifetime == asked;
            let expect = if extended { Phase::Running } else { Phase::Expired };
            assert_eq!(cluster.phase(), Some(expect), "at write {number}: {:?}", cluster.observer.log);
            // Who keeps it has it for the whole time, and lost no pod on the way.
            assert_eq!(cluster.processes.is_empty(), !extended);
            let expires = cluster.status().expires_at;
            assert_eq!(expires.is_some(), extended);
        });
        at_every_write(&cluster, &Event::Lifetime(1200), expire, |cluster, number| {
            // Only the first write, the intent, can be beaten.
            assert_eq!(cluster.server().spec.lifetime == asked, number == 1);
        });
    }
}

#[test]
fn an_extension_in_the_grace_keeps_the_server() {
    let mut cluster = running(DevServer::test());
    cluster.pass(minutes(8 * 60 - 1));
    cluster.tick(Duration::from_secs(100));
    cluster.happen(&Event::Lifetime(9 * 60));
    cluster.pass(minutes(30));
    assert_eq!(cluster.phase(), Some(Phase::Running));
}

#[test]
fn an_end_wins_over_everything_but_an_expiry_under_way() {
    let event = Event::Desire(Desired::Ended);
    let cancelled = |cluster: &Cluster, number: usize| {
        assert_eq!(cluster.phase(), Some(Phase::Cancelled), "at write {number}: {:?}", cluster.observer.log);
        assert!(cluster.processes.is_empty() && cluster.pods.is_empty());
    };
    at_every_write(&Cluster::new(DevServer::test()), &event, |cluster| cluster.pass(minutes(1)), cancelled);
    let sleep = |cluster: &mut Cluster| {
        cluster.happen(&Event::Desire(Desired::Hibernated));
        cluster.settle();
    };
    at_every_write(&running(DevServer::test()), &event, sleep, cancelled);
    let mut late = running(DevServer::test());
    late.pass(minutes(8 * 60));
    at_every_write(
        &late,
        &event,
        |cluster| cluster.pass(minutes(10)),
        |cluster, number| {
            let expect = if number == 1 { Phase::Cancelled } else { Phase::Expired };
            assert_eq!(cluster.phase(), Some(expect), "at write {number}");
        },
    );
}

#[test]
fn a_wake_is_never_lost() {
    for cause in [HibernationCause::Idle, HibernationCause::Drain] {
        for server in [DevServer::test(), DevServer::test().size("flavor-gpu", 1, 2)] {
            let sleep = |cluster: &mut Cluster| {
                cluster.happen(&Event::Sleep(cause));
                cluster.settle();
            };
            at_every_write(&running(server), &Event::Wake, sleep, |cluster, number| {
                let log = &cluster.observer.log;
                if number == 1 && cluster.phase() == Some(Phase::Hibernated) {
                    // Written before anybody decided that it sleeps: the sleep knows of it.
                    assert_eq!(cluster.status().hibernation.unwrap().wake_seen, cluster.server().spec.wake);
                    return;
                }
                assert_eq!(cluster.phase(), Some(Phase::Running), "at write {number}: {log:?}");
            });
        }
    }
}

#[test]
fn calling_it_back_is_never_lost() {
    let sleep = |cluster: &mut Cluster| {
        cluster.happen(&Event::Desire(Desired::Hibernated));
        cluster.settle();
    };
    at_every_write(&running(DevServer::test()), &Event::Desire(Desired::Running), sleep, |cluster, number| {
        assert_eq!(cluster.phase(), Some(Phase::Running), "at write {number}: {:?}", cluster.observer.log);
    });
}

#[test]
fn sleep_while_it_starts_is_sleep() {
    let sleep = Event::Desire(Desired::Hibernated);
    at_every_write(
        &Cluster::new(DevServer::test()),
        &sleep,
        |cluster| cluster.pass(minutes(1)),
        |cluster, number| {
            assert_eq!(cluster.phase(), Some(Phase::Hibernated), "at write {number}: {:?}", cluster.observer.log);
            assert!(cluster.processes.is_empty());
        },
    );
}
