//! The audit log: append-only for every role, partitioned by month.

use odc_store::audit::Filter;
use odc_store::page::{Page, Visible};
use odc_tests::{DatabaseRole, with_migrated_database};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::fixture::{actor, administrator, count, entry, execute, origin, value};

/// The code of `insufficient_privilege`.
const FORBIDDEN: &str = "42501";

#[tokio::test]
async fn entries_cannot_be_changed_by_any_role() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        store.record(&entry(&actor(), &origin(), "test")).await?;
        let sql = &mut administrator(database).await?;
        let tables = "SELECT string_agg(c.relname, ' ') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'audit_log'::regclass";
        let partitions = value(sql, tables).await?;
        let default = "INSERT INTO audit_log (at, actor, actor_kind, action, object_kind, object_name, result)
            VALUES ('1999-01-01', 'a', 'System', 'a', 'k', 'n', 'Succeeded')";
        execute(sql, default).await?;
        let urls = DatabaseRole::ALL.map(|role| database.url(role)).into_iter();
        for url in urls.chain([database.administrator_url.as_str()]) {
            let mut connection = PgConnection::connect(url).await?;
            for table in partitions.split(' ').chain(["audit_log"]) {
                let statements = [
                    format!("UPDATE {table} SET actor = 'x'"),
                    format!("DELETE FROM {table}"),
                    format!("TRUNCATE {table}"),
                    format!(
                        "INSERT INTO {table} (id, at, actor, actor_kind, action, object_kind, object_name, result)
                        SELECT id, at, 'x', 'System', 'a', 'k', 'n', 'Failed' FROM {table}
                        ON CONFLICT (at, id) DO UPDATE SET actor = 'x'"
                    ),
                ];
                for statement in statements {
                    // A partition without rows rejects TRUNCATE only.
                    let is_empty = count(sql, table).await? == 0;
                    let result = sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut connection).await;
                    match result {
                        Err(sqlx::Error::Database(error)) => {
                            assert_eq!(error.code().as_deref(), Some(FORBIDDEN), "{statement}: {error}");
                        }
                        other => assert!(is_empty && other.is_ok(), "{url}: {statement}: {other:?}"),
                    }
                }
            }
        }
        assert_eq!(count(sql, "audit_log").await?, 2);
        assert_eq!(count(sql, "audit_log WHERE actor = 'x'").await?, 0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn list_contains_only_visible_entries_in_pages() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let store = database.store(DatabaseRole::Api)?;
        let (actor, origin) = (actor(), origin());
        for action in ["one", "two", "three"] {
            store.record(&entry(&actor, &origin, action)).await?;
        }
        let mut other = entry(&actor, &origin, "other");
        other.user = Some("bob");
        store.record(&other).await?;
        let visible = Visible::User("ada".to_owned());
        let first = store.list_audit(&visible, &Filter::default(), &Page { after: None, limit: 2 }).await?;
        let actions = |entries: &[odc_store::audit::Recorded]| {
            entries.iter().map(|entry| entry.action.clone()).collect::<Vec<_>>()
        };
        assert_eq!(actions(&first), ["three", "two"]);
        let page = Page { after: first.last().map(|entry| (entry.at, entry.id)), limit: 2 };
        assert_eq!(actions(&store.list_audit(&visible, &Filter::default(), &page).await?), ["one"]);
        let filter = Filter { action: Some("two".to_owned()), ..Filter::default() };
        assert_eq!(store.list_audit(&Visible::All, &filter, &Page { after: None, limit: 9 }).await?.len(), 1);
        assert_eq!(
            store.list_audit(&Visible::All, &Filter::default(), &Page { after: None, limit: 9 }).await?.len(),
            4
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn partitions_have_the_limits_of_months_in_utc() -> anyhow::Result<()> {
    with_migrated_database(async |database| {
        let sql = &mut administrator(database).await?;
        // The session of an administrator in a time zone with daylight saving time.
        let months = "SELECT date_trunc('month', now(), 'UTC')";
        let start = value(sql, months).await?;
        let partitions = "SELECT string_agg('DROP TABLE ' || inhrelid::regclass, '; ') FROM pg_inherits
            WHERE inhparent = 'audit_log'::regclass AND inhrelid::regclass::text <> 'audit_log_default'";
        let drop = value(sql, partitions).await?;
        execute(sql, &drop).await?;
        execute(sql, "SET timezone = 'America/New_York'").await?;
        assert_eq!(value(sql, "SELECT create_audit_partitions()").await?, "2");
        assert_eq!(value(sql, "SELECT create_audit_partitions()").await?, "0", "it can be repeated");
        execute(sql, "SET timezone = 'UTC'").await?;
        let bounds = "SELECT string_agg(pg_get_expr(c.relpartbound, c.oid), ', ' ORDER BY c.relname)
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'audit_log'::regclass AND c.relname <> 'audit_log_default'";
        let next = value(sql, "SELECT date_trunc('month', now(), 'UTC') + interval '1 month'").await?;
        let last = value(sql, "SELECT date_trunc('month', now(), 'UTC') + interval '2 months'").await?;
        let expected = format!("FOR VALUES FROM ('{start}') TO ('{next}'), FOR VALUES FROM ('{next}') TO ('{last}')");
        assert_eq!(value(sql, bounds).await?, expected);
        Ok(())
    })
    .await
}
