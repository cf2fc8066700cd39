//! Objects and checks that tests of the service share.

use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use kube::api::{Api, ListParams};
use kube::runtime::wait::await_condition;
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::api_client::{ApiClient, Response};
use odc_tests::sql::{self, count};
use odc_tests::{Service, manifests, wait};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::endpoint_address::EndpointAddress;
use crate::operator::queue_api::{self, QueueServer};

pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the flavor `cpu` and the user `ada` with a namespace. No operator runs.
pub async fn create_objects(service: &Service<'_>) -> anyhow::Result<()> {
    manifests::apply(&service.plane.client, &flavor()).await?;
    service.create_user("ada").await
}

/// Registers `queue.odc.dev` and starts an operator that serves it.
pub async fn start_queue(service: &Service<'_>) -> anyhow::Result<QueueServer> {
    let client = &service.plane.client;
    queue_api::register(client).await?;
    let address = EndpointAddress::allocate()?;
    let settings = [("ODC_QUEUE_IP", address.ip.as_str()), ("ODC_QUEUE_PORT", address.port.as_str())];
    let operator = service.start_operator(&settings).await?;
    queue_api::wait_served(client, &address).await.with_context(|| operator.log_tail())?;
    Ok(QueueServer { operator, address })
}

/// Returns the flavor `cpu`.
pub fn flavor() -> Value {
    json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"}, "spec": {
        "default": true,
        "privilege": "Sudo",
        "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"},
    }})
}

/// Returns the body that creates a server.
pub fn server(name: &str) -> Value {
    json!({"name": name, "flavor": "cpu", "lifetime": "1h", "home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}})
}

/// Sends the request to create a server, with an idempotency key, as often as the rate limit and the load require.
pub async fn create_server(client: &ApiClient, name: &str) -> anyhow::Result<Response> {
    let (body, key) = (server(name), format!("create-{name}"));
    loop {
        let response = client.send(Method::POST, "/devservers", Some(&body), &[("idempotency-key", &key)]).await?;
        match response.status {
            202 => return Ok(response),
            // A busy machine did not answer in time.
            408 => {}
            429 | 503 => tokio::time::sleep(Duration::from_secs(response.header("retry-after").parse()?)).await,
            _ => anyhow::bail!("{response:?}"),
        }
    }
}

/// Returns the servers of user ada.
pub async fn servers(service: &Service<'_>) -> anyhow::Result<Vec<DevServer>> {
    let servers: Api<DevServer> = Api::namespaced(service.plane.client.clone(), "dev-ada");
    Ok(servers.list(&ListParams::default()).await?.items)
}

/// Waits until no request is pending, as long as some end.
pub async fn wait_requests_ended(sql: &mut PgConnection) -> anyhow::Result<()> {
    let total = usize::try_from(count(sql, "requests").await?)?;
    let mut ended = async || Ok(usize::try_from(count(sql, "requests WHERE state <> 'Pending'").await?)?);
    let Err(error) = wait::until_count("ended requests", total, TIMEOUT, &mut ended).await else { return Ok(()) };
    let messages = "SELECT r.object_name, q.msg_id, q.read_ct, q.vt - now() AS visible_in, q.headers
        FROM requests r LEFT JOIN pgmq.q_gpu_reservations q ON q.message ->> 'request' = r.id::text
        WHERE r.state = 'Pending' LIMIT 10";
    Err(error.context(format!("pending requests: {:#?}", sql::rows(sql, messages).await?)))
}

/// Checks that every request has ended exactly once: no message is left, those of failed requests are archived once, and
/// each request has one audit entry of its acceptance and one of its failure.
pub async fn check_requests_ended_once(sql: &mut PgConnection) -> anyhow::Result<()> {
    let wrong = sql::rows(
        sql,
        "SELECT * FROM (
            SELECT r.id, r.state, r.reason,
                (SELECT count(*) FROM audit_log a WHERE a.request_id = r.id AND a.result = 'Accepted') AS accepted,
                (SELECT count(*) FROM audit_log a WHERE a.request_id = r.id AND a.result = r.state) AS failed,
                (SELECT count(*) FROM audit_log a WHERE a.request_id = r.id) AS entries,
                (SELECT count(*) FROM pgmq.a_gpu_reservations m WHERE m.message ->> 'request' = r.id::text) AS archived
            FROM requests r
        ) AS one
        WHERE state = 'Pending' OR accepted <> 1 OR entries <> accepted + failed
            OR failed <> (state <> 'Succeeded')::int OR archived <> (state <> 'Succeeded')::int
        LIMIT 10",
    )
    .await?;
    anyhow::ensure!(wrong.is_empty(), "requests that did not end once: {wrong:#?}");
    for queue in ["gpu_reservations", "disk_operations", "admin_operations"] {
        let left = count(sql, &format!("pgmq.q_{queue}")).await?;
        anyhow::ensure!(left == 0, "{left} messages are left in {queue}");
    }
    Ok(())
}

/// Waits until a server is in a phase.
pub async fn wait_phase(servers: &Api<DevServer>, name: &str, phase: Phase) -> anyhow::Result<()> {
    let in_phase = |server: Option<&DevServer>| {
        server.and_then(|server| server.status.as_ref()).and_then(|status| status.phase) == Some(phase)
    };
    let finished = tokio::time::timeout(TIMEOUT, await_condition(servers.clone(), name, in_phase)).await;
    finished.with_context(|| format!("server {name} is not {phase}"))??;
    Ok(())
}

/// Checks that the usage intervals of every server are those of its phase transitions: they do not overlap, and their
/// sum is the time in which the server held its devices.
pub async fn check_usage(sql: &mut PgConnection) -> anyhow::Result<()> {
    let overlapping = sql::rows(
        sql,
        "SELECT a.server_uid, a.started_at, b.started_at FROM usage_intervals a JOIN usage_intervals b
            ON a.server_uid = b.server_uid AND a.started_at < b.started_at
                AND COALESCE(a.ended_at, 'infinity') > b.started_at",
    )
    .await?;
    anyhow::ensure!(overlapping.is_empty(), "overlapping intervals: {overlapping:#?}");
    // A transition to a phase that holds devices counts until the next transition. Stopping continues what was before.
    let wrong = sql::rows(
        sql,
        "WITH known AS (SELECT * FROM devserver_timeline WHERE phase <> 'Stopping'),
        phase AS (
            SELECT server_uid, phase, at, lead(at) OVER (PARTITION BY server_uid ORDER BY at, position) AS until FROM known
        ), held AS (
            SELECT server_uid, sum(extract(epoch FROM COALESCE(until, 'epoch') - at)) AS seconds FROM phase
            WHERE phase IN ('Starting', 'Running', 'Hibernating') GROUP BY server_uid
        ), used AS (
            SELECT server_uid, sum(extract(epoch FROM COALESCE(ended_at, 'epoch') - started_at)) AS seconds
            FROM usage_intervals GROUP BY server_uid
        )
        SELECT s.name, held.seconds, used.seconds FROM devservers s
            LEFT JOIN held ON held.server_uid = s.uid LEFT JOIN used ON used.server_uid = s.uid
        WHERE held.seconds IS DISTINCT FROM used.seconds",
    )
    .await?;
    anyhow::ensure!(wrong.is_empty(), "intervals that differ from the timeline: {wrong:#?}");
    Ok(())
}
