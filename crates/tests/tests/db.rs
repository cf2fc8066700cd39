//! Tests with a dedicated PostgreSQL server.

use odc_tests::with_database;
use sqlx::{Connection as _, PgConnection, Row as _};

#[tokio::test]
async fn database_is_empty_and_owned_by_an_unprivileged_role() -> anyhow::Result<()> {
    with_database(async |database| {
        let mut connection = PgConnection::connect(&database.url).await?;
        let row = sqlx::query(
            "SELECT rolsuper, (SELECT count(*) FROM pg_tables WHERE schemaname = 'public'), current_setting('server_version_num')::int / 10000
             FROM pg_roles WHERE rolname = current_user",
        )
        .fetch_one(&mut connection)
        .await?;
        assert!(!row.get::<bool, _>(0), "ODC must not need a superuser");
        assert_eq!(row.get::<i64, _>(1), 0);
        assert!(row.get::<i32, _>(2) >= 15, "the oldest supported PostgreSQL");
        sqlx::query("CREATE TABLE mine (id int)").execute(&mut connection).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn commits_are_durable() -> anyhow::Result<()> {
    with_database(async |database| {
        let mut connection = PgConnection::connect(&database.url).await?;
        let settings = sqlx::query("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
            .fetch_one(&mut connection)
            .await?;
        assert_eq!((settings.get::<&str, _>(0), settings.get::<&str, _>(1)), ("on", "on"));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn two_databases_are_isolated() -> anyhow::Result<()> {
    with_database(async |one| {
        let mut first = PgConnection::connect(&one.url).await?;
        sqlx::query("CREATE TABLE only_here (id int)").execute(&mut first).await?;
        with_database(async |two| {
            assert_ne!(one.url, two.url);
            let mut second = PgConnection::connect(&two.url).await?;
            let found =
                sqlx::query("SELECT FROM pg_tables WHERE tablename = 'only_here'").fetch_all(&mut second).await?;
            assert!(found.is_empty());
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn wrong_password_is_rejected() -> anyhow::Result<()> {
    with_database(async |database| {
        let password = database.url.split(&[':', '@']).nth(2).unwrap().to_owned();
        let wrong = database.url.replace(&password, "guess");
        assert!(
            PgConnection::connect(&wrong).await.unwrap_err().to_string().contains("password authentication failed")
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_is_stopped_after_the_test() -> anyhow::Result<()> {
    let url = with_database(async |database| Ok(database.url)).await?;
    assert!(PgConnection::connect(&url).await.is_err());
    Ok(())
}
