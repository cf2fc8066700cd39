//! How to connect.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// A transaction whose client does not continue is ended by the server, so that it holds no locks.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(30);
/// The server notices within a minute that a client is gone whose node has failed. The default is two hours, in which the
/// session would keep its locks.
const KEEPALIVE: [(&str, &str); 3] =
    [("tcp_keepalives_idle", "30"), ("tcp_keepalives_interval", "10"), ("tcp_keepalives_count", "3")];

#[derive(Clone)]
pub struct Settings {
    options: PgConnectOptions,
    pub max_connections: u32,
    /// How long a statement waits for a connection.
    pub acquire_timeout: Duration,
    /// A statement that takes longer is ended by the server.
    pub statement_timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
#[error("invalid database URL")]
pub struct InvalidUrl(#[source] sqlx::Error);

impl Settings {
    /// Parses a URL such as `postgres://user:password@host:5432/database?sslmode=verify-full&sslrootcert=ca.crt`. The name
    /// of the application is visible in `pg_stat_activity`.
    pub fn from_url(url: &str, application: &str) -> Result<Self, InvalidUrl> {
        let options = PgConnectOptions::from_str(url).map_err(InvalidUrl)?;
        Ok(Self::from_options(options, application))
    }

    /// Uses the given parts of an address, as in the variables `POSTGRES_*`.
    pub fn from_parts(host: &str, port: u16, user: &str, password: &str, database: &str, application: &str) -> Self {
        let options = PgConnectOptions::new_without_pgpass();
        let options = options.host(host).port(port).username(user).password(password).database(database);
        Self::from_options(options, application)
    }

    fn from_options(options: PgConnectOptions, application: &str) -> Self {
        Self {
            options: options.application_name(application),
            max_connections: 8,
            acquire_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
        }
    }

    /// Reports whether the identity of the server is checked, or the connection does not leave the machine.
    pub fn is_verified(&self) -> bool {
        let is_local = self.options.get_socket().is_some() || self.options.get_host().starts_with('/');
        is_local || matches!(self.options.get_ssl_mode(), PgSslMode::VerifyFull)
    }

    pub(crate) fn connect_options(&self) -> PgConnectOptions {
        self.options.clone().options(KEEPALIVE).options([
            ("statement_timeout", format!("{}ms", self.statement_timeout.as_millis())),
            ("idle_in_transaction_session_timeout", format!("{}ms", IDLE_IN_TRANSACTION_TIMEOUT.as_millis())),
        ])
    }
}

impl std::fmt::Debug for Settings {
    /// Omits the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}:{}", self.options.get_username(), self.options.get_host(), self.options.get_port())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_verification_counts() {
        let is_verified = |url: &str| Settings::from_url(url, "test").unwrap().is_verified();
        assert!(is_verified("postgres://odc_api@db.example.com/odc?sslmode=verify-full"));
        assert!(is_verified("postgres:///odc?host=/run/postgresql"));
        for mode in ["disable", "prefer", "require", "verify-ca"] {
            assert!(!is_verified(&format!("postgres://odc_api@db.example.com/odc?sslmode={mode}")), "{mode}");
        }
    }
}
