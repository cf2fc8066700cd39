//! Creation and upgrade of the schema.

use std::time::Duration;

use odc_store::migrate::{Error, latest_version, migrate};
use odc_store::{Settings, Store};
use odc_tests::dbfault::{Action, Dbfault, Fault};
use odc_tests::{Database, DatabaseRole, with_database};

use crate::fixture::{TestRequest, administrator, count, execute, value};

#[tokio::test]
async fn repeated_migration_changes_nothing() -> anyhow::Result<()> {
    with_database(async |database| {
        let settings = database.settings(DatabaseRole::Migrator)?;
        let store = Store::new(&settings);
        assert!(!store.is_migrated().await?);
        let first = migrate(&settings).await?;
        assert_eq!((first.from, first.to), (0, latest_version()));
        assert!(store.is_migrated().await?);
        let sql = &mut administrator(database).await?;
        let before = fingerprint(sql).await?;
        let second = migrate(&settings).await?;
        assert_eq!((second.from, second.to), (latest_version(), latest_version()));
        assert_eq!(fingerprint(sql).await?, before);
        assert!(database.store(DatabaseRole::Api)?.is_migrated().await?, "every role reads the version");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn concurrent_migrations_run_one_after_the_other() -> anyhow::Result<()> {
    with_database(async |database| {
        let settings = database.settings(DatabaseRole::Migrator)?;
        let results = futures_util::future::try_join_all((0..3).map(|_| migrate(&settings))).await?;
        assert_eq!(results.iter().filter(|migrated| migrated.from == 0).count(), 1);
        accept_one(database).await
    })
    .await
}

#[tokio::test]
async fn interrupted_migration_converges() -> anyhow::Result<()> {
    with_database(async |database| {
        let url = database.url(DatabaseRole::Migrator);
        let reference = Dbfault::start(url, [])?;
        migrate(&Settings::from_url(reference.url(), "test")?).await?;
        let sql = &mut administrator(database).await?;
        let expected = fingerprint(sql).await?;
        let statements = reference.statements().len() as u64;
        assert!(statements > 20, "{statements} statements");
        // Every point would take a minute. The step is prime to the three statements of a migration.
        for nth in (2..=statements).step_by(if cfg!(feature = "full") { 1 } else { 7 }) {
            reset(sql).await?;
            let moment = if nth % 2 == 0 {
                Fault::statement(nth).before(Action::Cut)
            } else {
                Fault::statement(nth).after(Action::Cut)
            };
            let dbfault = Dbfault::start(url, [moment])?;
            let interrupted = migrate(&Settings::from_url(dbfault.url(), "test")?).await;
            assert!(interrupted.is_err() || dbfault.fired() == 0, "statement {nth}");
            // The server still holds the lock for a moment.
            let settings = database.settings(DatabaseRole::Migrator)?;
            tokio::time::timeout(Duration::from_secs(30), migrate(&settings)).await??;
            assert_eq!(fingerprint(sql).await?, expected, "statement {nth}");
        }
        accept_one(database).await
    })
    .await
}

#[tokio::test]
async fn missing_roles_are_named() -> anyhow::Result<()> {
    with_database(async |database| {
        execute(&mut administrator(database).await?, "DROP ROLE odc_worker; DROP ROLE odc_auditor").await?;
        let error = migrate(&database.settings(DatabaseRole::Migrator)?).await.unwrap_err();
        assert!(matches!(&error, Error::MissingRoles(roles) if roles == &["odc_worker", "odc_auditor"]), "{error:?}");
        assert!(error.to_string().contains("--print-roles"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn migration_of_a_role_that_does_not_own_the_database_fails() -> anyhow::Result<()> {
    with_database(async |database| {
        assert!(migrate(&database.settings(DatabaseRole::Api)?).await.is_err());
        assert_eq!(count(&mut administrator(database).await?, "pg_tables WHERE schemaname = 'public'").await?, 0);
        Ok(())
    })
    .await
}

async fn accept_one(database: &Database) -> anyhow::Result<()> {
    TestRequest::new().accept(&database.store(DatabaseRole::Api)?).await?;
    Ok(())
}

/// Removes the schema.
async fn reset(sql: &mut sqlx::PgConnection) -> anyhow::Result<()> {
    execute(
        sql,
        "SET client_min_messages = error; DROP SCHEMA IF EXISTS pgmq CASCADE; DROP SCHEMA public CASCADE;
        CREATE SCHEMA public AUTHORIZATION pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC",
    )
    .await?;
    Ok(())
}

/// Returns all columns, functions, triggers, indexes and privileges.
async fn fingerprint(sql: &mut sqlx::PgConnection) -> anyhow::Result<String> {
    value(
        sql,
        "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
            SELECT format('%s.%s.%s %s %s', n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attacl) AS line
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname IN ('public', 'pgmq') AND a.attnum > 0
            UNION ALL
            SELECT format('%s.%s %s %s', n.nspname, c.relname, c.relkind, c.relacl)
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 'pgmq')
            UNION ALL
            SELECT format('%s %s', p.oid::regprocedure, p.proacl)
            FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('public', 'pgmq')
            UNION ALL
            SELECT format('%s %s', tgrelid::regclass, tgname) FROM pg_trigger WHERE NOT tgisinternal
            UNION ALL
            SELECT format('migration %s %s', version, success) FROM _sqlx_migrations
        ) lines",
    )
    .await
}
