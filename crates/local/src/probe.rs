//! Single-shot readiness probe; the supervisor retries.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::client::ClientBuilder;

const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub enum Probe {
    /// Expects a successful response; uses TLS with this certificate authority if there is one.
    Http { url: String, ca: Option<PathBuf> },
    /// Expects a Unix socket that accepts connections.
    Unix(PathBuf),
    /// Expects the command to exit with code 0.
    Command(Vec<String>),
}

impl Probe {
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http { url: url.into(), ca: None }
    }

    pub fn https(url: impl Into<String>, ca: PathBuf) -> Self {
        Self::Http { url: url.into(), ca: Some(ca) }
    }

    /// Probes once. The error is the reason shown in `odc local status`.
    pub async fn check(&self) -> anyhow::Result<()> {
        tokio::time::timeout(PROBE_TIMEOUT, self.check_without_timeout()).await.context("probe timed out")?
    }

    async fn check_without_timeout(&self) -> anyhow::Result<()> {
        match self {
            Self::Http { url, ca } => check_http(url, ca.clone()).await,
            Self::Unix(path) => tokio::net::UnixStream::connect(path).await.map(drop).context("not listening yet"),
            Self::Command(command) => {
                let (program, arguments) = command.split_first().context("empty probe command")?;
                let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
                crate::process::run(program, &arguments).await.map(drop)
            }
        }
    }
}

async fn check_http(url: &str, ca: Option<PathBuf>) -> anyhow::Result<()> {
    let uri: http::Uri = url.parse().with_context(|| format!("parsing the URL {url}"))?;
    let path = uri.path().to_owned();
    let mut config = kube::Config::new(uri);
    config.cluster_url = config.cluster_url.to_string().trim_end_matches(&path).parse()?;
    config.root_cert_file = ca;
    config.default_retry = false;
    let client = ClientBuilder::try_from(config)?.build();
    let request = http::Request::get(path).body(Vec::new())?;
    client.request_text(request).await.map(drop).map_err(summarize)
}

/// Reduces the error to one line without the layers of the transport.
fn summarize(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => {
            anyhow::anyhow!("status {}: {}", status.code, status.message.lines().next().unwrap_or_default())
        }
        other => anyhow::anyhow!("not responding yet").context(other.to_string()),
    }
}
