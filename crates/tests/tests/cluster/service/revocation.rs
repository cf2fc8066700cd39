//! Revoked API keys on several replicas.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use odc_tests::api_client::ApiClient;
use odc_tests::dbfault::{Action, Fault};
use odc_tests::service::ServiceProcess;
use odc_tests::{Service, wait, with_service};
use serde_json::json;

use super::fixture::{TIMEOUT, create_objects};

/// A notification takes milliseconds.
const MAX_NOTIFIED: Duration = Duration::from_secs(1);
/// How long a key is accepted that no notification can reach, with the time of a response.
const MAX_UNNOTIFIED: Duration = Duration::from_secs(6);

/// Creates a key that both replicas know, revokes it at the first one, and returns how long the second one accepts it.
async fn revoke(service: &Service<'_>, ada: &ApiClient, second: &ServiceProcess) -> anyhow::Result<Duration> {
    let created = ada.post("/keys", &json!({"description": "test", "scopes": ["servers:read"]})).await?;
    let key = created.body["key"].as_str().with_context(|| format!("{created:?}"))?;
    let clients = [ada.with_credential(key), service.client(second, key)?];
    for client in &clients {
        assert_eq!(client.get("/devservers").await?.status, 200);
    }
    let mut events = clients[1].events("/events").await?;
    let path = format!("/keys/{}", created.body["id"].as_str().unwrap_or_default());
    assert_eq!(ada.delete(&path).await?.status, 204);
    let revoked_at = Instant::now();
    let [first, second] = &clients;
    wait::until("revoked key at the second replica", TIMEOUT, async || {
        let response = second.get("/devservers").await?;
        anyhow::ensure!(response.status == 401, "{response:?}");
        Ok(())
    })
    .await?;
    let accepted = revoked_at.elapsed();
    assert_eq!(first.get("/devservers").await?.status, 401);
    let ended = async {
        while events.next().await?.is_some() {}
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, ended).await.context("the stream of a revoked key continues")??;
    Ok(accepted)
}

async fn wait_notifications(client: &ApiClient, expected: &str) -> anyhow::Result<()> {
    wait::until(&format!("notifications {expected}"), TIMEOUT, async || {
        let health = client.get("/health").await?.body;
        anyhow::ensure!(health["notifications"] == expected, "{health}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn revoked_key_is_rejected_by_all_replicas() -> anyhow::Result<()> {
    with_service(async |service| {
        let database = service.api().dbfault()?;
        let (first, second) = tokio::try_join!(service.api().start(), service.api().database(&database).start())?;
        create_objects(service).await?;
        let ada = service.sign_in(&first, "ada").await?;
        let health = service.sign_in(&second, "ada").await?;
        wait_notifications(&health, "ok").await?;
        let accepted = revoke(service, &ada, &second).await?;
        assert!(accepted < MAX_NOTIFIED, "accepted for {accepted:?}");

        // LISTEN fails, and statements on other connections succeed.
        (1..=60).for_each(|nth| database.add(Fault::statement(nth).containing("LISTEN").before(Action::Cut)));
        database.reset();
        wait_notifications(&health, "not received").await?;
        let accepted = revoke(service, &ada, &second).await?;
        assert!(accepted < MAX_UNNOTIFIED, "accepted for {accepted:?}");
        assert_eq!(health.get("/devservers").await?.status, 200, "other keys are accepted");
        Ok(())
    })
    .await
}
