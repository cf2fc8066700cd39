//! Removal of old rows.

use odc_store::request::Accepted;
use odc_store::retention::Retention;
use odc_tests::{DatabaseRole, with_migrated_database};

use crate::fixture::{LONG, TestRequest, accept_many, administrator, count, execute, fail, read, succeed, value};

#[tokio::test]
async fn idempotency_key_expires_after_a_day() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (api, worker) = (database.store(DatabaseRole::Api)?, database.store(DatabaseRole::Worker)?);
        let first = TestRequest::with_key("key");
        first.accept(&api).await?;
        let sql = &mut administrator(database).await?;
        execute(sql, "UPDATE requests SET created_at = now() - interval '23 hours'").await?;
        worker.enforce_retention(Retention::default()).await?;
        assert_eq!(TestRequest::with_key("key").accept(&api).await?, Accepted::Repeated(first.id));
        execute(sql, "UPDATE requests SET created_at = now() - interval '25 hours'").await?;
        worker.enforce_retention(Retention::default()).await?;
        assert_eq!(TestRequest::with_key("key").accept(&api).await?, Accepted::Repeated(first.id), "it is pending");
        let messages = read(&worker, LONG).await?;
        worker.finish_messages(&[succeed(&messages[0])]).await?;
        worker.enforce_retention(Retention::default()).await?;
        assert!(matches!(TestRequest::with_key("key").accept(&api).await?, Accepted::New(_)));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn old_requests_and_archived_messages_are_removed_and_pending_ones_kept() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        accept_many(&database.store(DatabaseRole::Api)?, 3).await?;
        let messages = read(&worker, LONG).await?;
        worker.finish_messages(&[fail(&messages[0], "Poison"), fail(&messages[1], "Poison")]).await?;
        let sql = &mut administrator(database).await?;
        execute(
            sql,
            "UPDATE requests SET created_at = now() - interval '91 days'
             WHERE id <> (SELECT id FROM requests WHERE state = 'Failed' ORDER BY id LIMIT 1);
             UPDATE pgmq.a_gpu_reservations SET archived_at = now() - interval '91 days'
             WHERE msg_id = (SELECT min(msg_id) FROM pgmq.a_gpu_reservations)",
        )
        .await?;
        worker.enforce_retention(Retention::default()).await?;
        assert_eq!(value(sql, "SELECT string_agg(state, ' ' ORDER BY state) FROM requests").await?, "Failed Pending");
        assert_eq!(count(sql, "pgmq.a_gpu_reservations").await?, 1);
        assert_eq!(count(sql, "pgmq.q_gpu_reservations").await?, 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn old_rows_are_removed_however_many_they_are() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        execute(
            sql,
            "INSERT INTO users (name) VALUES ('ada');
             INSERT INTO requests (id, user_name, actor, queue, action, object_kind, object_name, payload, body_hash, state,
                 idempotency_key, created_at, finished_at)
             SELECT gen_random_uuid(), 'ada', 'ada', 'gpu_reservations', 'a', 'k', 'n', '{}', sha256(''), 'Failed', n::text,
                 now() - interval '91 days', now() FROM generate_series(1, 2500) n;
             INSERT INTO pgmq.a_gpu_reservations (msg_id, enqueued_at, vt, message, archived_at)
             SELECT n, now(), now(), '{}', now() - interval '91 days' FROM generate_series(1, 2500) n;
             INSERT INTO api_keys (id, user_name, hash, description, scopes, created_at, created_by, expires_at, revoked_at)
             SELECT lpad(n::text, 12, '0'), 'ada', sha256(''), '', '{admin}', now() - interval '100 days', 'ada',
                 now() - interval '15 days', CASE WHEN n > 1 THEN now() - interval '91 days' END
             FROM generate_series(1, 2500) n;
             INSERT INTO devservers (uid, namespace, name, user_name, devices, nodes, phase, created_at, generation,
                 observed_at, object, deleted_at)
             SELECT gen_random_uuid(), 'dev-ada', n::text, 'ada', 1, 1, 'Expired', now(), 1, now(), '{}',
                 CASE WHEN n > 1 THEN now() - interval '731 days' END FROM generate_series(1, 2500) n;
             INSERT INTO usage_intervals (server_uid, started_at, user_name, flavor, devices, nodes)
             SELECT uid, now(), 'ada', 'cpu', 1, 1 FROM devservers;
             INSERT INTO devserver_timeline (server_uid, at, phase, reason) SELECT uid, now(), 'Expired', '' FROM devservers;
             INSERT INTO token_usage (provider, provider_request_id, at, user_name, model, input_tokens, output_tokens)
             SELECT 'p', n::text, now() - CASE WHEN n > 1 THEN interval '731 days' ELSE '1 day' END, 'ada', 'm', 1, 1
             FROM generate_series(1, 2500) n",
        )
        .await?;
        database.store(DatabaseRole::Worker)?.enforce_retention(Retention::default()).await?;
        for table in ["requests", "pgmq.a_gpu_reservations"] {
            assert_eq!(count(sql, table).await?, 0, "{table}");
        }
        for table in ["api_keys", "devservers", "usage_intervals", "devserver_timeline", "token_usage"] {
            assert_eq!(count(sql, table).await?, 1, "{table}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn part_that_fails_does_not_prevent_the_others() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        accept_many(&database.store(DatabaseRole::Api)?, 1).await?;
        let sql = &mut administrator(database).await?;
        execute(
            sql,
            "UPDATE requests SET state = 'Failed', finished_at = now(), created_at = now() - interval '91 days';
             REVOKE ALL ON FUNCTION create_audit_partitions() FROM odc_worker",
        )
        .await?;
        let worker = database.store(DatabaseRole::Worker)?;
        assert!(worker.enforce_retention(Retention::default()).await.is_err());
        assert_eq!(count(sql, "requests").await?, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn default_partition_is_emptied_when_all_of_its_entries_are_old() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        let insert = |at: &str| {
            format!(
                "INSERT INTO audit_log (at, actor, actor_kind, action, object_kind, object_name, result)
                 VALUES ({at}, 'a', 'System', 'a', 'k', 'n', 'Succeeded')"
            )
        };
        let worker = database.store(DatabaseRole::Worker)?;
        let default = "audit_log_default";
        execute(sql, &insert("'2020-01-15Z'")).await?;
        // Of a month without a partition.
        execute(sql, &insert("now() - interval '100 days'")).await?;
        worker.enforce_retention(Retention::default()).await?;
        assert_eq!(count(sql, default).await?, 2, "one of them is kept for longer");
        worker.enforce_retention(Retention { audit_days: 90, ..Retention::default() }).await?;
        assert_eq!(count(sql, default).await?, 0);
        let entry = "SELECT string_agg(actor || ' ' || action || ' ' || object_name, ', ') FROM audit_log";
        assert_eq!(value(sql, entry).await?, "odc_worker audit.purge audit_log_default");
        execute(sql, &insert("'2020-01-15Z'")).await?;
        assert_eq!(count(sql, default).await?, 1, "it still receives entries");
        assert!(execute(sql, "TRUNCATE audit_log_default").await.is_err());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn old_audit_partition_is_dropped_and_recorded() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        execute(
            sql,
            "CREATE TABLE audit_log_2020_01 PARTITION OF audit_log FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
             ALTER TABLE audit_log_2020_01 OWNER TO odc_migrator;
             INSERT INTO audit_log (at, actor, actor_kind, action, object_kind, object_name, result)
             VALUES ('2020-01-15Z', 'a', 'System', 'a', 'k', 'n', 'Succeeded')",
        )
        .await?;
        let worker = database.store(DatabaseRole::Worker)?;
        for _ in 0..2 {
            worker.enforce_retention(Retention::default()).await?;
        }
        assert_eq!(count(sql, "pg_class WHERE relname = 'audit_log_2020_01'").await?, 0);
        let entry = "SELECT actor || ' ' || action || ' ' || object_name FROM audit_log";
        assert_eq!(value(sql, entry).await?, "odc_worker audit.purge audit_log_2020_01");
        let partitions = "pg_inherits WHERE inhparent = 'audit_log'::regclass";
        assert_eq!(count(sql, partitions).await?, 3, "this month, the next and the default");
        // The function itself enforces the minimum, whatever the caller asks for.
        let error = execute(sql, "SET ROLE odc_worker; SELECT drop_audit_partitions(1)").await.unwrap_err();
        assert!(error.to_string().contains("at least 30 days"), "{error}");
        Ok(())
    })
    .await
}
