//! Reports of usage.

use jiff::Timestamp;
use odc_store::page::Visible;
use odc_store::projection::ServerBatch;
use odc_store::usage::TokenUsage;
use odc_tests::{DatabaseRole, with_migrated_database};
use uuid::Uuid;

use crate::fixture::{administrator, execute};
use crate::projection::{copied, interval, server};

#[tokio::test]
async fn report_counts_only_the_part_of_intervals_in_the_period() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let batch = ServerBatch {
            servers: vec![server(copied(uid, 1))],
            timeline: Vec::new(),
            intervals: vec![interval(uid, 0, Some(60)), interval(uid, 90, Some(120))],
        };
        writer.upsert_servers(&batch).await?;
        let api = database.store(DatabaseRole::Api)?;
        let at = |minutes: i64| interval(uid, minutes, None).started_at;
        // Two devices at 3.00 per device and hour.
        for (from, until, minutes) in
            [(0, 120, 90), (30, 120, 60), (0, 45, 45), (61, 89, 0), (30, 100, 40), (120, 0, 0)]
        {
            let report = api.usage(&Visible::User("ada".to_owned()), at(from), at(until)).await?;
            let sum =
                report.first().map_or((0, 0, 0), |row| (row.server_seconds, row.device_seconds, row.cost_millionths));
            assert_eq!(sum, (minutes * 60, minutes * 120, minutes * 100_000), "{from} to {until}");
        }
        assert!(api.usage(&Visible::User("bob".to_owned()), at(0), at(120)).await?.is_empty());
        let report = api.usage(&Visible::All, at(0), at(120)).await?;
        assert_eq!((report[0].flavor.as_str(), report[0].team.as_deref()), ("h100", Some("audio")));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn current_use_counts_up_to_now() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let worker = database.store(DatabaseRole::Worker)?;
        let mut writer = database.writer().await?;
        let uid = Uuid::now_v7();
        let now = Timestamp::now();
        let mut open = interval(uid, 0, None);
        open.started_at = now - jiff::SignedDuration::from_secs(600);
        let batch = ServerBatch { servers: vec![server(copied(uid, 1))], timeline: Vec::new(), intervals: vec![open] };
        writer.upsert_servers(&batch).await?;
        let hour = jiff::SignedDuration::from_hours(1);
        let report = worker.usage(&Visible::All, now - hour, now + hour).await?;
        assert!((600..660).contains(&report[0].server_seconds), "{report:?}");
        assert!(worker.usage(&Visible::All, now + hour, now + hour * 2).await?.is_empty(), "the future");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn report_of_tokens_counts_a_repeated_record_once() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let api = database.store(DatabaseRole::Api)?;
        let usage = |id, user| TokenUsage {
            provider: "bedrock",
            provider_request_id: id,
            user,
            model: "large",
            input_tokens: 100,
            output_tokens: 10,
        };
        let error = api.record_tokens(&usage("r1", "ada")).await.unwrap_err();
        assert!(error.violates("token_usage_user_name_fkey"), "{error:?}");
        execute(&mut administrator(database).await?, "INSERT INTO users (name) VALUES ('ada')").await?;
        assert!(api.record_tokens(&usage("r1", "ada")).await?);
        assert!(!api.record_tokens(&usage("r1", "ada")).await?);
        assert!(api.record_tokens(&usage("r2", "ada")).await?);
        let (from, until) = (Timestamp::UNIX_EPOCH, Timestamp::now() + jiff::SignedDuration::from_hours(1));
        let report = api.token_usage(&Visible::All, from, until).await?;
        assert_eq!((report[0].requests, report[0].input_tokens, report[0].output_tokens), (2, 200, 20));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn absurd_numbers_of_one_user_do_not_fail_the_report_of_all() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        execute(&mut administrator(database).await?, "INSERT INTO users (name) VALUES ('ada'), ('bob')").await?;
        let api = database.store(DatabaseRole::Api)?;
        for (id, user, tokens) in [("1", "ada", i64::MAX), ("2", "ada", i64::MAX), ("3", "bob", 1)] {
            let usage = TokenUsage {
                provider: "bedrock",
                provider_request_id: id,
                user,
                model: "large",
                input_tokens: tokens,
                output_tokens: tokens,
            };
            api.record_tokens(&usage).await?;
        }
        let (from, until) = (Timestamp::UNIX_EPOCH, Timestamp::now() + jiff::SignedDuration::from_hours(1));
        let report = api.token_usage(&Visible::All, from, until).await?;
        let sums: Vec<u64> = report.iter().map(|row| row.input_tokens).collect();
        assert_eq!(sums, [i64::MAX.unsigned_abs(), 1]);
        Ok(())
    })
    .await
}
