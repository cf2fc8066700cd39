//! Asks a part whether it is ready. One question, one answer; the supervisor asks again.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::client::ClientBuilder;

#[derive(Clone, Debug)]
pub enum Probe {
    /// Answers 200 here, over TLS if an authority is named.
    Http { url: String, authority: Option<PathBuf> },
    /// Accepts connections on this socket.
    Unix(PathBuf),
    /// This command ends well.
    Command(Vec<String>),
}

/// A question not answered by then counts as "no".
const LIMIT: Duration = Duration::from_secs(3);

impl Probe {
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http { url: url.into(), authority: None }
    }

    pub fn https(url: impl Into<String>, authority: PathBuf) -> Self {
        Self::Http { url: url.into(), authority: Some(authority) }
    }

    /// The error says why not, for people.
    pub async fn ask(&self) -> anyhow::Result<()> {
        tokio::time::timeout(LIMIT, self.ask_once()).await.context("no answer")?
    }

    async fn ask_once(&self) -> anyhow::Result<()> {
        match self {
            Self::Http { url, authority } => http_ok(url, authority.clone()).await,
            Self::Unix(path) => tokio::net::UnixStream::connect(path).await.map(drop).context("not listening yet"),
            Self::Command(words) => {
                let (program, arguments) = words.split_first().context("an empty probe")?;
                let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
                crate::process::run(program, &arguments).await.map(drop)
            }
        }
    }
}

async fn http_ok(url: &str, authority: Option<PathBuf>) -> anyhow::Result<()> {
    let uri: http::Uri = url.parse().with_context(|| format!("reading the address {url}"))?;
    let path = uri.path().to_owned();
    let mut config = kube::Config::new(uri);
    config.cluster_url = config.cluster_url.to_string().trim_end_matches(&path).parse()?;
    config.root_cert_file = authority;
    config.default_retry = false;
    let client = ClientBuilder::try_from(config)?.build();
    let request = http::Request::get(path).body(Vec::new())?;
    client.request_text(request).await.map(drop).map_err(short)
}

/// The reason without the transport's inner layers.
fn short(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => {
            anyhow::anyhow!("answers {}: {}", status.code, status.message.lines().next().unwrap_or_default())
        }
        other => anyhow::anyhow!("not answering yet").context(other.to_string()),
    }
}
