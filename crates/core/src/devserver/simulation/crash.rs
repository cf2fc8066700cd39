//! Crashes and failures at each write: the result is the same, and no object is created or deleted twice.

use std::collections::BTreeMap;
use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Desired, DevServer, HibernationCause, Phase};

use super::Cluster;
use super::api::Fault;
use super::event::Event;
use super::observer::Effect;

/// The final state without times and uids.
#[derive(Debug, PartialEq)]
struct FinalState {
    phase: Option<Phase>,
    deleted: bool,
    conditions: Vec<[String; 3]>,
    hibernation: Option<HibernationCause>,
    failure: Option<String>,
    run: i64,
    nodes: Vec<String>,
    ran: Option<i64>,
    pods: Vec<(String, String, bool)>,
    processes: usize,
    secret: bool,
    service: bool,
    counts: BTreeMap<Effect, usize>,
}

fn final_state(cluster: &Cluster) -> FinalState {
    let status = cluster.status();
    let admission = status.admission.clone().unwrap_or_default();
    let conditions = status.conditions.iter();
    FinalState {
        phase: status.phase,
        deleted: cluster.deleted,
        conditions: conditions
            .map(|one| [one.kind.as_str(), one.status.as_str(), one.reason.as_str()].map(str::to_owned))
            .collect(),
        hibernation: status.hibernation.map(|hibernation| hibernation.cause),
        failure: status.last_failure.map(|failure| failure.reason.to_string()),
        run: admission.run,
        nodes: admission.nodes,
        ran: status.accumulated_run_seconds,
        pods: cluster
            .pods
            .iter()
            .map(|pod| (pod.object.name.clone(), pod.pinned.clone(), pod.object.deletion_timestamp.is_some()))
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

/// Runs `act` without faults, and then once for each of its writes and each kind of fault.
fn converges(before: &Cluster, act: impl Fn(&mut Cluster)) {
    converges_to(final_state, before, act);
}

/// As [`converges`], but ignores the run time: a restarted operator polls agents with a jitter.
fn converges_eventually(before: &Cluster, act: impl Fn(&mut Cluster)) {
    converges_to(|cluster| FinalState { ran: None, ..final_state(cluster) }, before, act);
}

fn converges_to(state: impl Fn(&Cluster) -> FinalState, before: &Cluster, act: impl Fn(&mut Cluster)) {
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
    assert!(writes > 0, "no writes");
    for number in 1..=writes {
        for fault in [Fault::Crash, Fault::LoseReply, Fault::Reject] {
            let cluster = run(Some((number, fault)));
            assert!(cluster.fault.is_none(), "write {number} did not happen");
            let log = &cluster.observer.log;
            assert_eq!(state(&cluster), state(&reference), "{fault:?} at write {number} of {writes}: {log:?}");
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

/// With reachable agents.
fn running_with_agents(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server).with_agents();
    cluster.pass(minutes(5));
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster
}

fn hibernated(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.apply(&Event::Desire(Desired::Hibernated));
    cluster.pass(minutes(5));
    assert_eq!(cluster.phase(), Some(Phase::Hibernated));
    cluster
}

impl Cluster {
    fn apply_all(&mut self, events: &[Event]) {
        for event in events {
            self.apply(event);
        }
    }
}

/// Applies events with fast kubelets, with slow kubelets, and with the scheduler running first.
fn converges_at_any_speed(before: &Cluster, events: &[Event]) {
    converges(before, |cluster| {
        cluster.apply_all(events);
        cluster.settle();
    });
    converges(before, |cluster| {
        cluster.apply_all(events);
        for _ in 0..8 {
            cluster.tick(Duration::from_secs(2));
            cluster.kubelet();
        }
        cluster.settle();
    });
    let scheduler_first = Cluster { scheduler_first: true, ..before.clone() };
    converges(&scheduler_first, |cluster| {
        cluster.apply_all(events);
        cluster.settle();
    });
}

#[test]
fn creation_converges() {
    converges_at_any_speed(&Cluster::new(disk()), &[]);
    converges_at_any_speed(&Cluster::new(DevServer::test().ephemeral("10Gi")), &[]);
}

#[test]
fn creation_of_gang_converges() {
    converges_at_any_speed(&Cluster::new(gang()), &[]);
    converges_at_any_speed(&Cluster::new(DevServer::test().size("flavor-gpu", 1, 3)), &[]);
}

#[test]
fn hibernation_converges() {
    for server in [disk(), gang()] {
        converges_at_any_speed(&running(server), &[Event::Desire(Desired::Hibernated)]);
    }
}

#[test]
fn preemption_converges() {
    for server in [disk(), gang()] {
        converges_at_any_speed(&running(server.clone()), &[Event::Preempt(0)]);
        converges(&running(server), |cluster| {
            cluster.apply_all(&[Event::Preempt(30)]);
            cluster.pass(minutes(1));
        });
    }
}

#[test]
fn requested_hibernation_converges() {
    // The request is in memory only, so it is repeated until it is stored.
    for server in [disk(), gang()] {
        converges(&running(server), |cluster| {
            for _ in 0..3 {
                cluster.apply(&Event::Hibernate(HibernationCause::Idle));
                cluster.settle();
            }
        });
    }
}

#[test]
fn idle_hibernation_converges_after_warning() {
    for server in [disk(), gang()] {
        converges_eventually(&running_with_agents(server), |cluster| {
            cluster.pass(minutes(60));
            assert_eq!(cluster.phase(), Some(Phase::Hibernated));
        });
    }
    // A server with an ephemeral home ends.
    converges_eventually(&running_with_agents(DevServer::test().ephemeral("10Gi")), |cluster| {
        cluster.pass(minutes(60));
        assert_eq!(cluster.phase(), Some(Phase::Cancelled));
    });
}

#[test]
fn activity_after_warning_keeps_server_running() {
    for server in [disk(), gang()] {
        let mut warned = running_with_agents(server);
        while condition::find(&warned.status().conditions, Type::Idle).is_none_or(|idle| idle.status != "True") {
            warned.pass(Duration::from_secs(10));
        }
        converges_eventually(&warned, |cluster| {
            cluster.pass(minutes(1));
            cluster.apply(&Event::Activity);
            cluster.pass(minutes(28));
            assert_eq!(cluster.phase(), Some(Phase::Running));
            // Idle again.
            cluster.pass(minutes(60));
            assert_eq!(cluster.phase(), Some(Phase::Hibernated));
        });
    }
}

#[test]
fn stop_with_agents_converges() {
    for server in [disk(), gang()] {
        let before = running_with_agents(server);
        converges_at_any_speed(&before, &[Event::Desire(Desired::Hibernated)]);
        converges_at_any_speed(&before, &[Event::Desire(Desired::Ended)]);
        converges(&before, |cluster| {
            cluster.apply(&Event::Desire(Desired::Hibernated));
            cluster.tick(Duration::from_secs(3));
            cluster.apply(&Event::Desire(Desired::Running));
            cluster.settle();
        });
    }
}

#[test]
fn wake_converges() {
    for server in [disk(), gang()] {
        converges_at_any_speed(&hibernated(server), &[Event::Desire(Desired::Running)]);
    }
    let mut idle = running(disk());
    idle.apply(&Event::Hibernate(HibernationCause::Idle));
    idle.settle();
    converges_at_any_speed(&idle, &[Event::Wake]);
}

#[test]
fn wake_while_hibernating_converges() {
    for server in [disk(), gang()] {
        converges(&running(server), |cluster| {
            cluster.apply(&Event::Desire(Desired::Hibernated));
            cluster.tick(Duration::from_secs(3));
            cluster.apply(&Event::Desire(Desired::Running));
            cluster.settle();
        });
    }
}

#[test]
fn extension_converges() {
    converges_at_any_speed(&running(disk()), &[Event::Lifetime(20 * 60)]);
}

#[test]
fn expiry_converges() {
    for server in [disk(), gang(), DevServer::test().ephemeral("10Gi")] {
        let mut cluster = running(server);
        cluster.pass(minutes(8 * 60 - 10));
        converges(&cluster, |cluster| cluster.pass(minutes(20)));
    }
}

#[test]
fn end_converges() {
    for server in [disk(), gang()] {
        converges_at_any_speed(&running(server.clone()), &[Event::Desire(Desired::Ended)]);
        converges_at_any_speed(&hibernated(server), &[Event::Desire(Desired::Ended)]);
    }
}

#[test]
fn failure_converges() {
    let mut cluster = Cluster::new(disk());
    cluster.image_error = Some("example.org/x:1: not found");
    cluster.observer.may_fail = true;
    converges_at_any_speed(&cluster, &[]);
}

#[test]
fn deletion_after_ttl_converges() {
    let mut cluster = running(disk());
    cluster.apply(&Event::Desire(Desired::Ended));
    cluster.pass(minutes(5));
    converges(&cluster, |cluster| cluster.pass(minutes(24 * 60)));
}

#[test]
fn loss_of_node_converges() {
    for server in
        [gang(), DevServer::test().ephemeral("10Gi"), DevServer::test().size("flavor-gpu", 1, 2).ephemeral("1Gi")]
    {
        converges(&running(server), |cluster| {
            cluster.apply(&Event::LoseContact(0));
            cluster.pass(minutes(30));
        });
    }
}

#[test]
fn loss_of_node_that_recovers_or_is_deleted_converges() {
    for server in [disk(), gang()] {
        for last in [Event::Recover(0), Event::DeleteNode(0)] {
            converges(&running(server.clone()), |cluster| {
                cluster.apply(&Event::LoseContact(0));
                cluster.pass(minutes(30));
                cluster.apply(&last);
                cluster.pass(minutes(5));
            });
        }
    }
}

#[test]
fn deletion_or_eviction_of_pod_converges() {
    for server in [disk(), gang()] {
        for event in [Event::DeletePod(0), Event::EvictPod(0), Event::OrphanPod(0), Event::CrashContainer(0)] {
            let mut cluster = running(server.clone());
            cluster.pass(minutes(3 * 60));
            if event == Event::CrashContainer(0) {
                // Only the status changes.
                converges(&cluster, |cluster| {
                    cluster.apply(&event);
                    cluster.tick(Duration::from_secs(2));
                    cluster.settle();
                });
            } else {
                converges_at_any_speed(&cluster, &[event]);
            }
        }
    }
}

#[test]
fn deletion_or_edit_of_service_converges() {
    for event in [Event::DeleteService, Event::EditService] {
        converges_at_any_speed(&running(gang()), &[event]);
    }
}
