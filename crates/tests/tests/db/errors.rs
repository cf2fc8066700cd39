//! Errors by what callers can do about them.

use std::time::Duration;

use odc_store::{Error, Settings, Store};
use odc_tests::{DatabaseRole, wait, with_migrated_database};
use serde_json::json;

use crate::fixture::{TestRequest, administrator, count, execute};

#[tokio::test]
async fn refused_connection_is_unavailable() -> anyhow::Result<()> {
    odc_tests::init();
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut settings = Settings::from_parts("127.0.0.1", port, "odc_api", "", "odc", "test");
    settings.acquire_timeout = Duration::from_millis(200);
    let error = Store::new(&settings).ping().await.unwrap_err();
    assert!(error.is_unavailable(), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn statement_that_waits_too_long_is_unavailable() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut settings = database.settings(DatabaseRole::Api)?;
        settings.statement_timeout = Duration::from_millis(200);
        let store = Store::new(&settings);
        let sql = &mut administrator(database).await?;
        execute(sql, "BEGIN; LOCK TABLE requests IN ACCESS EXCLUSIVE MODE").await?;
        let error = TestRequest::new().accept(&store).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        execute(sql, "ROLLBACK").await?;
        TestRequest::new().accept(&store).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn full_pool_is_unavailable_and_recovers() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let mut settings = database.settings(DatabaseRole::Api)?;
        (settings.max_connections, settings.acquire_timeout) = (2, Duration::from_secs(2));
        let store = Store::new(&settings);
        let sql = &mut administrator(database).await?;
        execute(sql, "BEGIN; LOCK TABLE requests IN ACCESS EXCLUSIVE MODE").await?;
        let blocked: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move { TestRequest::new().accept(&store).await })
            })
            .collect();
        // A transaction sees the same activity in every statement.
        let observer = &mut administrator(database).await?;
        wait::until("two blocked requests", Duration::from_secs(10), async || {
            let waiting = count(observer, "pg_stat_activity WHERE wait_event_type = 'Lock'").await?;
            anyhow::ensure!(waiting == 2, "{waiting} requests are blocked");
            Ok(())
        })
        .await?;
        let waiting = (0..50).map(|_| store.ping());
        for result in futures_util::future::join_all(waiting).await {
            assert!(result.unwrap_err().is_unavailable());
        }
        execute(sql, "COMMIT").await?;
        for task in blocked {
            task.await??;
        }
        store.ping().await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rejected_password_is_unavailable() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        execute(&mut administrator(database).await?, "ALTER ROLE odc_api PASSWORD 'changed'").await?;
        let error = TestRequest::new().accept(&store).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        assert!(error.to_string().contains("password authentication failed"), "{error}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn read_only_server_is_unavailable() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        execute(sql, "ALTER ROLE odc_api SET default_transaction_read_only = on").await?;
        let store = database.store(DatabaseRole::Api)?;
        store.ping().await?;
        let error = TestRequest::new().accept(&store).await.unwrap_err();
        assert!(error.is_unavailable(), "{error:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn rejected_data_names_the_constraint_or_is_invalid() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let long_key = TestRequest::with_key(&"k".repeat(256));
        let error = long_key.accept(&store).await.unwrap_err();
        assert!(error.violates("requests_idempotency_key_check") && error.is_caused_by_data(), "{error:?}");
        let nul = TestRequest { payload: json!({"name": "a\0b"}), ..TestRequest::new() };
        let error = nul.accept(&store).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let nul = TestRequest { name: "a\0b".to_owned(), ..TestRequest::new() };
        let error = nul.accept(&store).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn missing_privilege_is_a_failed_query() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let error = TestRequest::new().accept(&database.store(DatabaseRole::Worker)?).await.unwrap_err();
        assert!(matches!(error, Error::Query(_)) && !error.is_caused_by_data(), "{error:?}");
        assert!(error.to_string().contains("permission denied for table requests"), "{error}");
        Ok(())
    })
    .await
}
