//! The database is unavailable for a while.

use std::time::{Duration, Instant};

use http::Method;
use kube::api::{Api, PostParams};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::api_client::{ApiClient, Response};
use odc_tests::sql::{administrator, count};
use odc_tests::{manifests, wait, with_service};
use serde_json::json;

use super::fixture::{TIMEOUT, check_requests_ended_once, flavor, server, wait_phase, wait_requests_ended};

const OUTAGE: Duration = Duration::from_secs(if cfg!(feature = "full") { 60 } else { 5 });
/// How long a key is accepted that cannot be checked, with the time of the check.
const MAX_KEY_AGE: Duration = Duration::from_secs(10);
/// The time limit of a request.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(12);

/// Checks that a response is a problem that tells the client to repeat the request.
fn assert_unavailable(response: &Response) {
    assert_eq!((response.status, &response.body["status"]), (503, &json!(503)), "{response:?}");
    assert!(response.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{response:?}");
}

async fn create(client: &ApiClient, name: &str) -> anyhow::Result<Response> {
    client.send(Method::POST, "/devservers", Some(&server(name)), &[("idempotency-key", name)]).await
}

#[tokio::test]
async fn service_continues_after_an_outage_of_the_database() -> anyhow::Result<()> {
    with_service(async |service| {
        service.plane.add_node("node-1", &[("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti")]).await?;
        let (api_database, worker_database) = (service.api().dbfault()?, service.worker().dbfault()?);
        let (operator, api, worker) = tokio::try_join!(
            service.start_operator(&[]),
            service.api().database(&api_database).start(),
            service.worker().database(&worker_database).setting("POLL_INTERVAL_SECONDS", "1").start(),
        )?;
        manifests::apply(&service.plane.client, &flavor()).await?;
        service.create_user_with_operator("ada").await?;
        let by_key = service.sign_in(&api, "ada").await?;
        let by_token = by_key.with_credential(&service.token("ada").await?);
        let stranger = by_key.with_credential(&service.create_key("ada", &[], "1h").await?);
        assert_eq!(create(&by_key, "before").await?.status, 202);
        let servers: Api<DevServer> = Api::namespaced(service.plane.client.clone(), "dev-ada");
        wait_phase(&servers, "before", Phase::Running).await?;
        assert_eq!(by_token.get("/devservers/before").await?.status, 200);

        tokio::try_join!(api_database.down(), worker_database.down())?;
        let down_at = Instant::now();
        // Reads of known callers, whose rights are known: for as long as a key may be unchecked, and a token is valid.
        assert_eq!(by_key.get("/devservers/before").await?.status, 200);
        assert_unavailable(&create(&by_key, "during").await?);
        assert_unavailable(&stranger.get("/devservers/before").await?);

        // The core works: a server that was created with kubectl runs.
        let mut other = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServer",
            "metadata": {"name": "kubectl", "namespace": "dev-ada"}, "spec": server("kubectl")});
        other["spec"].as_object_mut().into_iter().for_each(|spec| drop(spec.remove("name")));
        servers
            .create(
                &PostParams { field_manager: Some("kubectl-create".to_owned()), ..PostParams::default() },
                &serde_json::from_value(other)?,
            )
            .await?;
        wait_phase(&servers, "kubectl", Phase::Running).await?;
        while down_at.elapsed() < OUTAGE {
            let started = Instant::now();
            let shown = by_token.get("/devservers/kubectl").await?;
            assert_eq!((shown.status, &shown.body["status"]["phase"]), (200, &json!("Running")), "{shown:?}");
            assert_unavailable(&create(&by_token, "during").await?);
            assert!(started.elapsed() < MAX_RESPONSE_TIME, "{:?}", started.elapsed());
            let by_key = by_key.get("/devservers/kubectl").await?;
            assert!(by_key.status == 503 || (by_key.status == 200 && down_at.elapsed() < MAX_KEY_AGE), "{by_key:?}");
        }
        assert!(api.get("/readyz").await?.contains("200 OK"), "reads are served");
        assert!(!worker.get("/readyz").await?.contains("200 OK"), "the worker reads no messages");

        tokio::try_join!(api_database.up(), worker_database.up())?;
        let accepted = wait::until("accepted request", TIMEOUT, async || {
            let accepted = create(&by_key, "during").await?;
            anyhow::ensure!(accepted.status == 202, "{accepted:?}");
            Ok(accepted)
        })
        .await?;
        let request = by_key.wait_executed(accepted.body["requestId"].as_str().unwrap_or_default()).await?;
        assert_eq!(request["state"], "Succeeded");
        wait_phase(&servers, "during", Phase::Running).await?;
        // What happened meanwhile is recorded.
        let sql = &mut administrator(service.database).await?;
        wait::until("projection of the outage", TIMEOUT, async || {
            let running = count(sql, "devservers WHERE phase = 'Running' AND deleted_at IS NULL").await?;
            anyhow::ensure!(running == 3, "{running} running servers");
            let adopted = "audit_log WHERE object_name = 'kubectl' AND actor = 'kubectl-create'
                AND action = 'devserver.create' AND result = 'Observed'";
            anyhow::ensure!(count(sql, adopted).await? == 1, "no audit entry of the server created with kubectl");
            Ok(())
        })
        .await?;
        wait_requests_ended(sql).await?;
        check_requests_ended_once(sql).await?;
        assert!(operator.get("/readyz").await?.contains("200 OK"));
        Ok(())
    })
    .await
}
