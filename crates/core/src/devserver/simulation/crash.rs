//! Stop after each write and go on: the end is the same, and nothing was made or removed twice.

use std::collections::BTreeMap;
use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};

use super::Cluster;
use super::api::Fault;
use super::observer::Did;
use super::script::Event;

/// What counts in the end; times and uids do not.
#[derive(Debug, PartialEq)]
struct Ending {
    phase: Option<Phase>,
    deleted: bool,
    conditions: Vec<[String; 3]>,
    sleeps: Option<HibernationCause>,
    failure: Option<String>,
    run: i64,
    nodes: Vec<String>,
    ran: Option<i64>,
    pods: Vec<(String, String, bool)>,
    processes: usize,
    secret: bool,
    service: bool,
    counts: BTreeMap<Did, usize>,
}

fn ending(cluster: &Cluster) -> Ending {
    let status = cluster.status();
    let admission = status.admission.clone().unwrap_or_default();
    let conditions = status.conditions.iter();
    Ending {
        phase: status.phase,
        deleted: cluster.deleted,
        conditions: conditions
            .map(|one| [one.kind.as_str(), one.status.as_str(), one.reason.as_str()].map(str::to_owned))
            .collect(),
        sleeps: status.hibernation.map(|hibernation| hibernation.by),
        failure: status.last_failure.map(|failure| failure.reason.to_string()),
        run: admission.run,
        nodes: admission.nodes,
        ran: status.ran_seconds,
        pods: cluster
            .pods
            .iter()
            .map(|pod| (pod.seen.name.clone(), pod.pinned.clone(), pod.seen.deleting.is_some()))
            .collect(),
        processes: cluster.processes.len(),
        secret: cluster.secret.is_some(),
        service: cluster.service.is_some(),
        counts: cluster.observer.counts(),
    }
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// Plays `act` once without any fault, and then once for each of its writes and each thing that can go wrong there.
fn converges(before: &Cluster, act: impl Fn(&mut Cluster)) {
    converges_to(ending, before, act);
}

/// The same where a new operator may take its time: it spreads what it asks agents.
fn converges_in_time(before: &Cluster, act: impl Fn(&mut Cluster)) {
    converges_to(|cluster| Ending { ran: None, ..ending(cluster) }, before, act);
}

fn converges_to(ending: impl Fn(&Cluster) -> Ending, before: &Cluster, act: impl Fn(&mut Cluster)) {
    let run = |fault: Option<(usize, Fault)>| {
        let mut cluster = before.clone();
        cluster.observer.log.clear();
        cluster.fault = fault.map(|(after, fault)| (cluster.writes + after, fault));
        act(&mut cluster);
        cluster.pass(minutes(1));
        cluster
    };
    let reference = run(None);
    let writes = reference.writes - before.writes;
    assert!(writes > 0, "nothing was written");
    for number in 1..=writes {
        for fault in [Fault::Die, Fault::LoseAnswer, Fault::Refuse] {
            let cluster = run(Some((number, fault)));
            assert!(cluster.fault.is_none(), "write {number} was never made");
            let log = &cluster.observer.log;
            assert_eq!(ending(&cluster), ending(&reference), "{fault:?} at write {number} of {writes}: {log:?}");
        }
    }
}

fn disk() -> DevServer {
    DevServer::test()
}

fn gang() -> DevServer {
    DevServer::test().size("flavor-gpu", 1, 2)
}

fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.pass(minutes(5));
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster
}

/// With agents that answer, and know everything.
fn attended(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server).with_agents();
    cluster.pass(minutes(5));
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster
}

fn asleep(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.happen(&Event::Desire(Desired::Hibernated));
    cluster.pass(minutes(5));
    assert_eq!(cluster.phase(), Some(Phase::Hibernated));
    cluster
}

impl Cluster {
    fn happens(&mut self, events: &[Event]) {
        for event in events {
            self.happen(event);
        }
    }
}

/// What is done to a server, at once and by kubelets that take their time.
fn both_speeds(before: &Cluster, events: &[Event]) {
    converges(before, |cluster| {
        cluster.happens(events);
        cluster.settle();
    });
    converges(before, |cluster| {
        cluster.happens(events);
        for _ in 0..8 {
            cluster.tick(Duration::from_secs(2));
            cluster.kubelet();
        }
        cluster.settle();
    });
    let queue_first = Cluster { queue_first: true, ..before.clone() };
    converges(&queue_first, |cluster| {
        cluster.happens(events);
        cluster.settle();
    });
}

#[test]
fn a_server_is_created() {
    both_speeds(&Cluster::new(disk()), &[]);
    both_speeds(&Cluster::new(DevServer::test().ephemeral("10Gi")), &[]);
}

#[test]
fn a_gang_is_created() {
    both_speeds(&Cluster::new(gang()), &[]);
    both_speeds(&Cluster::new(DevServer::test().size("flavor-gpu", 1, 3)), &[]);
}

#[test]
fn it_hibernates() {
    for server in [disk(), gang()] {
        both_speeds(&running(server), &[Event::Desire(Desired::Hibernated)]);
    }
}

#[test]
fn it_gives_way_to_somebody_else() {
    for server in [disk(), gang()] {
        both_speeds(&running(server.clone()), &[Event::AskedAway(0)]);
        converges(&running(server), |cluster| {
            cluster.happens(&[Event::AskedAway(30)]);
            cluster.pass(minutes(1));
        });
    }
}

#[test]
fn idleness_puts_it_to_sleep() {
    // What the operator heard of the agent is lost with it, so the signal comes again until it was heard.
    for server in [disk(), gang()] {
        converges(&running(server), |cluster| {
            for _ in 0..3 {
                cluster.happen(&Event::Sleep(HibernationCause::Idle));
                cluster.settle();
            }
        });
    }
}

#[test]
fn nobody_uses_it_and_it_is_warned_and_put_to_sleep() {
    for server in [disk(), gang()] {
        converges_in_time(&attended(server), |cluster| {
            cluster.pass(minutes(60));
            assert_eq!(cluster.phase(), Some(Phase::Hibernated));
        });
    }
    // One that cannot keep its home is ended.
    converges_in_time(&attended(DevServer::test().ephemeral("10Gi")), |cluster| {
        cluster.pass(minutes(60));
        assert_eq!(cluster.phase(), Some(Phase::Cancelled));
    });
}

#[test]
fn whoever_comes_after_the_warning_keeps_it() {
    for server in [disk(), gang()] {
        let mut warned = attended(server);
        while condition::find(&warned.status().conditions, Type::Idle).is_none_or(|idle| idle.status != "True") {
            warned.pass(Duration::from_secs(10));
        }
        converges_in_time(&warned, |cluster| {
            cluster.pass(minutes(1));
            cluster.happen(&Event::Use);
            cluster.pass(minutes(28));
            assert_eq!(cluster.phase(), Some(Phase::Running));
            // Until it is quiet again for as long.
            cluster.pass(minutes(60));
            assert_eq!(cluster.phase(), Some(Phase::Hibernated));
        });
    }
}

#[test]
fn it_stops_with_agents_that_are_asked_first() {
    for server in [disk(), gang()] {
        let before = attended(server);
        both_speeds(&before, &[Event::Desire(Desired::Hibernated)]);
        both_speeds(&before, &[Event::Desire(Desired::Ended)]);
        converges(&before, |cluster| {
            cluster.happen(&Event::Desire(Desired::Hibernated));
            cluster.tick(Duration::from_secs(3));
            cluster.happen(&Event::Desire(Desired::Running));
            cluster.settle();
        });
    }
}

#[test]
fn it_wakes() {
    for server in [disk(), gang()] {
        both_speeds(&asleep(server), &[Event::Desire(Desired::Running)]);
    }
    let mut idle = running(disk());
    idle.happen(&Event::Sleep(HibernationCause::Idle));
    idle.settle();
    both_speeds(&idle, &[Event::Wake]);
}

#[test]
fn it_is_woken_while_it_falls_asleep() {
    for server in [disk(), gang()] {
        converges(&running(server), |cluster| {
            cluster.happen(&Event::Desire(Desired::Hibernated));
            cluster.tick(Duration::from_secs(3));
            cluster.happen(&Event::Desire(Desired::Running));
            cluster.settle();
        });
    }
}

#[test]
fn it_is_extended() {
    both_speeds(&running(disk()), &[Event::Lifetime(20 * 60)]);
}

#[test]
fn it_expires() {
    for server in [disk(), gang(), DevServer::test().ephemeral("10Gi")] {
        let mut cluster = running(server);
        cluster.pass(minutes(8 * 60 - 10));
        converges(&cluster, |cluster| cluster.pass(minutes(20)));
    }
}

#[test]
fn it_ends() {
    for server in [disk(), gang()] {
        both_speeds(&running(server.clone()), &[Event::Desire(Desired::Ended)]);
        both_speeds(&asleep(server), &[Event::Desire(Desired::Ended)]);
    }
}

#[test]
fn it_fails() {
    let mut cluster = Cluster::new(disk());
    cluster.image_trouble = Some("example.org/x:1: not found");
    cluster.observer.may_fail = true;
    both_speeds(&cluster, &[]);
}

#[test]
fn it_is_cleared_away_after_its_time() {
    let mut cluster = running(disk());
    cluster.happen(&Event::Desire(Desired::Ended));
    cluster.pass(minutes(5));
    converges(&cluster, |cluster| cluster.pass(minutes(24 * 60)));
}

#[test]
fn a_node_is_lost() {
    for server in
        [gang(), DevServer::test().ephemeral("10Gi"), DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")]
    {
        converges(&running(server), |cluster| {
            cluster.happen(&Event::Silence(0));
            cluster.pass(minutes(30));
        });
    }
}

#[test]
fn a_node_is_lost_and_comes_back_or_is_removed() {
    for server in [disk(), gang()] {
        for last in [Event::Back(0), Event::RemoveNode(0)] {
            converges(&running(server.clone()), |cluster| {
                cluster.happen(&Event::Silence(0));
                cluster.pass(minutes(30));
                cluster.happen(&last);
                cluster.pass(minutes(5));
            });
        }
    }
}

#[test]
fn a_pod_is_deleted_by_hand_or_sent_away() {
    for server in [disk(), gang()] {
        for event in [Event::DeletePod(0), Event::Evict(0), Event::StripOwner(0), Event::ContainerDies(0)] {
            let mut cluster = running(server.clone());
            cluster.pass(minutes(3 * 60));
            if event == Event::ContainerDies(0) {
                // Nothing of ours is needed for that but to tell of it.
                converges(&cluster, |cluster| {
                    cluster.happen(&event);
                    cluster.tick(Duration::from_secs(2));
                    cluster.settle();
                });
            } else {
                both_speeds(&cluster, &[event]);
            }
        }
    }
}

#[test]
fn a_service_is_deleted_or_edited() {
    for event in [Event::ServiceGone, Event::ServiceEdited] {
        both_speeds(&running(gang()), &[event]);
    }
}
