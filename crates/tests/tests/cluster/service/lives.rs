//! Lives of servers through the API, while the API, the worker, PostgreSQL and the operator are killed in turn.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::future::try_join_all;
use http::Method;
use odc_tests::api_client::ApiClient;
use odc_tests::operator::Operator;
use odc_tests::service::ServiceProcess;
use odc_tests::sql::{administrator, count, rows};
use odc_tests::{Service, manifests, wait, with_service};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::time::sleep;

use super::fixture::{TIMEOUT, check_requests_ended_once, check_usage, flavor, server};

const LIVES: usize = if cfg!(feature = "full") { 200 } else { 10 };
/// Lives at the same time. A kill concerns all of them.
const CONCURRENT_LIVES: usize = 5;
const SEED: u64 = 20;
/// The longest time between two kills. A life without faults takes about two seconds.
const MAX_KILL_INTERVAL_MILLISECONDS: u64 = 1_000;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Longer than the visibility timeout and the restart of all parts.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// The processes of a test.
struct Processes {
    api: ServiceProcess,
    worker: ServiceProcess,
    operator: Operator,
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Api,
    Worker,
    Database,
    Operator,
}

impl Victim {
    const ALL: [Self; 4] = [Self::Api, Self::Worker, Self::Database, Self::Operator];
}

impl Processes {
    /// Kills a process and starts it again, without waiting until it is ready.
    async fn kill(&mut self, service: &Service<'_>, victim: Victim) -> anyhow::Result<()> {
        match victim {
            Victim::Api => {
                self.api.kill().await?;
                self.api.restart()
            }
            Victim::Worker => {
                self.worker.kill().await?;
                self.worker.restart()
            }
            Victim::Database => service.database.crash().await,
            Victim::Operator => service.replace_operator(&mut self.operator).await,
        }
    }
}

#[tokio::test]
async fn lives_of_servers_are_complete_although_every_process_is_killed() -> anyhow::Result<()> {
    with_service(async |service| {
        service.plane.add_node("node-1", &[("cpu", "64"), ("memory", "512Gi"), ("ephemeral-storage", "1Ti")]).await?;
        let (operator, api, worker) = tokio::try_join!(
            service.start_operator(&[]),
            service.api().start(),
            service.worker().setting("VISIBILITY_TIMEOUT_SECONDS", "5").setting("POLL_INTERVAL_SECONDS", "1").start()
        )?;
        let mut processes = Processes { api, worker, operator };
        manifests::apply(&service.plane.client, &flavor()).await?;
        service.create_user_with_operator("ada").await?;
        let ada = service.sign_in(&processes.api, "ada").await?;

        let mut random = StdRng::seed_from_u64(SEED);
        let mut victims = Victim::ALL.into_iter().cycle();
        for first in (0..LIVES).step_by(CONCURRENT_LIVES) {
            let lives = (first..first + CONCURRENT_LIVES).map(|number| live(&ada, number));
            let kills = async {
                for _ in 0..CONCURRENT_LIVES {
                    sleep(Duration::from_millis(random.random_range(0..MAX_KILL_INTERVAL_MILLISECONDS))).await;
                    let victim = victims.next().unwrap_or(Victim::Api);
                    processes.kill(service, victim).await.with_context(|| format!("killing {victim:?}"))?;
                }
                anyhow::Ok(())
            };
            let (lives, kills) = tokio::join!(try_join_all(lives), kills);
            kills?;
            lives.with_context(|| {
                let Processes { api, worker, operator } = &processes;
                format!("API:\n{}\nworker:\n{}\noperator:\n{}", api.log_tail(), worker.log_tail(), operator.log_tail())
            })?;
        }
        check(service, &ada).await
    })
    .await
}

/// Creates a server, extends it when it runs, and deletes it. Every change is repeated until it is accepted.
async fn live(ada: &ApiClient, number: usize) -> anyhow::Result<()> {
    let name = format!("box-{number}");
    let path = format!("/devservers/{name}");
    change(ada, Method::POST, "/devservers", Some(&server(&name)), &name).await?;
    wait_phase(ada, &path, "Running").await?;
    change(ada, Method::POST, &format!("{path}/extend"), Some(&json!({"by": "1h"})), &name).await?;
    change(ada, Method::DELETE, &path, None, &name).await?;
    wait_phase(ada, &path, "Cancelled").await
}

/// Sends a change with an idempotency key until it is accepted, and waits until it is executed.
async fn change(ada: &ApiClient, method: Method, path: &str, body: Option<&Value>, life: &str) -> anyhow::Result<()> {
    let key = format!("{life} {method} {path}");
    let accepted = available(async || ada.send(method.clone(), path, body, &[("idempotency-key", &key)]).await).await?;
    anyhow::ensure!(accepted.status == 202, "{key}: {accepted:?}");
    let path = format!("/requests/{}", accepted.body["requestId"].as_str().unwrap_or_default());
    wait::until(&key, STEP_TIMEOUT, async || {
        let request = available(async || ada.get(&path).await).await?.body;
        anyhow::ensure!(request["state"] == "Succeeded", "{request}");
        Ok(())
    })
    .await
}

async fn wait_phase(ada: &ApiClient, path: &str, phase: &str) -> anyhow::Result<()> {
    wait::until(&format!("{path} {phase}"), STEP_TIMEOUT, async || {
        let server = available(async || ada.get(path).await).await?.body;
        anyhow::ensure!(server["status"]["phase"] == phase, "{server}");
        Ok(())
    })
    .await
}

/// Repeats a request while the API does not answer, or answers that a part of the service is unavailable.
async fn available(
    mut send: impl AsyncFnMut() -> anyhow::Result<odc_tests::api_client::Response>,
) -> anyhow::Result<odc_tests::api_client::Response> {
    let answer = async {
        loop {
            match send().await {
                Ok(response) if response.status != 503 => return response,
                // The rate of retries stays below the limit of the API.
                Ok(_) | Err(_) => sleep(RETRY_INTERVAL).await,
            }
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, answer).await.context("the API has not answered")
}

async fn check(service: &Service<'_>, ada: &ApiClient) -> anyhow::Result<()> {
    let sql = &mut administrator(service.database).await?;
    wait::until("projection of the last transitions", TIMEOUT, async || {
        let finished = count(sql, "devservers WHERE phase = 'Cancelled' AND finished_at IS NOT NULL").await?;
        anyhow::ensure!(finished == LIVES as u64, "{finished} of {LIVES}");
        Ok(())
    })
    .await?;
    check_requests_ended_once(sql).await?;
    let actions = rows(
        sql,
        "SELECT action, result, count(*) FROM audit_log WHERE object_kind = 'DevServer' GROUP BY action, result
            ORDER BY action",
    )
    .await?;
    let expected = ["create", "delete", "extend"].map(|action| format!("(devserver.{action},Accepted,{LIVES})"));
    assert_eq!(actions, expected, "one audit entry per change");
    check_lives(sql).await?;
    check_usage(sql).await?;
    assert_eq!(count(sql, "usage_intervals WHERE ended_at IS NULL").await?, 0);
    let listed = ada.get("/devservers?limit=500").await?;
    let servers = listed.body["items"].as_array().context("items")?;
    assert_eq!(servers.len(), LIVES);
    for server in servers {
        assert_eq!(server["status"]["lifetime"]["granted"], "2h", "extended once: {server}");
    }
    Ok(())
}

/// Checks that every server was created once, ran once, and that its creations in Kubernetes are one.
async fn check_lives(sql: &mut PgConnection) -> anyhow::Result<()> {
    assert_eq!(count(sql, "devservers").await?, LIVES as u64, "each server was created once");
    let wrong = rows(
        sql,
        "SELECT s.name, (SELECT count(*) FROM usage_intervals u WHERE u.server_uid = s.uid) AS runs FROM devservers s
            WHERE (SELECT count(*) FROM usage_intervals u WHERE u.server_uid = s.uid) <> 1",
    )
    .await?;
    anyhow::ensure!(wrong.is_empty(), "servers that did not run once: {wrong:#?}");
    Ok(())
}
