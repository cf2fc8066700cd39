//! Starts that go wrong.

use super::*;

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

/// A pod of the name we need, made for another server.
fn foreign_pod() -> Pod {
    let mut pod = running(DevServer::test()).pods.remove(0);
    let details = pod.seen.server.as_mut().unwrap();
    (details.owner, details.made_for) = (Some("uid-other".into()), Some("uid-other".into()));
    pod.seen.uid = "uid-pod-other".into();
    pod
}

#[test]
fn a_pod_of_somebody_else_is_named_and_left_alone() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.pods.push(foreign_pod());
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "NameTaken", "Pod server-1-0 is in the way");
    assert_eq!(cluster.observer.counts().get(&Delete(Kind::Pod, pod(0))), None);
    cluster.pods.clear();
    cluster.changed();
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_name_taken_from_a_server_that_ran_for_days_has_the_time_of_a_start() {
    let mut cluster = running(DevServer::test().lifetime("100h")).for_a(hours(48));
    cluster.pods = vec![foreign_pod()];
    cluster.changed();
    cluster.tick(minutes(29));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "NameTaken", "Pod server-1-0 is in the way");
}

#[test]
fn a_pod_of_an_earlier_server_of_that_name_is_waited_for() {
    let mut cluster = Cluster::new(DevServer::test());
    cluster.pods.push(foreign_pod());
    cluster.pods[0].seen.deleting = Some(cluster.now);
    cluster.tick(Duration::from_secs(5));
    cluster.is(Phase::Starting).says(Type::Ready, "False", "Starting", "earlier pod");
    cluster.settle();
    cluster.is(Phase::Running);
}

#[test]
fn a_foreign_secret_does_not_stop_what_runs() {
    let mut cluster = running(DevServer::test());
    cluster.operator.secret = crate::devserver::SecretSeen::Foreign;
    cluster.container_dies(0, "Error");
    cluster.work();
    cluster.is(Phase::Running).says(Type::Ready, "False", "Restarting", "is being started again");
    cluster.settle();
    cluster.says(Type::Ready, "True", "Running", "");
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
fn a_kept_entrypoint_is_learned_once() {
    with_entrypoint(Ok(vec!["serve".into()])).is(Phase::Running);
}

#[test]
fn an_entrypoint_that_cannot_be_learned_is_a_failure_with_advice() {
    let cluster = with_entrypoint(Err("own:1: not found.".into()));
    cluster.is(Phase::Failed).failed_by("ImageNotFound", "cannot be learned: own:1: not found. Correct image.ref");
    assert!(cluster.pods.is_empty());
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
