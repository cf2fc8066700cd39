//! Events that must not stop a server.

use super::*;

#[test]
fn deleted_pod_is_recreated() {
    let mut cluster = running(DevServer::test().lifetime("100h")).after_time(hours(48));
    cluster.apply(&Event::DeletePod(0));
    cluster.tick(Duration::from_secs(10));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "Starting", "previous pod");
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn wake_while_hibernating_restarts_server() {
    let mut cluster = running(DevServer::test().lifetime("100h")).after_time(hours(48));
    cluster.apply(&Event::Hibernate(HibernationCause::Idle));
    cluster.tick(Duration::from_secs(10));
    cluster.is(Phase::Hibernating);
    cluster.apply(&Event::Wake);
    cluster.tick(Duration::from_secs(10));
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn orphaned_pod_is_adopted() {
    let cluster = running(DevServer::test()).after_time(hours(3)).after_event(&Event::OrphanPod(0));
    cluster.cost(&[Change(Kind::Pod, pod(0))]);
    assert_eq!(cluster.pods[0].details().owner.as_deref(), Some("uid-server-1"));
}

#[test]
fn deleted_flavor_does_not_stop_running_server() {
    let cluster = running(gang()).after_time(hours(1)).after_event(&Event::DeleteFlavor).after_time(hours(1));
    cluster.is(Phase::Running).has_condition(Type::Accepted, "False", "FlavorNotFound", "Flavor flavor-gpu not found");
    cluster.has_condition(Type::Ready, "True", "Running", "").has_condition(Type::DiskReady, "True", "Bound", "");
    // A restart waits for the flavor, and keeps the remaining pod.
    let cluster = cluster.after_event(&Event::DeletePod(1)).after_time(hours(1));
    cluster.is(Phase::Queued).has_condition(Type::Ready, "False", "FlavorNotFound", "Flavor flavor-gpu not found");
    assert_eq!((cluster.pods.len(), cluster.nodes()), (1, vec!["node-1"]));
    let cluster = cluster.after_event(&Event::RestoreFlavor);
    cluster.is(Phase::Running);
    assert_eq!(cluster.nodes(), ["node-1", "node-2"]);
}

#[test]
fn reduced_flavor_does_not_stop_running_server() {
    let cluster = running(DevServer::test()).after_event(&Event::EditFlavor).after_time(hours(1));
    cluster.is(Phase::Running).has_condition(Type::Accepted, "False", "InvalidCount", "offers 2");
    let cluster =
        cluster.after_event(&Event::Desire(Desired::Hibernated)).after_event(&Event::Desire(Desired::Running));
    cluster.is(Phase::Queued).has_condition(Type::Accepted, "False", "InvalidCount", "offers 2");
    cluster.after_event(&Event::RestoreFlavor).is(Phase::Running);
}

#[test]
fn crashed_container_is_counted_and_restarted() {
    let mut cluster = running(DevServer::test());
    cluster.crash_container(0, "OOMKilled");
    cluster.work();
    cluster.is(Phase::Running).has_condition(Type::Ready, "False", "Restarting", "Out of memory");
    cluster.settle();
    cluster.has_condition(Type::Ready, "True", "Running", "");
    assert_eq!((cluster.status().restarts, cluster.status().oom_kills), (Some(1), Some(1)));
    // A new pod starts at zero.
    let mut cluster = cluster.after_event(&Event::DeletePod(0));
    cluster.crash_container(0, "OOMKilled");
    cluster.settle();
    assert_eq!((cluster.status().restarts, cluster.status().oom_kills), (Some(1), Some(2)));
    cluster.crash_container(0, "Error");
    cluster.settle();
    assert_eq!(cluster.status().restarts, Some(2));
}

#[test]
fn new_pod_address_after_node_restart_keeps_server_running() {
    let mut cluster = running(DevServer::test()).after_time(hours(1));
    for _ in 0..4 {
        cluster.crash_container(0, "Error");
        cluster.settle();
    }
    cluster.crash_container(0, "Error");
    cluster.pods[0].object.server.as_mut().unwrap().ip = None;
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Running).has_condition(Type::Ready, "False", "Restarting", "");
    cluster.pods[0].object.server.as_mut().unwrap().ip = Some("10.0.1.1".into());
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running).has_condition(Type::Ready, "True", "Running", "");
}
