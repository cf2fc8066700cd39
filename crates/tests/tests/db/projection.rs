//! Copies of custom resources: repeatable, exact usage intervals, one audit entry per change with kubectl.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use odc_store::page::{Page, Visible};
use odc_store::projection::{
    ClusterObjectRow, Copied, Deleted, DevServerRow, DiskOperationRow, DiskRow, FlavorRow, IntervalRow, ServerBatch,
    ServerFilter, TimelineRow,
};
use odc_tests::{DatabaseRole, wait, with_migrated_database};
use serde_json::json;
use uuid::Uuid;

use crate::fixture::{administrator, count, execute, value};

const TIMEOUT: Duration = Duration::from_secs(10);

/// A fixed time, so that expected values are readable.
fn time(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50) + SignedDuration::from_mins(minutes)
}

pub fn copied(uid: Uuid, generation: i64) -> Copied {
    Copied {
        uid,
        namespace: "dev-ada".to_owned(),
        name: "box".to_owned(),
        user_name: "ada".to_owned(),
        request_id: None,
        requested_by: None,
        created_at: time(0),
        generation,
        changed_by: None,
        object: json!({"metadata": {"name": "box"}}),
    }
}

pub fn server(copied: Copied) -> DevServerRow {
    DevServerRow {
        copied,
        team: Some("audio".to_owned()),
        flavor: Some("h100".to_owned()),
        devices: 2,
        nodes: 1,
        phase: "Running".to_owned(),
        disk_name: None,
        started_at: None,
        expires_at: None,
        finished_at: None,
        failure_reason: None,
        oom_kills: 0,
    }
}

pub fn interval(server_uid: Uuid, started: i64, ended: Option<i64>) -> IntervalRow {
    IntervalRow {
        server_uid,
        started_at: time(started),
        ended_at: ended.map(time),
        continued: false,
        user_name: "ada".to_owned(),
        team: Some("audio".to_owned()),
        flavor: "h100".to_owned(),
        devices: 2,
        nodes: 1,
        price_per_device_hour_millionths: 3_000_000,
    }
}

fn transition(server_uid: Uuid, at: i64, phase: &str) -> TimelineRow {
    TimelineRow { server_uid, at: time(at), phase: phase.to_owned(), reason: "Test".to_owned() }
}

/// The intervals of all servers as minutes, in the order of their start.
async fn intervals(sql: &mut sqlx::PgConnection) -> anyhow::Result<String> {
    let minutes = |column: &str| {
        let origin = time(0);
        format!("COALESCE(round(extract(epoch FROM {column} - '{origin}'::timestamptz) / 60)::text, '')")
    };
    let (started, ended) = (minutes("started_at"), minutes("ended_at"));
    value(sql, &format!("SELECT string_agg({started} || '-' || {ended}, ' ' ORDER BY started_at) FROM usage_intervals"))
        .await
}

#[tokio::test]
async fn repeated_batch_changes_nothing() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let mut row = server(copied(uid, 1));
        row.copied.changed_by = Some("kubectl".to_owned());
        let batch = ServerBatch {
            servers: vec![row],
            timeline: vec![transition(uid, 0, "Pending"), transition(uid, 1, "Running")],
            intervals: vec![interval(uid, 1, None)],
        };
        let sql = &mut administrator(database).await?;
        for _ in 0..3 {
            writer.upsert_servers(&batch).await?;
            assert_eq!(intervals(sql).await?, "1-");
            for (rows, expected) in [("devservers", 1), ("devserver_timeline", 2), ("audit_log", 1)] {
                assert_eq!(count(sql, rows).await?, expected, "{rows}");
            }
        }
        let servers = database
            .store(DatabaseRole::Api)?
            .list_servers(&Visible::User("ada".to_owned()), &ServerFilter::default(), &Page { after: None, limit: 10 })
            .await?;
        assert_eq!(servers.len(), 1);
        let other = Visible::User("bob".to_owned());
        assert!(
            worker.list_servers(&other, &ServerFilter::default(), &Page { after: None, limit: 10 }).await?.is_empty()
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn transitions_in_the_same_second_keep_their_order() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let phases = ["Queued", "Starting", "Running", "Failed"];
        let timeline = phases.map(|phase| transition(uid, 1, phase)).into();
        let batch = ServerBatch { servers: vec![server(copied(uid, 1))], timeline, intervals: Vec::new() };
        writer.upsert_servers(&batch).await?;
        let stored = database.store(DatabaseRole::Api)?.timeline(uid, 10).await?;
        assert_eq!(stored.iter().map(|row| row.phase.as_str()).collect::<Vec<_>>(), phases);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn timeline_keeps_transitions_that_the_status_no_longer_has() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let batch = |timeline| ServerBatch { servers: vec![server(copied(uid, 1))], timeline, intervals: Vec::new() };
        writer.upsert_servers(&batch(vec![transition(uid, 0, "Pending"), transition(uid, 1, "Running")])).await?;
        writer.upsert_servers(&batch(vec![transition(uid, 1, "Running"), transition(uid, 5, "Hibernated")])).await?;
        let phases: Vec<String> = worker.timeline(uid, 10).await?.into_iter().map(|row| row.phase).collect();
        assert_eq!(phases, ["Pending", "Running", "Hibernated"]);
        let last: Vec<String> = worker.timeline(uid, 2).await?.into_iter().map(|row| row.phase).collect();
        assert_eq!(last, ["Running", "Hibernated"]);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn interval_is_ended_by_a_later_observation() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let batch = |intervals| ServerBatch { servers: vec![server(copied(uid, 1))], timeline: Vec::new(), intervals };
        let sql = &mut administrator(database).await?;
        writer.upsert_servers(&batch(vec![interval(uid, 1, None)])).await?;
        // Hibernated and resumed between two observations.
        writer.upsert_servers(&batch(vec![interval(uid, 1, Some(5)), interval(uid, 8, None)])).await?;
        assert_eq!(intervals(sql).await?, "1-5 8-");
        writer.upsert_servers(&batch(vec![interval(uid, 8, Some(9)), interval(uid, 10, Some(12))])).await?;
        assert_eq!(intervals(sql).await?, "1-5 8-9 10-12");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn continued_interval_keeps_its_start() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let batch = |intervals| ServerBatch { servers: vec![server(copied(uid, 1))], timeline: Vec::new(), intervals };
        let sql = &mut administrator(database).await?;
        writer.upsert_servers(&batch(vec![interval(uid, 1, None)])).await?;
        let continued = |ended| IntervalRow { continued: true, ..interval(uid, 6, ended) };
        writer.upsert_servers(&batch(vec![continued(None)])).await?;
        assert_eq!(intervals(sql).await?, "1-");
        writer.upsert_servers(&batch(vec![continued(Some(9)), interval(uid, 10, None)])).await?;
        assert_eq!(intervals(sql).await?, "1-9 10-");
        // Without a stored start, the observed one counts.
        execute(sql, "DELETE FROM devservers").await?;
        writer.upsert_servers(&batch(vec![continued(Some(9)), interval(uid, 10, None)])).await?;
        assert_eq!(intervals(sql).await?, "6-9 10-");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn interval_with_an_unknown_end_is_ended_before_the_next() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let batch = |intervals| ServerBatch { servers: vec![server(copied(uid, 1))], timeline: Vec::new(), intervals };
        let sql = &mut administrator(database).await?;
        writer.upsert_servers(&batch(vec![interval(uid, 1, None)])).await?;
        // A server has one interval without an end.
        let error = writer.upsert_servers(&batch(vec![interval(uid, 20, None)])).await.unwrap_err();
        assert!(error.violates("usage_intervals_open"), "{error:?}");
        for _ in 0..2 {
            writer.end_intervals_before(&[(uid, time(15))]).await?;
            writer.upsert_servers(&batch(vec![interval(uid, 20, None)])).await?;
            assert_eq!(intervals(sql).await?, "1-15 20-");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn deleted_server_uses_nothing_after_its_deletion() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let mut row = server(copied(uid, 1));
        row.copied.object = json!({"spec": {"flavor": "h100", "env": [{"name": "TOKEN", "value": "secret"}]}});
        let batch = ServerBatch { servers: vec![row], timeline: Vec::new(), intervals: vec![interval(uid, 1, None)] };
        writer.upsert_servers(&batch).await?;
        assert_eq!(worker.live_server_uids().await?, [uid]);
        let sql = &mut administrator(database).await?;
        let deleted = Deleted { uid, at: time(7), observed: true, audit: true };
        for _ in 0..2 {
            writer.mark_servers_deleted(std::slice::from_ref(&deleted)).await?;
            assert_eq!(intervals(sql).await?, "1-7");
        }
        assert_eq!(value(sql, "SELECT object FROM devservers").await?, r#"{"spec": {"flavor": "h100"}}"#);
        let entry = "SELECT before_hash = sha256(convert_to('{\"env\": [{\"name\": \"TOKEN\", \"value\": \"secret\"}], \
            \"flavor\": \"h100\"}', 'UTF8')) FROM audit_log WHERE action = 'devserver.delete'";
        assert_eq!(value(sql, entry).await?, "true", "the hash is that of the last spec");
        assert!(worker.live_server_uids().await?.is_empty());
        // An observation from before the deletion arrives late.
        writer.upsert_servers(&batch).await?;
        assert_eq!(intervals(sql).await?, "1-7");
        let filter = ServerFilter { deleted: true, ..ServerFilter::default() };
        assert_eq!(worker.list_servers(&Visible::All, &filter, &Page { after: None, limit: 10 }).await?.len(), 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_whose_deletion_was_not_observed_has_ended_at_its_expiry() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let (expired, running) = (Uuid::now_v7(), Uuid::now_v7());
        for (uid, started_at, expires_at) in [(expired, 1, 5), (running, 2, 90)] {
            let row = DevServerRow { expires_at: Some(time(expires_at)), ..server(copied(uid, 1)) };
            let intervals = vec![interval(uid, started_at, None)];
            writer.upsert_servers(&ServerBatch { servers: vec![row], timeline: Vec::new(), intervals }).await?;
        }
        let sql = &mut administrator(database).await?;
        let deleted = [expired, running].map(|uid| Deleted { uid, at: time(60), observed: false, audit: true });
        writer.mark_servers_deleted(&deleted).await?;
        assert_eq!(intervals(sql).await?, "1-5 2-60");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn change_with_kubectl_is_recorded_once_per_generation() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let mut observe = async |generation, changed_by: Option<&str>| {
            let mut row = server(copied(uid, generation));
            row.copied.changed_by = changed_by.map(str::to_owned);
            writer.upsert_servers(&ServerBatch { servers: vec![row], ..ServerBatch::default() }).await
        };
        observe(1, Some("kubectl-create")).await?;
        observe(1, Some("kubectl-create")).await?;
        observe(2, None).await?;
        observe(3, Some("kubectl-edit")).await?;
        let sql = &mut administrator(database).await?;
        let entries = "SELECT string_agg(concat_ws(' ', actor, actor_kind, action, result, details ->> 'generation'), ', ' ORDER BY id)
            FROM audit_log";
        let expected = "kubectl-create FieldManager devserver.create Observed 1, \
            kubectl-edit FieldManager devserver.update Observed 3";
        assert_eq!(value(sql, entries).await?, expected);
        // The projection is rebuilt.
        execute(sql, "DELETE FROM devservers").await?;
        observe(3, Some("kubectl-edit")).await?;
        assert_eq!(value(sql, entries).await?, expected);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn disks_operations_and_flavors_are_copied_repeatedly() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let mut writer = database.writer().await?;
        let (disk_uid, operation_uid) = (Uuid::now_v7(), Uuid::now_v7());
        let mut disk = DiskRow {
            copied: copied(disk_uid, 1),
            display_name: None,
            phase: "Ready".to_owned(),
            size_bytes: 1 << 40,
            used_bytes: None,
            storage_class: Some("odc".to_owned()),
            claim: Some("home".to_owned()),
            holder: None,
            points: 0,
            last_point_at: None,
            last_used_at: None,
            is_deleted: false,
        };
        disk.copied.changed_by = Some("kubectl".to_owned());
        let mut operation = DiskOperationRow {
            copied: copied(operation_uid, 1),
            disk_name: "home".to_owned(),
            action: "Snapshot".to_owned(),
            phase: "Running".to_owned(),
            message: None,
            finished_at: None,
        };
        operation.copied.changed_by = Some("kubectl".to_owned());
        let flavor = FlavorRow { name: "h100".to_owned(), object: json!({}) };
        for _ in 0..2 {
            writer.upsert_disks(std::slice::from_ref(&disk)).await?;
            writer.upsert_disk_operations(std::slice::from_ref(&operation)).await?;
            writer.upsert_flavors(std::slice::from_ref(&flavor)).await?;
        }
        let operations =
            worker.list_disk_operations(&Visible::All, "dev-ada", "home", &Page { after: None, limit: 10 }).await?;
        assert_eq!(operations.len(), 1);
        let deleted = [Deleted { uid: disk_uid, at: time(1), observed: true, audit: true }];
        for _ in 0..2 {
            writer.mark_disks_deleted(&deleted).await?;
            writer
                .mark_disk_operations_deleted(&[Deleted {
                    uid: operation_uid,
                    at: time(1),
                    observed: true,
                    audit: false,
                }])
                .await?;
            writer.mark_flavors_deleted(&["h100".to_owned()]).await?;
        }
        assert!(worker.live_disk_uids().await?.is_empty());
        assert!(worker.live_disk_operation_uids().await?.is_empty());
        let sql = &mut administrator(database).await?;
        let actions = value(sql, "SELECT string_agg(action, ' ' ORDER BY id) FROM audit_log").await?;
        assert_eq!(actions, "disk.create disk.snapshot disk.delete");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn changes_of_users_teams_and_flavors_with_kubectl_are_recorded_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let row = |kind: &str, generation, changed_by: Option<&str>| ClusterObjectRow {
            kind: kind.to_owned(),
            name: "ada".to_owned(),
            uid,
            generation,
            changed_by: changed_by.map(str::to_owned),
            spec: json!({"role": generation}),
        };
        let sql = &mut administrator(database).await?;
        let entries = "SELECT string_agg(concat_ws(' ', actor, action, result, user_name, before_hash IS NOT NULL,
            after_hash IS NOT NULL), ', ' ORDER BY id) FROM audit_log";
        for _ in 0..2 {
            writer.upsert_cluster_objects(&[row("DevServerUser", 1, Some("kubectl"))]).await?;
        }
        writer.upsert_cluster_objects(&[row("DevServerUser", 2, None)]).await?;
        writer.upsert_cluster_objects(&[row("DevServerUser", 3, Some("kubectl-edit"))]).await?;
        let mut expected = "kubectl user.create Observed ada f t, kubectl-edit user.update Observed ada t t".to_owned();
        assert_eq!(value(sql, entries).await?, expected);
        // The projection is rebuilt.
        execute(sql, "DELETE FROM cluster_objects").await?;
        writer.upsert_cluster_objects(&[row("DevServerUser", 3, Some("kubectl-edit"))]).await?;
        assert_eq!(value(sql, entries).await?, expected);
        let names = ["ada".to_owned()];
        for _ in 0..2 {
            writer.mark_cluster_objects_deleted("DevServerUser", &names).await?;
        }
        expected += ", unknown user.delete Observed ada t f";
        assert_eq!(value(sql, entries).await?, expected);
        // Requested through the API, where it was recorded.
        writer.upsert_cluster_objects(&[row("Team", 1, None)]).await?;
        execute(
            sql,
            "INSERT INTO requests (id, user_name, actor, queue, action, object_kind, object_name, payload, body_hash)
             VALUES (gen_random_uuid(), 'root', 'root', 'admin_operations', 'team.delete', 'Team', 'ada', '{}', sha256(''))",
        )
        .await?;
        writer.mark_cluster_objects_deleted("Team", &names).await?;
        assert_eq!(value(sql, entries).await?, expected);
        assert!(database.store(DatabaseRole::Worker)?.live_cluster_object_names("Team").await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn projection_has_one_writer() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let (first, second) = (database.store(DatabaseRole::Worker)?, database.store(DatabaseRole::Worker)?);
        let mut writer = first.try_become_writer().await?.unwrap();
        writer.check().await?;
        assert!(second.try_become_writer().await?.is_none());
        assert!(first.try_become_writer().await?.is_none(), "also on another connection of the same worker");
        database.crash().await?;
        assert!(writer.check().await.unwrap_err().is_unavailable());
        assert!(second.try_become_writer().await?.is_some());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn writer_that_was_replaced_cannot_write() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let uid = Uuid::now_v7();
        let batch = |generation, phase: &str| {
            let row = DevServerRow { phase: phase.to_owned(), ..server(copied(uid, generation)) };
            ServerBatch { servers: vec![row], ..ServerBatch::default() }
        };
        let mut first = database.writer().await?;
        first.upsert_servers(&batch(1, "Pending")).await?;
        // The server ends the session of a worker that is suspended, for example because its node does not answer.
        let sql = &mut administrator(database).await?;
        execute(sql, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'").await?;
        let mut second = wait::until("the end of the session", TIMEOUT, async || database.writer().await).await?;
        second.upsert_servers(&batch(2, "Running")).await?;
        let error = first.upsert_servers(&batch(1, "Pending")).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(first.check().await.is_err());
        assert_eq!(value(sql, "SELECT phase FROM devservers").await?, "Running");
        Ok(())
    })
    .await
}
