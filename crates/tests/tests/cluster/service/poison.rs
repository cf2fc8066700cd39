//! Messages that cannot be executed, among others that can.

use std::time::Duration;

use jiff::Timestamp;
use odc_tests::apifault::{Action, Apifault, Fault, Pattern, Plan, Verb};
use odc_tests::sql::{administrator, count, execute, value};
use odc_tests::with_service;
use sqlx::PgConnection;
use tokio::time::MissedTickBehavior;

use super::fixture::{TIMEOUT, check_requests_ended_once, create_objects, server, wait_requests_ended};

/// Half of them without poison, for comparison.
const REQUESTS: u32 = if cfg!(feature = "full") { 10_000 } else { 400 };
/// One of this number of requests is poison, in the second half.
const POISON_INTERVAL: u32 = if cfg!(feature = "full") { 50 } else { 10 };
/// Below what the worker and the API server handle, so that a request waits only because of others.
const REQUESTS_PER_SECOND: u32 = 50;
const MAX_READS: u32 = 3;
/// Poison ends no earlier than this after it was accepted.
const DEADLINE_SECONDS: &str = "10";
/// Checked in the long form, which runs alone on the machine.
const MAX_ADDITIONAL_SECONDS: f64 = 1.0;

/// Inserts a request like the first one, with its message and audit entry, as the API does.
async fn accept(sql: &mut PgConnection, name: &str) -> anyhow::Result<()> {
    let columns = "user_name, actor, key_id, queue, action, object_kind";
    execute(
        sql,
        &format!(
            "WITH first AS (SELECT * FROM requests ORDER BY created_at LIMIT 1), request AS (
                INSERT INTO requests (id, object_name, payload, body_hash, {columns})
                SELECT gen_random_uuid(), '{name}', jsonb_set(payload, '{{name}}', '\"{name}\"'), body_hash, {columns}
                FROM first RETURNING *
            ), entry AS (
                INSERT INTO audit_log (actor, actor_kind, key_id, user_name, action, object_kind, object_name, result,
                    request_id)
                SELECT actor, 'ApiKey', key_id, user_name, action, object_kind, object_name, 'Accepted', id FROM request
            )
            SELECT pgmq.send('gpu_reservations', jsonb_build_object('version', 1, 'request', id)) FROM request"
        ),
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn other_requests_end_before_poison_accepted_earlier() -> anyhow::Result<()> {
    with_service(async |service| {
        // The API server fails all writes of these servers.
        let poison = Pattern::verb(Verb::Create, "devservers.odc.dev").with_name_prefix("poison-");
        let fault = Fault::request(1).matching(poison).before(Action::answer(500)).always();
        let proxy = Apifault::start(&service.plane.kubeconfig, Plan::new([fault])).await?;
        let worker = service.worker().api_server(&proxy)?;
        let worker = worker
            .setting("MAX_READS", &MAX_READS.to_string())
            .setting("ODC_WORKER_DEADLINE_SECONDS", DEADLINE_SECONDS);
        let (api, worker) = tokio::try_join!(service.api().start(), worker.start())?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        assert_eq!(ada.post("/devservers", &server("box")).await?.status, 202);

        let sql = &mut administrator(service.database).await?;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / REQUESTS_PER_SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut with_poison_since = Timestamp::now();
        for number in 0..REQUESTS {
            ticks.tick().await;
            if number == REQUESTS / 2 {
                with_poison_since = Timestamp::now();
            }
            let is_poison = number >= REQUESTS / 2 && number % POISON_INTERVAL == 0;
            accept(sql, &format!("{}-{number}", if is_poison { "poison" } else { "box" })).await?;
        }
        wait_requests_ended(sql).await?;
        check_requests_ended_once(sql).await?;

        let overtaken = "requests AS poison JOIN requests AS other
                ON other.created_at BETWEEN poison.created_at AND poison.created_at + interval '1 second'
            WHERE poison.object_name LIKE 'poison-%' AND other.object_name LIKE 'box-%'";
        assert!(count(sql, overtaken).await? > 0);
        assert_eq!(count(sql, &format!("{overtaken} AND other.finished_at >= poison.finished_at")).await?, 0);
        let additional = additional_seconds(sql, with_poison_since).await?;
        assert!(!cfg!(feature = "full") || additional < MAX_ADDITIONAL_SECONDS, "{additional:.3}s");

        let poison = u64::from(REQUESTS / 2 / POISON_INTERVAL);
        let failed = "requests WHERE object_name LIKE 'poison-%' AND state = 'Failed' AND reason = 'DeadlineExceeded'";
        assert_eq!(count(sql, failed).await?, poison);
        let archived = format!(
            "pgmq.a_gpu_reservations WHERE headers ->> 'reason' = 'DeadlineExceeded' AND headers ->> 'message' <> ''
                AND read_ct >= {MAX_READS}"
        );
        assert_eq!(count(sql, &archived).await?, poison);
        assert_eq!(count(sql, "requests WHERE state <> 'Succeeded'").await?, poison);
        assert!(worker.pid().is_some());
        Ok(())
    })
    .await
}

/// Returns by how much the longest time of a request is longer with poison than without it.
async fn additional_seconds(sql: &mut PgConnection, with_poison_since: Timestamp) -> anyhow::Result<f64> {
    let longest = async |sql: &mut PgConnection, comparison: &str| {
        let condition = format!("object_name LIKE 'box-%' AND created_at {comparison} '{with_poison_since}'");
        let seconds =
            format!("SELECT max(extract(epoch FROM finished_at - created_at)) FROM requests WHERE {condition}");
        anyhow::Ok(value(sql, &seconds).await?.parse::<f64>()?)
    };
    Ok(longest(sql, ">=").await? - longest(sql, "<").await?)
}

#[tokio::test]
async fn message_that_kills_the_worker_is_archived_and_the_others_are_executed() -> anyhow::Result<()> {
    with_service(async |service| {
        let crash = Pattern::verb(Verb::Create, "devservers.odc.dev").with_name("crash");
        let fault = Fault::request(1).matching(crash).before(Action::Kill).always();
        let proxy = Apifault::start(&service.plane.kubeconfig, Plan::new([fault])).await?;
        let api = service.api().start().await?;
        create_objects(service).await?;
        let ada = service.sign_in(&api, "ada").await?;
        let names: Vec<String> =
            (0..20).map(|number| if number == 5 { "crash".to_owned() } else { format!("box-{number}") }).collect();
        for name in &names {
            assert_eq!(ada.post("/devservers", &server(name)).await?.status, 202);
        }
        let worker = service.worker().api_server(&proxy)?.setting("MAX_READS", &MAX_READS.to_string());
        let mut worker = worker.spawn()?;
        for kill in 1..=u64::from(MAX_READS) {
            proxy.set_client(worker.pid().unwrap_or_default())?;
            proxy.wait_fired(kill, TIMEOUT).await?;
            worker.kill().await?;
            worker.restart()?;
        }
        let sql = &mut administrator(service.database).await?;
        wait_requests_ended(sql).await?;
        check_requests_ended_once(sql).await?;
        let failed = "SELECT string_agg(object_name || ' ' || reason, ', ') FROM requests WHERE state <> 'Succeeded'";
        assert_eq!(value(sql, failed).await?, "crash TooManyReads");
        let archived = "pgmq.a_gpu_reservations WHERE headers ->> 'reason' = 'TooManyReads'";
        assert_eq!(count(sql, archived).await?, 1);
        assert_eq!(proxy.fired(), u64::from(MAX_READS), "the message is executed no more often");
        Ok(())
    })
    .await
}
