//! SQL of tests, executed as the administrator of the database server.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::Database;

/// Connects as the administrator of the server, who may read and change everything.
pub async fn administrator(database: &Database) -> anyhow::Result<PgConnection> {
    Ok(PgConnection::connect(&database.administrator_url).await?)
}

/// Returns the single value of a query, as text.
pub async fn value(connection: &mut PgConnection, sql: &str) -> anyhow::Result<String> {
    let text = sqlx::query_scalar::<_, Option<String>>(AssertSqlSafe(format!("SELECT ({sql})::text")));
    Ok(text.fetch_one(connection).await?.unwrap_or_default())
}

/// Returns the number of rows of a table, optionally with a condition.
pub async fn count(connection: &mut PgConnection, rows: &str) -> anyhow::Result<u64> {
    Ok(value(connection, &format!("SELECT count(*) FROM {rows}")).await?.parse()?)
}

/// Returns the rows of a query, each as text, in the order of the query.
pub async fn rows(connection: &mut PgConnection, sql: &str) -> anyhow::Result<Vec<String>> {
    let rows = sqlx::query_scalar::<_, String>(AssertSqlSafe(format!("SELECT row::text FROM ({sql}) AS row")));
    Ok(rows.fetch_all(connection).await?)
}

pub async fn execute(connection: &mut PgConnection, sql: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await?;
    Ok(())
}
