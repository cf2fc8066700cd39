//! Concurrent writes of the owner and the operator: exactly one takes effect.

use std::time::Duration;

use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};

use super::Cluster;
use super::event::Event;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.pass(minutes(1));
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster
}

/// Runs `act` once for each of its writes, with `event` right before that write, and once with it after the last.
fn at_every_write(before: &Cluster, event: &Event, act: impl Fn(&mut Cluster), check: impl Fn(&Cluster, usize)) {
    let mut reference = before.clone();
    act(&mut reference);
    let writes = reference.writes - before.writes;
    assert!(writes > 0, "no writes");
    for number in 1..=writes + 1 {
        let mut cluster = before.clone();
        cluster.interleaved = Some((cluster.writes + number, event.clone()));
        act(&mut cluster);
        if let Some((_, event)) = cluster.interleaved.take() {
            cluster.apply(&event);
        }
        cluster.pass(minutes(5));
        check(&cluster, number);
    }
}

#[test]
fn either_extension_or_expiry_takes_effect() {
    for server in [DevServer::test(), DevServer::test().size("flavor-gpu", 1, 2)] {
        let mut cluster = running(server);
        cluster.pass(minutes(8 * 60));
        let expire = |cluster: &mut Cluster| cluster.pass(minutes(10));
        let requested = "1200m".parse().unwrap();
        at_every_write(&cluster, &Event::Lifetime(1200), expire, |cluster, number| {
            let extended = cluster.server().spec.lifetime == requested;
            let expect = if extended { Phase::Running } else { Phase::Expired };
            assert_eq!(cluster.phase(), Some(expect), "at write {number}: {:?}", cluster.observer.log);
            // An extended server keeps its pods.
            assert_eq!(cluster.processes.is_empty(), !extended);
            let expires = cluster.status().expires_at;
            assert_eq!(expires.is_some(), extended);
        });
        at_every_write(&cluster, &Event::Lifetime(1200), expire, |cluster, number| {
            // Only an edit before the first write, which stores the cause, takes effect.
            assert_eq!(cluster.server().spec.lifetime == requested, number == 1);
        });
    }
}

#[test]
fn extension_within_grace_keeps_server() {
    let mut cluster = running(DevServer::test());
    cluster.pass(minutes(8 * 60 - 1));
    cluster.tick(Duration::from_secs(100));
    cluster.apply(&Event::Lifetime(9 * 60));
    cluster.pass(minutes(30));
    assert_eq!(cluster.phase(), Some(Phase::Running));
}

#[test]
fn deletion_takes_effect_unless_expiry_has_begun() {
    let event = Event::Desire(Desired::Ended);
    let cancelled = |cluster: &Cluster, number: usize| {
        assert_eq!(cluster.phase(), Some(Phase::Cancelled), "at write {number}: {:?}", cluster.observer.log);
        assert!(cluster.processes.is_empty() && cluster.pods.is_empty());
    };
    at_every_write(&Cluster::new(DevServer::test()), &event, |cluster| cluster.pass(minutes(1)), cancelled);
    let hibernate = |cluster: &mut Cluster| {
        cluster.apply(&Event::Desire(Desired::Hibernated));
        cluster.settle();
    };
    at_every_write(&running(DevServer::test()), &event, hibernate, cancelled);
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
fn wake_is_never_lost() {
    for cause in [HibernationCause::Idle, HibernationCause::Drain] {
        for server in [DevServer::test(), DevServer::test().size("flavor-gpu", 1, 2)] {
            let hibernate = |cluster: &mut Cluster| {
                cluster.apply(&Event::Hibernate(cause));
                cluster.settle();
            };
            at_every_write(&running(server), &Event::Wake, hibernate, |cluster, number| {
                let log = &cluster.observer.log;
                if number == 1 && cluster.phase() == Some(Phase::Hibernated) {
                    // The wake was written before the decision to hibernate, which observed it.
                    assert_eq!(cluster.status().hibernation.unwrap().observed_wake, cluster.server().spec.wake);
                    return;
                }
                assert_eq!(cluster.phase(), Some(Phase::Running), "at write {number}: {log:?}");
            });
        }
    }
}

#[test]
fn resume_during_hibernation_is_never_lost() {
    let hibernate = |cluster: &mut Cluster| {
        cluster.apply(&Event::Desire(Desired::Hibernated));
        cluster.settle();
    };
    at_every_write(&running(DevServer::test()), &Event::Desire(Desired::Running), hibernate, |cluster, number| {
        assert_eq!(cluster.phase(), Some(Phase::Running), "at write {number}: {:?}", cluster.observer.log);
    });
}

#[test]
fn hibernation_during_start_takes_effect() {
    let hibernate = Event::Desire(Desired::Hibernated);
    at_every_write(
        &Cluster::new(DevServer::test()),
        &hibernate,
        |cluster| cluster.pass(minutes(1)),
        |cluster, number| {
            assert_eq!(cluster.phase(), Some(Phase::Hibernated), "at write {number}: {:?}", cluster.observer.log);
            assert!(cluster.processes.is_empty());
        },
    );
}
