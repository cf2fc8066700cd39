//! Stories: what a server goes through, what is told of it, and what it costs in writes.

use std::time::Duration;

use odc_api::v1alpha1::condition::{self, Type};
use odc_api::v1alpha1::{Desired, DevServer, DevServerFlavor, HibernationCause, Phase};

use super::observer::Did::{self, Change, Create, Delete, Explain, Grant, Release, Revoke, Status};
use super::script::Event;
use super::{Cluster, Pod, Secret};
use crate::object::Kind;
use crate::seen;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn hours(hours: u64) -> Duration {
    minutes(60 * hours)
}

fn gang() -> DevServer {
    DevServer::test().size("flavor-gpu", 1, 2)
}

/// Ready at once, and nothing of that in the log.
fn running(server: DevServer) -> Cluster {
    let mut cluster = Cluster::new(server);
    cluster.settle();
    assert_eq!(cluster.phase(), Some(Phase::Running));
    cluster.observer.log.clear();
    cluster
}

fn asleep(server: DevServer) -> Cluster {
    let mut cluster = running(server);
    cluster.happen(&Event::Desire(Desired::Hibernated));
    cluster.settle();
    cluster.observer.log.clear();
    cluster
}

fn secret() -> String {
    "server-1-keys".into()
}

fn pod(ordinal: usize) -> String {
    format!("server-1-{ordinal}")
}

impl Cluster {
    /// The event, and everything that follows from it at once.
    fn after(mut self, event: &Event) -> Self {
        self.happen(event);
        self.settle();
        self
    }

    fn for_a(mut self, time: Duration) -> Self {
        self.pass(time);
        self
    }

    /// What was written of ours since the story began.
    #[track_caller]
    fn cost(&self, expect: &[Did]) {
        assert_eq!(self.observer.log, expect);
    }

    #[track_caller]
    fn is(&self, phase: Phase) -> &Self {
        assert_eq!(self.phase(), Some(phase), "{:?}", self.observer.log);
        self
    }

    /// The condition has this reason, and says these words.
    #[track_caller]
    fn says(&self, kind: Type, holds: &str, reason: &str, words: &str) -> &Self {
        let status = self.status();
        let condition = condition::find(&status.conditions, kind).unwrap();
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), (holds, reason), "{}", condition.message);
        assert!(condition.message.contains(words), "{:?} does not say {words:?}", condition.message);
        self
    }

    #[track_caller]
    fn failed_by(&self, reason: &str, words: &str) {
        let failure = self.status().last_failure.unwrap();
        assert_eq!(failure.reason, reason);
        assert!(failure.message.as_str().contains(words), "{:?} does not say {words:?}", failure.message);
    }

    fn on(&self) -> Vec<&str> {
        self.pods.iter().filter_map(|pod| pod.seen.node.as_deref()).collect()
    }
}

// What each step costs, as table 2.1 has it. The user's own write comes on top.

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

// What must not stop a server.

#[test]
fn a_pod_deleted_by_hand_after_days_is_made_again() {
    let mut cluster = running(DevServer::test().lifetime("100h")).for_a(hours(48));
    cluster.happen(&Event::DeletePod(0));
    cluster.tick(Duration::from_secs(10));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "Starting", "earlier pod");
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_wake_in_the_middle_of_a_sleep_is_a_start() {
    let mut cluster = running(DevServer::test().lifetime("100h")).for_a(hours(48));
    cluster.happen(&Event::Sleep(HibernationCause::Idle));
    cluster.tick(Duration::from_secs(10));
    cluster.is(Phase::Hibernating);
    cluster.happen(&Event::Wake);
    cluster.tick(Duration::from_secs(10));
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_stripped_pod_is_adopted_and_goes_on() {
    let cluster = running(DevServer::test()).for_a(hours(3)).after(&Event::StripOwner(0));
    cluster.cost(&[Change(Kind::Pod, pod(0))]);
    assert_eq!(cluster.pods[0].details().owner.as_deref(), Some("uid-server-1"));
}

#[test]
fn a_flavor_that_is_gone_stops_nobody() {
    let cluster = running(gang()).for_a(hours(1)).after(&Event::FlavorGone).for_a(hours(1));
    cluster.is(Phase::Running).says(Type::Accepted, "False", "UnknownFlavor", "flavor-gpu does not exist");
    cluster.says(Type::Ready, "True", "Running", "").says(Type::DiskReady, "True", "Bound", "");
    // A restart waits for it, and takes nothing from the node that is left.
    let cluster = cluster.after(&Event::DeletePod(1)).for_a(hours(1));
    cluster.is(Phase::Queued).says(Type::Ready, "False", "UnknownFlavor", "flavor-gpu does not exist");
    assert_eq!((cluster.pods.len(), cluster.on()), (1, vec!["node-1"]));
    let cluster = cluster.after(&Event::FlavorBack);
    cluster.is(Phase::Running);
    assert_eq!(cluster.on(), ["node-1", "node-2"]);
}

#[test]
fn a_flavor_that_offers_less_stops_nobody() {
    let cluster = running(DevServer::test()).after(&Event::FlavorEdited).for_a(hours(1));
    cluster.is(Phase::Running).says(Type::Accepted, "False", "CountNotAllowed", "offers 2");
    let cluster = cluster.after(&Event::Desire(Desired::Hibernated)).after(&Event::Desire(Desired::Running));
    cluster.is(Phase::Queued).says(Type::Accepted, "False", "CountNotAllowed", "offers 2");
    cluster.after(&Event::FlavorBack).is(Phase::Running);
}

#[test]
fn a_container_that_dies_is_counted_and_started_again_in_place() {
    let mut cluster = running(DevServer::test());
    cluster.container_dies(0, "OOMKilled");
    cluster.work();
    cluster.is(Phase::Running).says(Type::Ready, "False", "Restarting", "ran out of memory");
    cluster.settle();
    cluster.says(Type::Ready, "True", "Running", "");
    assert_eq!((cluster.status().restarts, cluster.status().oom_kills), (Some(1), Some(1)));
    // A new pod begins at none, and its first death counts too.
    let mut cluster = cluster.after(&Event::DeletePod(0));
    cluster.container_dies(0, "OOMKilled");
    cluster.settle();
    assert_eq!((cluster.status().restarts, cluster.status().oom_kills), (Some(1), Some(2)));
    cluster.container_dies(0, "Error");
    cluster.settle();
    assert_eq!(cluster.status().restarts, Some(2));
}

// Nodes.

#[test]
fn a_silent_node_is_waited_for_and_then_lost() {
    let cluster = running(DevServer::test().ephemeral("1Gi")).after(&Event::Silence(0)).for_a(minutes(9));
    cluster.is(Phase::Running).says(Type::Ready, "False", "NodeLost", "does not answer at the moment");
    let cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Running);
    assert_eq!(cluster.on(), ["node-2"]);
    cluster.failed_by("NodeLost", "Node node-1 does not answer any more; the server starts on another one.");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn a_silent_node_that_comes_back_keeps_its_server() {
    let cluster = running(DevServer::test()).after(&Event::Silence(0)).for_a(minutes(9)).after(&Event::Back(0));
    cluster.is(Phase::Running).says(Type::Ready, "True", "Running", "");
    assert_eq!((cluster.on(), cluster.status().last_failure), (vec!["node-1"], None));
}

#[test]
fn a_lost_node_with_a_disk_is_waited_for() {
    let lost = running(DevServer::test()).after(&Event::Silence(0)).for_a(hours(5));
    lost.is(Phase::Queued).says(Type::Ready, "False", "NodeLost", "kubectl delete node node-1");
    assert_eq!((lost.processes.len(), lost.on()), (1, vec!["node-1"]));
    let back = lost.clone().after(&Event::Back(0));
    back.is(Phase::Running);
    assert_eq!(back.processes.len(), 1);
    let removed = lost.after(&Event::RemoveNode(0));
    removed.is(Phase::Running);
    assert_eq!(removed.on(), ["node-2"]);
}

#[test]
fn a_gang_moves_as_one() {
    let gang = running(gang().ephemeral("1Gi")).after(&Event::Silence(1)).for_a(minutes(10));
    gang.is(Phase::Running);
    assert_eq!(gang.on(), ["node-1", "node-3"]);
    let runs: Vec<_> = gang.pods.iter().map(|pod| pod.details().run).collect();
    assert_eq!(runs, [Some(2), Some(2)]);
}

#[test]
fn a_gang_with_a_disk_waits_as_one() {
    let gang = running(gang()).after(&Event::Silence(1)).for_a(hours(1));
    gang.is(Phase::Queued).says(Type::Ready, "False", "NodeLost", "node-2");
    assert_eq!((gang.on(), gang.processes.len()), (vec!["node-2"], 1));
    gang.after(&Event::RemoveNode(1)).is(Phase::Running);
}

#[test]
fn a_pod_its_node_sends_away_goes_back_to_the_queue() {
    let cluster = running(DevServer::test()).for_a(hours(1)).after(&Event::Evict(0));
    cluster.is(Phase::Running).failed_by("PodGone", "(Evicted)");
    assert_eq!(cluster.observer.counts()[&Revoke], 1);
}

#[test]
fn an_end_on_a_lost_node_is_told_why_it_takes_long() {
    let lost = running(DevServer::test()).after(&Event::Silence(0)).after(&Event::Desire(Desired::Ended));
    let lost = lost.for_a(hours(1));
    lost.is(Phase::Stopping).says(Type::Ready, "False", "Ended", "kubectl delete node node-1");
    lost.after(&Event::RemoveNode(0)).is(Phase::Cancelled);
}

// Starts that go wrong.

#[test]
fn an_image_that_does_not_exist_is_a_failure_with_advice() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.image_trouble = Some("example.org/x:1: not found");
    cluster.observer.may_fail = true;
    cluster.settle();
    cluster.is(Phase::Failed).failed_by("ImageNotFound", "Check the name and tag in image.ref");
    assert!(cluster.pods.is_empty() && cluster.status().admission.unwrap().nodes.is_empty());
    assert!(!cluster.edit(|spec| spec.wake = Some("again".into())));
}

#[test]
fn an_image_that_cannot_be_pulled_for_long_is_a_failure() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.image_trouble = Some("dial tcp: i/o timeout");
    cluster.observer.may_fail = true;
    cluster.pass(minutes(29));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "ImageNotFound", "is tried again: dial tcp");
    cluster.pass(minutes(2));
    cluster.is(Phase::Failed).failed_by("StartTimeout", "dial tcp");
}

#[test]
fn every_start_has_its_own_time() {
    let mut cluster = running(DevServer::test()).after(&Event::Desire(Desired::Hibernated));
    cluster.image_trouble = Some("dial tcp: i/o timeout");
    let cluster = cluster.for_a(hours(100)).after(&Event::Desire(Desired::Running)).for_a(minutes(29));
    cluster.is(Phase::Starting);
    let mut replaced = cluster.after(&Event::DeletePod(0)).for_a(minutes(29));
    replaced.is(Phase::Starting);
    replaced.image_trouble = None;
    replaced.settle();
    replaced.is(Phase::Running);
}

#[test]
fn a_deleted_secret_is_made_anew_when_a_pod_needs_it() {
    let mut cluster = asleep(DevServer::test());
    let before = cluster.status().access.unwrap().host_key;
    cluster.secret = None;
    cluster.operator.die();
    let cluster = cluster.after(&Event::Desire(Desired::Running)).for_a(Duration::from_secs(14));
    cluster.is(Phase::Starting);
    let cluster = cluster.for_a(Duration::from_secs(2));
    cluster.is(Phase::Running);
    let key = cluster.status().access.unwrap().host_key;
    assert!(key != before && key.unwrap().as_str() == cluster.secret.unwrap().key);
}

#[test]
fn a_secret_of_somebody_else_is_named_and_waited_for() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.secret = Some(Secret { owner: "uid-other".into(), key: "other".into() });
    let mut cluster = cluster.for_a(minutes(2));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "NameTaken", "Secret server-1-keys is in the way");
    assert!(cluster.pods.is_empty());
    cluster.secret = None;
    cluster.for_a(minutes(2)).is(Phase::Running);
}

#[test]
fn a_name_that_is_never_given_back_ends_the_start_and_says_so() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.secret = Some(Secret { owner: "uid-other".into(), key: "other".into() });
    cluster.observer.may_fail = true;
    cluster.for_a(minutes(31)).failed_by("StartTimeout", "Secret server-1-keys is in the way");
}

fn foreign_pod(deleting: bool) -> Pod {
    let mut pod = running(DevServer::test()).pods.remove(0);
    let details = pod.seen.server.as_mut().unwrap();
    (details.owner, details.made_for) = (Some("uid-other".into()), Some("uid-other".into()));
    pod.seen.uid = "uid-pod-other".into();
    pod.seen.deleting = deleting.then_some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    pod
}

#[test]
fn a_pod_of_somebody_else_is_named_and_left_alone() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.pods.push(foreign_pod(false));
    // The queue of this cluster counts every pod as ours; it has granted before.
    cluster.pods[0].seen.namespace = "dev-ada".into();
    let other = cluster.pods.remove(0);
    cluster.work();
    cluster.pods.clear();
    cluster.pods.push(other);
    cluster.changed();
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "NameTaken", "Pod server-1-0 is in the way");
    assert_eq!(cluster.observer.counts().get(&Delete(Kind::Pod, pod(0))), None);
}

#[test]
fn a_pod_of_an_earlier_server_of_that_name_is_waited_for() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.work();
    cluster.pods = vec![foreign_pod(true)];
    cluster.changed();
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "Starting", "earlier pod");
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_service_of_somebody_else_is_not_taken_over() {
    let mut cluster = Cluster::new(gang());
    let other = serde_json::json!({"metadata": {"name": "server-1", "uid": "uid-s"}, "spec": {"selector": {"a": "b"}}});
    cluster.service = Some(other.clone());
    let mut cluster = cluster.for_a(minutes(1));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "NameTaken", "Service server-1 is in the way");
    assert_eq!((cluster.service.as_ref(), cluster.pods.len()), (Some(&other), 0));
    cluster.service = None;
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_service_of_ours_is_repaired_while_the_gang_runs() {
    let created = Create(Kind::Service, "server-1".into());
    running(gang()).after(&Event::ServiceGone).cost(&[created]);
    let changed = [Change(Kind::Service, "server-1".into())];
    running(gang()).after(&Event::ServiceEdited).cost(&changed);
    let mut stripped = running(gang());
    stripped.service.as_mut().unwrap()["metadata"]["ownerReferences"] = serde_json::json!([]);
    stripped.changed();
    stripped.settle();
    stripped.cost(&changed);
}

// Time.

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

// The end of everything.

#[test]
fn an_ended_server_stays_readable_for_its_time_and_is_deleted() {
    let cluster = running(DevServer::test()).after(&Event::Desire(Desired::Ended)).for_a(minutes(24 * 60 - 1));
    assert!(!cluster.deleted);
    let cluster = cluster.for_a(minutes(1));
    assert!(cluster.deleted);
}

#[test]
fn a_deleted_server_that_somebody_holds_stops_and_names_the_holder() {
    let mut cluster = running(gang());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::stored(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into(), "example.org/hold".into()]);
    cluster.touch();
    cluster.settle();
    cluster.is(Phase::Stopping).says(Type::Ready, "False", "Stopping", "kept only by example.org/hold:");
    assert!(cluster.pods.is_empty());
}

#[test]
fn a_server_deleted_in_the_foreground_is_left_to_kubernetes() {
    let mut cluster = running(DevServer::test());
    cluster.request.server.metadata.deletion_timestamp = Some(odc_api::time::stored(cluster.now));
    cluster.request.server.metadata.finalizers = Some(vec!["foregroundDeletion".into()]);
    cluster.touch();
    cluster.settle();
    cluster.cost(&[Delete(Kind::Pod, pod(0)), Release]);
}

#[test]
fn what_is_seen_of_a_pod_is_what_kubernetes_would_say() {
    let cluster = running(DevServer::test());
    let seen: &seen::Pod = &cluster.pods[0].seen;
    cluster.request.valid(|valid| assert_eq!(seen.requests, crate::devserver::build::size::each(valid)));
}
