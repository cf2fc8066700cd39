//! The address of the database, from flags and environment variables.

use odc_store::Settings;

/// Where PostgreSQL is. `DATABASE_URL` takes precedence over the single variables.
#[derive(Clone, clap::Args)]
pub struct DatabaseOptions {
    /// URL of the database, such as `postgres://odc_api:PASSWORD@HOST:5432/odc?sslmode=verify-full`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Host of PostgreSQL
    #[arg(long, env = "POSTGRES_HOST", default_value = "postgres-primary.controlplane.svc.cluster.local")]
    postgres_host: String,
    /// Port of PostgreSQL
    #[arg(long, env = "POSTGRES_PORT", default_value_t = 5432)]
    postgres_port: u16,
    /// Role of the connection
    #[arg(long, env = "POSTGRES_USER", default_value = "gpudev")]
    postgres_user: String,
    /// Password of the role
    #[arg(long, env = "POSTGRES_PASSWORD", hide_env_values = true, default_value = "")]
    postgres_password: String,
    /// Name of the database
    #[arg(long, env = "POSTGRES_DB", default_value = "gpudev")]
    postgres_db: String,
}

impl DatabaseOptions {
    /// Returns the settings of connections. `application` is the name that administrators of the database see.
    pub fn settings(&self, application: &str) -> anyhow::Result<Settings> {
        let settings = match &self.database_url {
            Some(url) => Settings::from_url(url, application)?,
            None => Settings::from_parts(
                &self.postgres_host,
                self.postgres_port,
                &self.postgres_user,
                &self.postgres_password,
                &self.postgres_db,
                application,
            ),
        };
        if !settings.is_verified() {
            tracing::warn!(database = ?settings, "the identity of the database is not verified: set sslmode=verify-full");
        }
        Ok(settings)
    }
}
