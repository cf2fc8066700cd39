//! How commands talk to the supervisor: one JSON line asks, JSON lines answer, on a socket in the state directory.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::supervisor::Snapshot;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// Answers [`Reply::Hello`].
    Hello,
    /// Answers with a [`Reply::Parts`] now and at every change, until the asker hangs up.
    Watch,
    /// Reads the settings again and makes it so. Answers [`Reply::Done`] when everything has been set going.
    Apply,
    /// Pulls a node's plug: answers when it is dead. The settings already say so.
    Unplug { node: String },
    /// Ends without ending the parts, so that a newer supervisor can take over.
    HandOver,
    /// Ends everything. Answers when nothing is left.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reply {
    Hello { build: String, pid: u32 },
    Parts(Snapshot),
    Done,
    Failed(String),
}

/// One conversation, from the asker's side.
#[derive(Debug)]
pub struct Conversation {
    stream: BufReader<UnixStream>,
}

impl Conversation {
    /// Nothing if nobody listens: no supervisor runs.
    pub async fn start(socket: &Path, request: &Request) -> anyhow::Result<Option<Self>> {
        let stream = match UnixStream::connect(socket).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            other => other.with_context(|| {
                format!("asking the supervisor on {} (a cloud of another user is theirs to command)", socket.display())
            })?,
        };
        let mut stream = BufReader::new(stream);
        send(stream.get_mut(), request).await?;
        Ok(Some(Self { stream }))
    }

    /// The next answer; nothing when the supervisor hung up.
    pub async fn next(&mut self) -> anyhow::Result<Option<Reply>> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).await {
            Ok(0) => return Ok(None),
            // It was killed before it took our request.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            other => other.context("listening to the supervisor")?,
        };
        serde_json::from_str(&line).map(Some).context("understanding the supervisor")
    }

    /// Waits for the one answer of a request that has just one.
    pub async fn done(mut self) -> anyhow::Result<()> {
        match self.next().await? {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Failed(reason)) => anyhow::bail!(reason),
            Some(Reply::Hello { .. } | Reply::Parts(_)) => {
                anyhow::bail!("the supervisor gave an answer to another question")
            }
            None => anyhow::bail!("the supervisor ended before it answered; see ./dev logs supervisor"),
        }
    }
}

pub async fn send<T: Serialize>(stream: &mut UnixStream, message: &T) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await.context("writing to the supervisor's socket")
}

pub async fn receive(stream: &mut BufReader<&mut UnixStream>) -> anyhow::Result<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    serde_json::from_str(&line).context("understanding a request")
}
