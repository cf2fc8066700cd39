//! The client against a small HTTP server in the same process.

mod server;

use std::time::Duration;

use futures_util::StreamExt as _;
use odc_api::v1alpha1::{DevServer, DiskAction, DiskOperationSpec};
use serde_json::{Value, json};

use super::ApiClient;
use crate::client::{
    Admin as _, Disks as _, Flavors as _, LogRequest, ObjectKind, Pods as _, QueueApi as _, QueueUnavailable, Scope,
    Servers as _, WatchEvent,
};
use crate::config::{ApiEndpoint, ApiKey, ContextSelection};
use crate::error::Kind;
use server::{Answer, Server};

fn selection(namespace: Option<&str>) -> ContextSelection {
    ContextSelection {
        name: Some("work".to_owned()),
        // A kubeconfig of this machine must not be used.
        kubeconfig: Some("/nonexistent/kubeconfig".into()),
        kube_context: None,
        namespace: namespace.map(str::to_owned),
        api: None,
    }
}

fn endpoint(url: &str) -> ApiEndpoint {
    ApiEndpoint { url: url.to_owned(), key: Some(ApiKey::Text("odc_key".to_owned())), ca: None }
}

/// Returns a client of a server with these answers, and the server.
async fn client(answers: Vec<Answer>) -> (ApiClient, Server) {
    let server = Server::start(answers).await;
    let client = ApiClient::connect(&endpoint(&server.url), &selection(Some("dev-ada"))).await.unwrap();
    (client, server)
}

fn resource(name: &str, phase: &str) -> Value {
    json!({"name": name, "user": "ada", "uid": format!("uid-{name}"), "createdAt": "2026-01-01T00:00:00Z",
        "observedAt": "2026-01-01T00:00:00Z", "resourceVersion": "7", "spec": DevServer::test().spec,
        "status": {"phase": phase}})
}

fn accepted(request: &Value, object: &Value) -> Value {
    let mut accepted = json!({"requestId": "r", "location": "/api/v1/requests/r", "name": "box"});
    for (name, value) in [("request", request), ("object", object)] {
        if !value.is_null() {
            accepted[name] = value.clone();
        }
    }
    accepted
}

fn succeeded() -> Value {
    json!({"id": "r", "user": "ada", "actor": "ada", "action": "devserver.patch", "objectKind": "DevServer",
        "objectName": "box", "state": "Succeeded", "createdAt": "2026-01-01T00:00:00Z"})
}

fn problem(kind: &str, status: u16, detail: &str) -> Answer {
    let problem =
        json!({"type": format!("https://odc.dev/problems/{kind}"), "title": "No.", "status": status, "detail": detail});
    Answer::json(status, &problem)
}

#[tokio::test]
async fn namespace_is_that_of_the_caller() {
    let me = json!({"user": "ada", "role": "User", "namespace": "dev-ada", "scopes": [], "teams": []});
    let server = Server::start(vec![Answer::json(200, &me)]).await;
    let client = ApiClient::connect(&endpoint(&server.url), &selection(None)).await.unwrap();
    assert_eq!((&client.target.namespace[..], &client.user[..]), ("dev-ada", "ada"));
    let request = server.next();
    assert_eq!((&request.method[..], &request.uri[..]), ("GET", "/api/v1/me"));
    assert_eq!(request.header("authorization"), "Bearer odc_key");
    assert_eq!(request.header("x-devctl-version"), crate::version::NUMBER);
    let error = ApiClient::connect(&endpoint(&server.url), &selection(Some("default"))).await.err().unwrap();
    assert_eq!((error.kind, &error.message[..]), (Kind::Usage, "default is not a user namespace"));
}

#[tokio::test]
async fn list_follows_the_cursor() {
    let first = json!({"items": [resource("a", "Running")], "nextCursor": "61"});
    let second = json!({"items": [resource("b", "Queued")]});
    let (client, server) = client(vec![Answer::json(200, &first), Answer::json(200, &second)]).await;
    let pages: Vec<_> = client.list(Scope::Own).collect().await;
    let names: Vec<String> =
        pages.into_iter().flat_map(|page| page.unwrap()).map(|server| server.name().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(server.next().uri, "/api/v1/devservers?user=ada&limit=500");
    assert_eq!(server.next().uri, "/api/v1/devservers?user=ada&limit=500&cursor=61");
}

#[tokio::test]
async fn list_of_all_users_is_denied_as_by_the_kubernetes_api() {
    let (client, server) = client(vec![problem("forbidden", 403, "requires the role Admin or Auditor")]).await;
    let error = client.list(Scope::All).next().await.unwrap().unwrap_err();
    assert_eq!(
        (error.kind, &error.message[..]),
        (Kind::Denied, "permission denied: cannot list servers in this cluster")
    );
    assert_eq!(server.next().uri, "/api/v1/devservers?all=true&limit=500");
}

#[tokio::test]
async fn change_is_repeated_with_the_same_key_until_it_is_executed() {
    let answers = vec![
        // The response is lost.
        Answer::Close,
        Answer::json(503, &json!({})).header("retry-after", "1"),
        Answer::json(202, &accepted(&Value::Null, &Value::Null)),
        Answer::json(200, &accepted(&succeeded(), &resource("box", "Running"))),
    ];
    let (client, server) = client(answers).await;
    let patched = client.patch("box", json!({"spec": {"lifetime": "9h"}}), Some("7"), false).await.unwrap();
    assert_eq!(patched.name(), "box");
    let first = server.next();
    assert_eq!((&first.method[..], &first.uri[..]), ("PATCH", "/api/v1/devservers/box?user=ada"));
    assert_eq!(first.body, json!({"lifetime": "9h"}));
    assert_eq!(first.header("if-match"), "\"7\"");
    assert_eq!(first.header("prefer"), "wait=20, return=representation");
    assert!(first.header("idempotency-key").starts_with("devctl-"));
    for _ in 0..3 {
        let repeated = server.next();
        assert_eq!(repeated.header("idempotency-key"), first.header("idempotency-key"));
        assert_eq!((&repeated.uri, &repeated.body), (&first.uri, &first.body));
    }
    assert!(server.is_done());
}

#[tokio::test]
async fn dry_run_has_no_idempotency_key() {
    let (client, server) = client(vec![Answer::json(200, &resource("box", "Running"))]).await;
    client.patch("box", json!({"spec": {"desired": "Ended"}}), None, true).await.unwrap();
    let request = server.next();
    assert_eq!(request.uri, "/api/v1/devservers/box?user=ada&dryRun=true");
    assert_eq!((request.header("idempotency-key"), request.header("prefer")), ("", ""));
}

#[tokio::test]
async fn object_that_is_not_part_of_the_response_is_read() {
    let answers =
        vec![Answer::json(200, &accepted(&succeeded(), &Value::Null)), Answer::json(200, &resource("box", "Running"))];
    let (client, server) = client(answers).await;
    let server_object = DevServer::test().named("box");
    client.create(&server_object, false).await.unwrap();
    let create = server.next();
    assert_eq!((&create.uri[..], &create.body["name"]), ("/api/v1/devservers?user=ada", &json!("box")));
    assert_eq!(create.body["home"], serde_json::to_value(&server_object.spec.home).unwrap());
    assert_eq!(server.next().uri, "/api/v1/devservers/box?user=ada");
}

#[tokio::test]
async fn rejected_change_is_not_repeated() {
    let message = r#"devservers.odc.dev "box" already exists"#;
    let (client, server) = client(vec![problem("request-rejected", 409, message)]).await;
    let error = client.create(&DevServer::test().named("box"), false).await.unwrap_err();
    assert_eq!((error.kind, &error.message[..]), (Kind::Conflict, r#"server "box" already exists"#));
    server.next();
    assert!(server.is_done());
}

#[tokio::test]
async fn api_that_does_not_answer_fails_after_a_bounded_number_of_attempts() {
    let (client, server) = client(vec![Answer::Close, Answer::Close, Answer::Close, Answer::Close]).await;
    let error = client.disks().await.unwrap_err();
    assert_eq!(error.kind, Kind::Failed);
    assert!(error.message.starts_with(&format!("could not reach {}", server.url)), "{error}");
    for _ in 0..4 {
        server.next();
    }
    assert!(server.is_done());
}

#[tokio::test]
async fn bad_key_is_denied() {
    let (client, _server) = client(vec![problem("unauthenticated", 401, "the credential is invalid")]).await;
    let error = client.flavors().await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.message.ends_with("failed: the credential is invalid"), "{error}");
    assert!(error.hint.unwrap().contains("DEVCTL_API_KEY"));
}

#[tokio::test]
async fn object_that_does_not_exist_is_none() {
    let not_found = || problem("not-found", 404, "server box not found");
    let (client, _server) = client(vec![not_found(), not_found(), not_found(), not_found()]).await;
    assert!(client.get("box").await.unwrap().is_none());
    assert!(client.disk("home").await.unwrap().is_none());
    assert!(client.listing("home", "home-1").await.unwrap().is_none());
    assert!(client.object(ObjectKind::Team, "vision").await.unwrap().is_none());
}

#[tokio::test]
async fn server_is_deleted_by_uid_and_may_be_gone() {
    let (client, server) = client(vec![problem("not-found", 404, "server box not found")]).await;
    client.delete("box", "u", false).await.unwrap();
    let request = server.next();
    assert_eq!((&request.method[..], &request.uri[..]), ("DELETE", "/api/v1/devservers/box?user=ada&uid=u&purge=true"));
}

#[tokio::test]
async fn operation_is_named_by_the_api() {
    let operation = json!({"name": "snapshot-1", "user": "ada", "uid": "u", "createdAt": null, "resourceVersion": "1",
        "observedAt": "2026-01-01T00:00:00Z", "spec": {"disk": "home", "action": "Snapshot", "note": "n"}});
    let (client, server) = client(vec![Answer::json(200, &accepted(&succeeded(), &operation))]).await;
    let spec = DiskOperationSpec {
        disk: "home".parse().unwrap(),
        action: DiskAction::Snapshot,
        arguments: None,
        note: Some("n".into()),
    };
    let created = client.create_operation(&spec).await.unwrap();
    assert_eq!(created.metadata.name.as_deref(), Some("snapshot-1"));
    let request = server.next();
    assert_eq!((&request.uri[..], &request.body), ("/api/v1/disks/home/snapshot?user=ada", &json!({"note": "n"})));
}

#[tokio::test]
async fn unavailable_queue_is_not_an_error_and_not_repeated() {
    let unavailable = problem("unavailable", 503, "no operator leads").header("retry-after", "5");
    let (client, server) = client(vec![unavailable, problem("forbidden", 403, "requires the role Admin")]).await;
    let reason = |text: &str| QueueUnavailable(text.to_owned());
    assert_eq!(client.queues().await.unwrap().unwrap_err(), reason("queue.odc.dev does not respond"));
    assert_eq!(client.queue_entries(Scope::All).await.unwrap().unwrap_err(), reason("permission denied"));
    server.next();
    assert_eq!(server.next().uri, "/api/v1/queue/entries?all=true");
}

fn event(kind: &str, server: &str, phase: &str) -> String {
    let data = if server.is_empty() { json!({}) } else { resource(server, phase) };
    let event = json!({"id": 1, "type": kind, "at": "2026-01-01T00:00:00Z", "source": "test", "data": data});
    format!("id: 1\nevent: {kind}\ndata: {event}\n\n")
}

#[tokio::test]
async fn watch_lists_again_after_a_lost_connection_and_after_missed_events() {
    let first =
        [event("initial", "box", "Queued"), event("synced", "", ""), ":\n\n".to_owned(), event("heartbeat", "", "")];
    let second = [event("initial", "box", "Running"), event("synced", "", ""), event("missed", "", "")];
    let third = [event("synced", "", ""), event("deleted", "box", "Running")];
    let stream = |events: &[String]| Answer::stream("text/event-stream", &events.concat());
    let answers = vec![
        stream(&first),
        stream(&second),
        stream(&third),
        problem("unauthenticated", 401, "the credential is revoked"),
    ];
    let (client, server) = client(answers).await;
    let seen: Vec<String> = client
        .watch(Scope::Own, Some("box"))
        .map(|event| match event {
            Ok(WatchEvent::Init) => "init".to_owned(),
            Ok(WatchEvent::Apply(server)) => format!("apply {}", server.phase_str()),
            Ok(WatchEvent::Delete(server)) => format!("delete {}", server.name()),
            Ok(WatchEvent::InitDone) => "done".to_owned(),
            Ok(WatchEvent::Interrupted(_)) => "interrupted".to_owned(),
            Err(error) => format!("{:?}", error.kind),
        })
        .collect()
        .await;
    let expect = [
        "init",
        "apply Queued",
        "done",
        "interrupted",
        "init",
        "apply Running",
        "done",
        "init",
        "done",
        "delete box",
        "interrupted",
        "Denied",
    ];
    assert_eq!(seen, expect);
    assert_eq!(server.next().uri, "/api/v1/events?initial=true&user=ada&server=box");
}

#[tokio::test]
async fn watch_of_an_operation_waits_for_other_versions() {
    let operation = |phase: &str| {
        json!({"name": "op", "user": "ada", "uid": "u", "createdAt": null, "resourceVersion": "1",
            "observedAt": "2026-01-01T00:00:00Z", "spec": {"disk": "home", "action": "Unlock"}, "status": {"phase": phase}})
    };
    let answers = vec![
        Answer::json(200, &operation("Pending")).header("etag", "\"1\""),
        Answer::json(304, &Value::Null).header("etag", "\"1\""),
        Answer::Close,
        Answer::json(200, &operation("Succeeded")).header("etag", "\"2\""),
        problem("not-found", 404, "operation op not found"),
    ];
    let (client, server) = client(answers).await;
    let events: Vec<_> = client.watch_operation("op").take(6).collect().await;
    let seen: Vec<String> =
        events.into_iter().map(|event| format!("{:?}", event.unwrap()).chars().take(5).collect()).collect();
    assert_eq!(seen, ["Init", "Apply", "InitD", "Inter", "Apply", "Delet"]);
    let first = server.next();
    assert_eq!((first.header("if-none-match"), first.header("prefer")), ("", ""));
    let second = server.next();
    assert_eq!((second.header("if-none-match"), second.header("prefer")), ("\"1\"", "wait=25"));
}

#[tokio::test]
async fn manifest_keeps_labels_and_names_conflicting_fields() {
    let message = r#"Apply failed with 1 conflict: conflict with "kubectl" using odc.dev/v1alpha1: .spec.weight"#;
    let (client, server) = client(vec![problem("request-rejected", 409, message)]).await;
    let manifest = json!({"metadata": {"name": "vision", "labels": {"a": "b"}}, "spec": {"weight": 2}});
    let error = client.apply_manifest(ObjectKind::Team, manifest, false, false).await.unwrap_err();
    assert_eq!(error.message, "team vision has fields owned by other field managers: spec.weight is owned by kubectl");
    let request = server.next();
    assert_eq!((&request.method[..], &request.uri[..]), ("PUT", "/api/v1/teams/vision"));
    assert_eq!(request.body, json!({"spec": {"weight": 2}, "labels": {"a": "b"}}));
}

#[tokio::test]
async fn logs_are_streamed() {
    use futures_util::AsyncReadExt as _;
    let (client, server) = client(vec![Answer::stream("text/plain", "one\ntwo\n")]).await;
    let request = LogRequest {
        pod: "my-box-0".to_owned(),
        tail: Some(5),
        since: Some(Duration::from_millis(1)),
        ..LogRequest::default()
    };
    let mut text = String::new();
    client.logs(request).await.unwrap().read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "one\ntwo\n");
    let expect = "/api/v1/devservers/my-box/logs?pod=my-box-0&container=dev&tail=5&since=1s&user=ada";
    assert_eq!(server.next().uri, expect);
}

#[tokio::test]
async fn connection_to_a_pod_without_a_kubeconfig_says_what_is_missing() {
    let (client, _server) = client(vec![]).await;
    let error = client.connect("box-0", 2222).await.err().unwrap();
    assert!(error.message.starts_with("a connection to a pod needs a kubeconfig: "), "{error}");
    assert!(error.hint.unwrap().contains("--kubeconfig"));
}
