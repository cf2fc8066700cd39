//! The HTTP API, the worker and the projection on a real cluster.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use odc_tests::api_client::ApiClient;
use odc_tests::command::odc_local;
use odc_tests::wait;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::tenant::{TIMEOUT, Tenant, with_tenant};

/// How often [`send_heartbeats`] sends one.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// Sends heartbeats for a server through the API until the returned handle is dropped.
pub async fn send_heartbeats(tenant: &Tenant<'_>, server: &str) -> anyhow::Result<AbortOnDropHandle<()>> {
    let api = token_client(tenant).await?;
    let path = format!("/devservers/{server}/heartbeat");
    let beat = api.send(Method::POST, &path, None, &[]).await?;
    anyhow::ensure!(beat.status == 202, "{beat:?}");
    Ok(AbortOnDropHandle::new(tokio::spawn(async move {
        let mut interval = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            interval.tick().await;
            if let Err(error) = api.send(Method::POST, &path, None, &[]).await {
                // The test fails by its own condition if heartbeats do not arrive.
                let _ = writeln!(std::io::stderr(), "heartbeat: {error:#}");
            }
        }
    })))
}

/// Returns a client with the Kubernetes token of the user.
async fn token_client(tenant: &Tenant<'_>) -> anyhow::Result<ApiClient> {
    let env = odc_local(&tenant.cluster.directory, &["env"]).await?.check()?;
    let variable = |name: &str| {
        let prefix = format!("export {name}=");
        let value = env.lines().find_map(|line| line.strip_prefix(&prefix));
        value.map(|value| value.trim_matches('\'').to_owned()).with_context(|| format!("no {name} in:\n{env}"))
    };
    let token = tenant.kubectl(&["config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}"]).await?;
    ApiClient::new(&variable("ODC_API_URL")?, &std::fs::read_to_string(variable("ODC_API_CA")?)?, &token)
}

#[tokio::test]
async fn server_is_created_extended_and_deleted_through_the_api() -> anyhow::Result<()> {
    with_tenant(async |tenant| {
        let token = token_client(tenant).await?;
        let body = json!({"description": "test", "scopes": ["servers:read", "servers:write"], "validFor": "1h"});
        let created = token.post("/keys", &body).await?;
        assert_eq!(created.status, 201, "{created:?}");
        let created = created.body;
        let key = created["key"].as_str().context("a key")?;
        let api = token.with_credential(key);

        let mut events = api.events("/events").await?;

        // Repeated with the same key, the request is executed once.
        let server = json!({"name": "box", "flavor": "cpu", "lifetime": "1h", "home": {"ephemeral": "1Gi"},
            "idle": {"action": "None"}});
        let headers = [("idempotency-key", "create-box")];
        let post = || api.send(Method::POST, "/devservers", Some(&server), &headers);
        let (first, second) = tokio::try_join!(post(), post())?;
        assert_eq!((first.status, second.status), (202, 202), "{first:?} {second:?}");
        assert_eq!(first.body["location"], second.body["location"]);

        let is_running = |event: &Value| event["server"] == "box" && event["data"]["status"]["phase"] == "Running";
        let event = events.wait_for(is_running).await?;
        assert_eq!(event["user"], tenant.user.as_str(), "{event}");
        drop(events);

        let object = tenant.get("box").await?;
        assert_eq!(object["metadata"]["annotations"]["odc.dev/requested-by"], tenant.user.as_str(), "{object}");
        let shown = api.get("/devservers/box").await?;
        assert_eq!((shown.status, &shown.body["status"]["phase"]), (200, &json!("Running")), "{shown:?}");
        assert!(shown.body["observedAt"].is_string(), "{shown:?}");

        let extended = api.change(Method::POST, "/devservers/box/extend", Some(&json!({"by": "1h"}))).await?;
        assert_eq!(extended["state"], "Succeeded", "{extended}");
        wait::until("extended server", TIMEOUT, async || {
            let granted = tenant.get("box").await?["status"]["lifetime"]["granted"].clone();
            anyhow::ensure!(granted == "2h", "{granted}");
            Ok(())
        })
        .await?;
        let beat = api.send(Method::POST, "/devservers/box/heartbeat", None, &[]).await?;
        assert_eq!(beat.status, 202, "{beat:?}");

        // The API applies the rules of the CRD before it accepts a request.
        let invalid = json!({"lifetime": "9000h"});
        let problem = api.send(Method::PATCH, "/devservers/box", Some(&invalid), &[]).await?;
        assert_eq!(problem.status, 422, "{problem:?}");
        assert!(problem.body["detail"].as_str().is_some_and(|text| text.contains("at most 2160h")), "{problem:?}");

        let problem = api.get("/devservers/unknown").await?;
        assert_eq!((problem.status, &problem.body["status"]), (404, &json!(404)), "{problem:?}");
        let problem = api.with_credential("odc_guess").get("/devservers").await?;
        assert_eq!((problem.status, &problem.body["status"]), (401, &json!(401)), "{problem:?}");

        let deleted = api.change(Method::DELETE, "/devservers/box", None).await?;
        assert_eq!(deleted["state"], "Succeeded", "{deleted}");
        tenant.wait_for_phase("box", "Cancelled").await?;

        // The projection has the history.
        wait::until("history of the server", TIMEOUT, async || {
            let timeline = api.get("/devservers/box/timeline").await?.body;
            anyhow::ensure!(timeline.to_string().contains("Cancelled"), "{timeline}");
            let usage = token.get("/usage").await?.body;
            anyhow::ensure!(usage["items"][0]["serverSeconds"].as_u64().is_some_and(|seconds| seconds > 0), "{usage}");
            Ok(())
        })
        .await?;
        let audit = token.get("/audit?limit=100").await?.body;
        let actions = |name: &str| {
            let items = audit["items"].as_array().into_iter().flatten();
            items.filter(|entry| entry["action"] == name && entry["result"] == "Accepted").count()
        };
        assert_eq!((actions("devserver.create"), actions("devserver.delete")), (1, 1), "{audit}");

        let id = created["id"].as_str().context("the id of the key")?;
        let revoked = token.delete(&format!("/keys/{id}")).await?;
        assert!((200..300).contains(&revoked.status), "{revoked:?}");
        wait::until("revoked key", TIMEOUT, async || {
            let answer = api.get("/devservers").await?;
            anyhow::ensure!(answer.status == 401, "{answer:?}");
            Ok(())
        })
        .await
    })
    .await
}
