//! The peers: an HTTP API with `FastAPI`, and a processor that consumes messages with PGMQ's functions. They use the same
//! API server and database as ODC, and tables of their own.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::Kubeconfig;
use odc_api::v1alpha1::DevServer;
use odc_tests::api_client::ApiClient;
use odc_tests::{DatabaseRole, Service, sql, user, wait};
use serde_json::{Value, json};
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::python;

const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than the benchmark, so that no connection is closed while a request is sent.
const KEEP_ALIVE_SECONDS: &str = "3600";
/// How often the processor reads an empty queue.
pub(super) const POLL_INTERVAL_SECONDS: u32 = 5;
/// Queue of the processor.
pub(super) const QUEUE: &str = "peer_reservations";

/// What the programs need to run.
pub(super) struct Peers {
    python: PathBuf,
    database_url: String,
    directory: PathBuf,
    kube_server: String,
    kube_authority: String,
    kube_token: String,
}

/// What a processor does with a message.
#[derive(Clone, Copy)]
pub(super) enum Handler<'a> {
    /// Creates a server with the spec and annotations of this one.
    Create(&'a DevServer),
    /// Nothing.
    None,
}

impl Peers {
    /// Creates the tables, and users with keys.
    pub(super) async fn install(
        service: &Service<'_>,
        python: PathBuf,
        users: &[String],
        sql: &mut PgConnection,
    ) -> anyhow::Result<Self> {
        // By the role with which the programs connect, so that it owns the tables.
        let database_url = service.database.url(DatabaseRole::Migrator).to_owned();
        sql::execute(sql, "SET ROLE odc_migrator").await?;
        sql::execute(sql, include_str!("../../peers/schema.sql")).await?;
        for user in users {
            let key = credential(user);
            let statement = format!(
                "WITH u AS (INSERT INTO peer.api_users (username) VALUES ('{user}') RETURNING user_id)
                INSERT INTO peer.api_keys (user_id, key_hash)
                SELECT user_id, encode(sha256('{key}'::bytea), 'hex') FROM u"
            );
            sql::execute(sql, &statement).await?;
        }
        sql::execute(sql, "RESET ROLE").await?;
        let cluster = Kubeconfig::read_from(&service.plane.kubeconfig)?.clusters.into_iter().next();
        let cluster = cluster.and_then(|cluster| cluster.cluster).context("the kubeconfig has no cluster")?;
        Ok(Self {
            python,
            database_url,
            directory: service.directory.clone(),
            kube_server: cluster.server.context("the cluster has no server")?,
            kube_authority: cluster.certificate_authority.context("the cluster has no CA file")?,
            kube_token: user::service_account_token(&service.plane.client, "odc-system", "odc-worker").await?,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.env("DATABASE_URL", &self.database_url).current_dir(python::programs()).kill_on_drop(true);
        // The programs are files of the repository.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Starts the API with the certificate of `odc api`, and waits until it answers.
    pub(super) async fn start_api(&self, service: &Service<'_>, user: &str) -> anyhow::Result<PeerApi> {
        let port = odc_local::free_port::reserve()?.local_addr()?.port();
        let log = self.directory.join("peer-api.log");
        let mut command = self.command();
        command.args(["-m", "uvicorn", "api:app", "--loop", "uvloop", "--http", "httptools", "--no-access-log"]);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--timeout-keep-alive", KEEP_ALIVE_SECONDS]);
        for (option, file) in [("--ssl-certfile", "api.crt"), ("--ssl-keyfile", "api.key")] {
            command.arg(option).arg(service.directory.join(file));
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let url = format!("https://127.0.0.1:{port}");
        let client = ApiClient::new(&url, &service.authority, &credential(user))?;
        wait::until("answer of the peer", READY_TIMEOUT, async || {
            let response = client.get("/me").await;
            let response = response.with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
            anyhow::ensure!(response.status == 200, "{response:?}");
            Ok(())
        })
        .await?;
        Ok(PeerApi { child, client })
    }

    /// Starts a processor, which waits for [`Processor::begin`]. With `poll` it never ends.
    pub(super) async fn start_processor(&self, handler: Handler<'_>, poll: bool) -> anyhow::Result<Processor> {
        let mut command = self.command();
        command.arg("processor.py");
        if let Handler::Create(template) = handler {
            command.env("KUBE_SERVER", &self.kube_server).env("KUBE_CA", &self.kube_authority);
            command.env("KUBE_TOKEN", &self.kube_token).env("KUBE_OBJECT", object(template)?.to_string());
        }
        if poll {
            command.env("POLL_INTERVAL_SECONDS", POLL_INTERVAL_SECONDS.to_string());
        }
        // Errors are those of the benchmark.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let input = child.stdin.take().context("the standard input is a pipe")?;
        let output = child.stdout.take().context("the standard output is a pipe")?;
        let mut processor = Processor { child, input, output: BufReader::new(output).lines() };
        let line = tokio::time::timeout(READY_TIMEOUT, processor.output.next_line()).await??;
        anyhow::ensure!(line.as_deref() == Some("ready"), "the processor does not start: {line:?}");
        Ok(processor)
    }
}

/// Returns what a processor creates: the object without what the API server adds.
fn object(template: &DevServer) -> anyhow::Result<Value> {
    Ok(json!({
        "apiVersion": "odc.dev/v1alpha1",
        "kind": "DevServer",
        "metadata": {"annotations": template.metadata.annotations},
        "spec": serde_json::to_value(&template.spec)?,
    }))
}

/// Returns the API key of a user.
pub(super) fn credential(user: &str) -> String {
    format!("peer-{user}-0123456789abcdef0123456789abcdef")
}

/// A running API. Killed when dropped.
pub(super) struct PeerApi {
    child: Child,
    /// A client with the credential of one user.
    pub client: ApiClient,
}

impl PeerApi {
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the peer is running")
    }
}

/// A running processor. Killed when dropped.
pub(super) struct Processor {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Processor {
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the processor is running")
    }

    /// Lets the processor consume messages.
    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.input.write_all(b"\n").await?)
    }

    /// Waits until the queue is empty. Returns the number of messages that this processor has consumed.
    pub(super) async fn wait_drained(&mut self) -> anyhow::Result<usize> {
        let line = self.output.next_line().await?.context("the processor failed")?;
        line.parse().context("parsing a number of messages")
    }
}
