//! Creates the schema in the database of `DATABASE_URL`, without the queries that are checked against it.

use anyhow::Context as _;
use odc_store::{Settings, migrate};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set")?;
    migrate::migrate(&Settings::from_url(&url, "odc-migrate")?).await?;
    Ok(())
}
