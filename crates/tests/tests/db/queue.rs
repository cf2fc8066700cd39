//! Delivery of messages: fenced by (`msg_id`, `read_ct`), counted, and finished in one transaction.

use std::collections::BTreeMap;

use odc_store::queue::{Delay, FinishResult, Message, Queue};
use odc_store::request::State;
use odc_store::{Settings, Store};
use odc_tests::dbfault::Dbfault;
use odc_tests::{DatabaseRole, with_migrated_database};
use serde_json::json;
use uuid::Uuid;

use crate::fixture::{
    LONG, TestRequest, accept_many, administrator, count, execute, fail, finish, read, succeed, value,
};

#[tokio::test]
async fn message_is_delivered_with_its_request_from_every_queue() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let mut accepted = BTreeMap::new();
        for queue in Queue::ALL {
            let request = TestRequest { queue, ..TestRequest::new() };
            request.accept(&api).await?;
            accepted.insert(queue, request.id);
        }
        let messages = read(&worker, LONG).await?;
        let delivered: BTreeMap<Queue, Uuid> =
            messages.iter().map(|message| (message.delivery.queue, message.request.as_ref().unwrap().id)).collect();
        assert_eq!(delivered, accepted);
        let work = messages[0].request.as_ref().unwrap();
        assert_eq!((work.user.as_str(), work.action.as_str()), ("ada", "devserver.create"));
        assert_eq!(work.payload["flavor"], "cpu");
        assert!(read(&worker, LONG).await?.is_empty(), "the messages are invisible");
        assert!(worker.queue_depths().await?.iter().all(|depth| depth.messages == 1 && depth.oldest.is_some()));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn limit_applies_to_each_queue() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        accept_many(&api, 3).await?;
        TestRequest { queue: Queue::DiskOperations, ..TestRequest::new() }.accept(&api).await?;
        let limit = |queue| u32::from(queue == Queue::Reservations) * 2;
        let read = worker.read_messages(limit, LONG).await?;
        assert_eq!(read.len(), 2);
        assert!(read.iter().all(|message| message.delivery.queue == Queue::Reservations));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn success_deletes_the_message_without_a_second_audit_entry() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let ids = accept_many(&api, 1).await?;
        let messages = read(&worker, LONG).await?;
        assert_eq!(worker.finish_messages(&[succeed(&messages[0])]).await?, [messages[0].delivery]);
        let stored = api.get_request(ids[0]).await?.unwrap();
        assert_eq!(stored.state, State::Succeeded);
        assert!(stored.finished_at.is_some());
        let sql = &mut administrator(database).await?;
        assert_eq!(count(sql, "pgmq.q_gpu_reservations").await?, 0);
        assert_eq!(count(sql, "pgmq.a_gpu_reservations").await?, 0);
        assert_eq!(count(sql, "audit_log").await?, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn finished_request_has_no_environment_variables() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        for spec in [json!({"flavor": "cpu", "env": [{"name": "TOKEN", "value": "secret"}]}), json!({"flavor": "cpu"})]
        {
            TestRequest { payload: json!({"name": "box", "spec": spec}), ..TestRequest::new() }.accept(&api).await?;
        }
        let messages = read(&worker, LONG).await?;
        assert_eq!(messages[0].request.as_ref().unwrap().payload["spec"]["env"][0]["value"], "secret");
        worker.finish_messages(&[succeed(&messages[0]), fail(&messages[1], "Poison")]).await?;
        let sql = &mut administrator(database).await?;
        let payloads = value(sql, "SELECT string_agg(payload::text, ' ') FROM requests").await?;
        assert_eq!(payloads, [r#"{"name": "box", "spec": {"flavor": "cpu"}}"#; 2].join(" "));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn failure_archives_the_message_with_its_reason_and_audit_entry() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let ids = accept_many(&api, 2).await?;
        let messages = read(&worker, LONG).await?;
        let rejected = FinishResult::Rejected { status_code: 422, message: "invalid flavor".to_owned() };
        let finished = [fail(&messages[0], "Poison"), finish(messages[1].delivery, Some(ids[1]), rejected)];
        assert_eq!(worker.finish_messages(&finished).await?.len(), 2);
        let states = [api.get_request(ids[0]).await?.unwrap(), api.get_request(ids[1]).await?.unwrap()];
        assert_eq!((states[0].state, states[0].reason.as_deref()), (State::Failed, Some("Poison")));
        assert_eq!((states[1].state, states[1].status_code), (State::Rejected, Some(422)));
        assert_eq!(states[1].message.as_deref(), Some("invalid flavor"));
        let sql = &mut administrator(database).await?;
        assert_eq!(count(sql, "pgmq.q_gpu_reservations").await?, 0);
        let archived =
            "SELECT string_agg(headers ->> 'reason' || ': ' || (headers ->> 'message'), ', ' ORDER BY msg_id)
            FROM pgmq.a_gpu_reservations";
        assert_eq!(value(sql, archived).await?, "Poison: it failed, Rejected: invalid flavor");
        let entries = "SELECT string_agg(result || ' ' || (details ->> 'reason'), ', ' ORDER BY id)
            FROM audit_log WHERE result <> 'Accepted'";
        assert_eq!(value(sql, entries).await?, "Failed Poison, Rejected Rejected");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn finish_is_one_statement_that_changes_all_or_nothing() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let api = database.store(DatabaseRole::Api)?;
        let dbfault = Dbfault::start(database.url(DatabaseRole::Worker), [])?;
        let worker = Store::new(&Settings::from_url(dbfault.url(), "test")?);
        let ids = accept_many(&api, 2).await?;
        let messages = read(&worker, LONG).await?;
        let sql = &mut administrator(database).await?;
        execute(sql, "ALTER TABLE audit_log ADD CONSTRAINT test CHECK (result <> 'Failed') NOT VALID").await?;
        let finished = [succeed(&messages[0]), fail(&messages[1], "Poison")];
        assert!(worker.finish_messages(&finished).await.unwrap_err().violates("test"));
        assert_eq!(count(sql, "pgmq.q_gpu_reservations").await?, 2);
        assert_eq!(api.get_request(ids[0]).await?.unwrap().state, State::Pending);
        execute(sql, "ALTER TABLE audit_log DROP CONSTRAINT test").await?;
        let (statements, commits) = (dbfault.statements().len(), dbfault.commits());
        worker.finish_messages(&finished).await?;
        assert_eq!((dbfault.statements().len(), dbfault.commits()), (statements + 1, commits + 1));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn delivery_that_is_no_longer_current_changes_nothing() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let ids = accept_many(&api, 1).await?;
        let stale = read(&worker, 0).await?;
        let current = read(&worker, LONG).await?;
        assert_eq!((stale[0].delivery.read_ct, current[0].delivery.read_ct), (1, 2));
        assert!(worker.finish_messages(&[fail(&stale[0], "Late")]).await?.is_empty());
        assert_eq!(worker.delay_messages(&[delay(&stale[0], 0)]).await?, 0);
        assert!(read(&worker, LONG).await?.is_empty(), "a stale delay makes nothing visible");
        assert_eq!(api.get_request(ids[0]).await?.unwrap().state, State::Pending);
        assert_eq!(count(&mut administrator(database).await?, "audit_log").await?, 1);
        assert_eq!(worker.finish_messages(&[succeed(&current[0])]).await?.len(), 1);
        assert!(worker.finish_messages(&[fail(&current[0], "Twice")]).await?.is_empty());
        assert_eq!(api.get_request(ids[0]).await?.unwrap().state, State::Succeeded);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn reads_are_counted_although_the_worker_crashes() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        for expected in 1..=5 {
            // Each worker crashes after its read.
            let worker = database.store(DatabaseRole::Worker)?;
            assert_eq!(read(&worker, 0).await?[0].delivery.read_ct, expected);
        }
        Ok(())
    })
    .await
}

fn delay(message: &Message, seconds: u32) -> Delay {
    Delay { delivery: message.delivery, seconds, has_failed: true }
}

#[tokio::test]
async fn delayed_message_is_invisible_until_its_time() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let messages = read(&worker, LONG).await?;
        assert_eq!(worker.delay_messages(&[delay(&messages[0], 60)]).await?, 1);
        let sql = &mut administrator(database).await?;
        let is_delayed =
            "SELECT vt - clock_timestamp() BETWEEN interval '50 s' AND interval '60 s' FROM pgmq.q_gpu_reservations";
        assert_eq!(value(sql, is_delayed).await?, "true");
        assert_eq!(worker.delay_messages(&[delay(&messages[0], 0)]).await?, 1);
        assert_eq!(read(&worker, LONG).await?.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn delays_and_returns_are_counted_apart() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let mut counts = vec![];
        for has_failed in [true, false, false] {
            let message = read(&worker, LONG).await?.remove(0);
            counts.push((message.delivery.read_ct, message.delays, message.returns));
            worker.delay_messages(&[Delay { has_failed, ..delay(&message, 0) }]).await?;
        }
        let message = read(&worker, LONG).await?.remove(0);
        counts.push((message.delivery.read_ct, message.delays, message.returns));
        assert_eq!(counts, [(1, 0, 0), (2, 1, 0), (3, 1, 1), (4, 1, 2)]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn malformed_message_is_delivered_without_a_request() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let sql = &mut administrator(database).await?;
        for body in [r#"{"request": "x"}"#, r#"{"request": 7}"#, "[]", "7", r#"{"request": null}"#] {
            execute(sql, &format!("SELECT pgmq.send('gpu_reservations', '{body}')")).await?;
        }
        execute(sql, &format!(r#"SELECT pgmq.send('gpu_reservations', '{{"request": "{}"}}')"#, Uuid::now_v7()))
            .await?;
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let messages = read(&worker, LONG).await?;
        assert_eq!(messages.iter().filter(|message| message.request.is_none()).count(), 6);
        assert_eq!(messages.len(), 7);
        let poison: Vec<_> = messages.iter().filter(|message| message.request.is_none()).collect();
        let finished: Vec<_> = poison.iter().map(|message| fail(message, "UnknownRequest")).collect();
        assert_eq!(worker.finish_messages(&finished).await?.len(), 6);
        assert_eq!(count(sql, "pgmq.a_gpu_reservations").await?, 6);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn result_that_cannot_be_stored_as_it_is_is_shortened() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let ids = accept_many(&api, 2).await?;
        let messages = read(&worker, LONG).await?;
        let long = FinishResult::Failed { reason: "r".repeat(1000), message: format!("a\0b{}", "m".repeat(10_000)) };
        let odd = FinishResult::Rejected { status_code: 302, message: String::new() };
        let finished =
            [finish(messages[0].delivery, Some(ids[0]), long), finish(messages[1].delivery, Some(ids[1]), odd)];
        assert_eq!(worker.finish_messages(&finished).await?.len(), 2);
        let stored = api.get_request(ids[0]).await?.unwrap();
        assert_eq!((stored.reason.unwrap().len(), stored.message.unwrap().len()), (128, 4096));
        assert_eq!(api.get_request(ids[1]).await?.unwrap().status_code, None);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pipeline_needs_at_most_1_05_commits_per_request() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        const REQUESTS: usize = 200;
        let api_proxy = Dbfault::start(database.url(DatabaseRole::Api), [])?;
        let worker_proxy = Dbfault::start(database.url(DatabaseRole::Worker), [])?;
        let api = Store::new(&Settings::from_url(api_proxy.url(), "test")?);
        let worker = Store::new(&Settings::from_url(worker_proxy.url(), "test")?);
        accept_many(&api, REQUESTS).await?;
        let mut finished = 0;
        while finished < REQUESTS {
            let messages = worker.read_messages(|_| 50, LONG).await?;
            let results: Vec<_> = messages.iter().map(succeed).collect();
            finished += worker.finish_messages(&results).await?.len();
        }
        let commits = api_proxy.commits() + worker_proxy.commits();
        assert!(commits * 100 <= REQUESTS * 105, "{commits} commits of {REQUESTS} requests");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn read_finds_requests_by_index() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        execute(
            sql,
            "INSERT INTO requests (id, user_name, actor, queue, action, object_kind, object_name, payload, body_hash)
             SELECT gen_random_uuid(), 'ada', 'ada', 'gpu_reservations', 'a', 'k', 'n', '{}', sha256('')
             FROM generate_series(1, 5000);
             ANALYZE requests",
        )
        .await?;
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'requests'";
        execute(sql, "SELECT pg_stat_force_next_flush()").await?;
        let before = value(sql, scans).await?;
        let worker = database.store(DatabaseRole::Worker)?;
        for _ in 0..3 {
            assert_eq!(read(&worker, 0).await?.len(), 1);
        }
        worker.close().await;
        odc_tests::wait::until("statistics", std::time::Duration::from_secs(10), async || {
            let idle = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'odc_worker'";
            anyhow::ensure!(value(sql, idle).await? == "0", "the worker is connected");
            Ok(())
        })
        .await?;
        execute(sql, "SELECT pg_stat_clear_snapshot()").await?;
        assert_eq!(value(sql, scans).await?, before, "the whole table was read");
        Ok(())
    })
    .await
}
