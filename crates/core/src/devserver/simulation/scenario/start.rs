//! Failing starts.

use super::*;

#[test]
fn missing_image_fails_server_with_advice() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.image_error = Some("example.org/x:1: not found");
    cluster.observer.may_fail = true;
    cluster.settle();
    cluster.is(Phase::Failed).has_failure("ImageNotFound", "Check the name and tag in image.ref");
    assert!(cluster.pods.is_empty() && cluster.status().admission.unwrap().nodes.is_empty());
    assert!(!cluster.edit(|spec| spec.wake = Some("again".into())));
}

#[test]
fn image_pull_errors_fail_server_after_start_timeout() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.image_error = Some("dial tcp: i/o timeout");
    cluster.observer.may_fail = true;
    cluster.pass(minutes(29));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "ImageNotFound", "retrying: dial tcp");
    cluster.pass(minutes(2));
    cluster.is(Phase::Failed).has_failure("StartTimeout", "dial tcp");
}

#[test]
fn start_timeout_applies_to_each_start() {
    let mut cluster = running(DevServer::test()).after_event(&Event::Desire(Desired::Hibernated));
    cluster.image_error = Some("dial tcp: i/o timeout");
    let cluster = cluster.after_time(hours(100)).after_event(&Event::Desire(Desired::Running)).after_time(minutes(29));
    cluster.is(Phase::Starting);
    let mut replaced = cluster.after_event(&Event::DeletePod(0)).after_time(minutes(29));
    replaced.is(Phase::Starting);
    replaced.image_error = None;
    replaced.settle();
    replaced.is(Phase::Running);
}

#[test]
fn deleted_secret_is_recreated_when_pod_needs_it() {
    let mut cluster = hibernated(DevServer::test());
    let before = cluster.status().access.unwrap().host_key;
    cluster.secret = None;
    cluster.operator.crash();
    let cluster = cluster.after_event(&Event::Desire(Desired::Running)).after_time(Duration::from_secs(14));
    cluster.is(Phase::Starting);
    let cluster = cluster.after_time(Duration::from_secs(2));
    cluster.is(Phase::Running);
    let key = cluster.status().access.unwrap().host_key;
    assert!(key != before && key.unwrap().as_str() == cluster.secret.unwrap().key);
}

#[test]
fn foreign_secret_is_reported_and_awaited() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.secret = Some(Secret { owner: "uid-other".into(), key: "other".into() });
    let mut cluster = cluster.after_time(minutes(2));
    cluster.is(Phase::Starting).has_condition(
        Type::Ready,
        "False",
        "NameConflict",
        "Secret server-1-keys-uid-serv already exists",
    );
    assert!(cluster.pods.is_empty());
    cluster.secret = None;
    cluster.after_time(minutes(2)).is(Phase::Running);
}

#[test]
fn foreign_secret_fails_server_after_start_timeout() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.secret = Some(Secret { owner: "uid-other".into(), key: "other".into() });
    cluster.observer.may_fail = true;
    cluster.after_time(minutes(31)).has_failure("StartTimeout", "Secret server-1-keys-uid-serv already exists");
}

/// A pod of another server with a name that the server needs.
fn foreign_pod() -> Pod {
    let mut pod = running(DevServer::test()).pods.remove(0);
    let details = pod.object.server.as_mut().unwrap();
    (details.owner, details.created_for) = (Some("uid-other".into()), Some("uid-other".into()));
    pod.object.uid = "uid-pod-other".into();
    pod
}

#[test]
fn foreign_pod_is_reported_and_kept() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.pods.push(foreign_pod());
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "NameConflict", "Pod server-1-0 already exists");
    assert_eq!(cluster.observer.counts().get(&Delete(Kind::Pod, pod(0))), None);
    cluster.pods.clear();
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn name_conflict_of_running_server_has_full_start_timeout() {
    let mut cluster = running(DevServer::test().lifetime("100h")).after_time(hours(48));
    cluster.pods = vec![foreign_pod()];
    cluster.changed();
    cluster.tick(minutes(29));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "NameConflict", "Pod server-1-0 already exists");
}

#[test]
fn terminating_pod_of_earlier_server_is_awaited() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.pods.push(foreign_pod());
    cluster.pods[0].object.deletion_timestamp = Some(cluster.now);
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "Starting", "previous pod");
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn foreign_secret_does_not_stop_running_server() {
    let mut cluster = running(DevServer::test());
    cluster.operator.secret = crate::devserver::SecretState::Foreign;
    cluster.crash_container(0, "Error");
    cluster.work();
    cluster.is(Phase::Running).has_condition(Type::Ready, "False", "Restarting", "restarting");
    cluster.settle();
    cluster.has_condition(Type::Ready, "True", "Running", "");
}

fn with_entrypoint(answer: Result<Vec<String>, String>) -> Cluster {
    let mut server = DevServer::test();
    let image = Image { reference: Some("own:1".into()), keep_entrypoint: true, ..Image::default() };
    server.spec.image = Some(Box::new(image));
    let mut cluster = Cluster::new(server);
    cluster.entrypoint = answer;
    cluster.observer.may_fail = true;
    cluster.settle();
    cluster
}

#[test]
fn kept_entrypoint_is_read() {
    with_entrypoint(Ok(vec!["serve".into()])).is(Phase::Running);
}

#[test]
fn unreadable_entrypoint_fails_server_with_advice() {
    let cluster = with_entrypoint(Err("own:1: not found.".into()));
    cluster
        .is(Phase::Failed)
        .has_failure("ImageNotFound", "Failed to read the entrypoint of the image: own:1: not found. Fix image.ref");
    assert!(cluster.pods.is_empty());
}

#[test]
fn foreign_service_is_not_changed() {
    let mut cluster = Cluster::new(gang());
    let other = serde_json::json!({"metadata": {"name": "server-1", "uid": "uid-s"}, "spec": {"selector": {"a": "b"}}});
    cluster.service = Some(other.clone());
    let mut cluster = cluster.after_time(minutes(1));
    cluster.is(Phase::Starting).has_condition(Type::Ready, "False", "NameConflict", "Service server-1 already exists");
    assert_eq!((cluster.service.as_ref(), cluster.pods.len()), (Some(&other), 0));
    cluster.service = None;
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn service_of_running_gang_is_repaired() {
    let created = Create(Kind::Service, "server-1".into());
    running(gang()).after_event(&Event::DeleteService).cost(&[created]);
    let changed = [Change(Kind::Service, "server-1".into())];
    running(gang()).after_event(&Event::EditService).cost(&changed);
    let mut stripped = running(gang());
    stripped.service.as_mut().unwrap()["metadata"]["ownerReferences"] = serde_json::json!([]);
    stripped.changed();
    stripped.settle();
    stripped.cost(&changed);
}
