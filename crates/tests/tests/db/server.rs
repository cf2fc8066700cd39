//! The PostgreSQL server of tests and local clusters.

use odc_local::ephemeral::EphemeralDatabase;
use odc_tests::{DatabaseRole, with_database};
use sqlx::{Connection as _, PgConnection, Row as _};

#[tokio::test]
async fn database_is_empty_and_owned_by_an_unprivileged_role() -> anyhow::Result<()> {
    with_database(async |database| {
        let mut connection = PgConnection::connect(database.url(DatabaseRole::Migrator)).await?;
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
        let mut connection = PgConnection::connect(database.url(DatabaseRole::Migrator)).await?;
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
        let mut first = PgConnection::connect(one.url(DatabaseRole::Migrator)).await?;
        sqlx::query("CREATE TABLE only_here (id int)").execute(&mut first).await?;
        with_database(async |two| {
            assert_ne!(one.url(DatabaseRole::Migrator), two.url(DatabaseRole::Migrator));
            let mut second = PgConnection::connect(two.url(DatabaseRole::Migrator)).await?;
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
        for role in DatabaseRole::ALL {
            let url = database.url(role);
            let password = url.split(&[':', '@']).nth(2).unwrap();
            let error = PgConnection::connect(&url.replace(password, "guess")).await.unwrap_err().to_string();
            assert!(error.contains("password authentication failed"), "{role:?}: {error}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn server_is_stopped_after_the_test() -> anyhow::Result<()> {
    let url = with_database(async |database| Ok(database.url(DatabaseRole::Migrator).to_owned())).await?;
    assert!(PgConnection::connect(&url).await.is_err());
    Ok(())
}

#[tokio::test]
async fn every_role_connects_and_none_is_superuser() -> anyhow::Result<()> {
    with_database(async |database| {
        for role in DatabaseRole::ALL {
            let mut connection = PgConnection::connect(database.url(role)).await?;
            let row = sqlx::query(
                "SELECT rolname, rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls,
                        rolname = pg_get_userbyid(datdba)
                 FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()",
            )
            .fetch_one(&mut connection)
            .await?;
            assert_eq!(row.get::<&str, _>(0), role.as_str());
            assert!(!row.get::<bool, _>(1), "{role:?} has more attributes than LOGIN");
            assert_eq!(row.get::<bool, _>(2), role == DatabaseRole::Migrator, "{role:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn database_of_an_earlier_version_changes_its_owner() -> anyhow::Result<()> {
    odc_tests::init();
    let directory = tempfile::tempdir()?;
    let server = EphemeralDatabase::start(directory.path()).await?;
    let mut administrator = PgConnection::connect(&server.administrator_url()).await?;
    sqlx::raw_sql(
        "CREATE ROLE odc LOGIN; ALTER DATABASE odc OWNER TO odc; CREATE TABLE old (id int); ALTER TABLE old OWNER TO odc",
    )
    .execute(&mut administrator)
    .await?;
    administrator.close().await?;
    server.stop().await?;

    let server = EphemeralDatabase::start(directory.path()).await?;
    let mut connection = PgConnection::connect(&server.database_url(DatabaseRole::Migrator)?).await?;
    sqlx::query("DROP TABLE old").execute(&mut connection).await?;
    let roles = sqlx::query("SELECT FROM pg_roles WHERE rolname = 'odc'").fetch_all(&mut connection).await?;
    assert!(roles.is_empty());
    connection.close().await?;
    server.stop().await
}
