//! What must not stop a server.

use super::*;

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

#[test]
fn a_node_that_starts_again_gives_its_pods_new_addresses_and_no_new_server() {
    let mut cluster = running(DevServer::test()).for_a(hours(1));
    for _ in 0..4 {
        cluster.container_dies(0, "Error");
        cluster.settle();
    }
    cluster.container_dies(0, "Error");
    cluster.pods[0].seen.server.as_mut().unwrap().ip = None;
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Running).says(Type::Ready, "False", "Restarting", "");
    cluster.pods[0].seen.server.as_mut().unwrap().ip = Some("10.0.1.1".into());
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running).says(Type::Ready, "True", "Running", "");
}
