//! The protocol between commands and the supervisor: JSON lines over a Unix socket in the state directory.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::supervisor::Statuses;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Replied to with [`Reply::Hello`].
    Hello,
    /// Replied to with [`Reply::Statuses`] at once and at every change, until the client disconnects.
    Watch,
    /// Reloads the settings and reconciles. Replied to with [`Reply::Done`] when every component has been set up to
    /// start.
    Apply,
    /// Powers off a node, which the settings already list as stopped. Replied to when its processes are gone.
    PowerOffNode { node: String },
    /// Exits and leaves the components running, so that a newer supervisor can adopt them.
    HandOver,
    /// Stops everything. Replied to when nothing is left.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Hello { build: String, pid: u32 },
    Statuses(Statuses),
    Done,
    Failed(String),
}

/// The client side of one request.
#[derive(Debug)]
pub struct SupervisorClient {
    stream: BufReader<UnixStream>,
}

impl SupervisorClient {
    /// Connects and sends the request. Returns `None` if no supervisor is running.
    pub async fn send(socket: &Path, request: &Request) -> anyhow::Result<Option<Self>> {
        let stream = match UnixStream::connect(socket).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            other => other.with_context(|| {
                format!("connecting to the supervisor at {} (it may belong to another user)", socket.display())
            })?,
        };
        let mut stream = BufReader::new(stream);
        write_message(stream.get_mut(), request).await?;
        Ok(Some(Self { stream }))
    }

    /// Returns the next reply, or `None` when the supervisor closed the connection.
    pub async fn next_reply(&mut self) -> anyhow::Result<Option<Reply>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).await {
            Ok(0) => return Ok(None),
            // The supervisor was killed before it read the request.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            other => other.context("reading from the supervisor")?,
        };
        serde_json::from_str(&line).map(Some).context("parsing the supervisor's reply")
    }

    /// Waits for the reply to a request that has exactly one.
    pub async fn wait_done(mut self) -> anyhow::Result<()> {
        match self.next_reply().await? {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Failed(reason)) => anyhow::bail!(reason),
            Some(Reply::Hello { .. } | Reply::Statuses(_)) => {
                anyhow::bail!("the supervisor sent an unexpected reply")
            }
            None => anyhow::bail!("the supervisor exited without a reply\nhint: run `./dev logs supervisor`"),
        }
    }
}

pub async fn write_message<T: Serialize>(stream: &mut UnixStream, message: &T) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await.context("writing to the supervisor's socket")
}

pub async fn read_request(stream: &mut BufReader<&mut UnixStream>) -> anyhow::Result<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    serde_json::from_str(&line).context("parsing a request")
}
