//! One conversation with an agent: SSH to the one host key it may have, a certificate that is good for minutes, the
//! subsystem `odc-control`, and as many replies as requests.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use odc_api::port;
use odc_control::{Frames, Reply, Request, read_reply, write_request};
use rand::Rng as _;
use russh::client::{self, AuthResult};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::{Certificate, PrivateKey, PublicKey};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::authority::{self, Authority};

/// Until the agent's port answers: it is in the same cluster.
const REACH: Duration = Duration::from_secs(3);
/// Until we are let in.
const LOGIN: Duration = Duration::from_secs(5);
/// Clocks may differ by as much.
const BACK_DATED: u64 = 300;
const GOOD_FOR: u64 = 300;

/// What this process proves itself with, signed anew for each conversation.
pub struct Key(Arc<PrivateKey>);

impl Key {
    pub fn fresh() -> anyhow::Result<Self> {
        Ok(Self(Arc::new(authority::fresh_key("odc-operator")?)))
    }
}

/// Apart from the conversation itself, which takes turns: agents that cannot be reached hold up nobody else.
pub async fn reach(address: &str) -> Result<TcpStream, String> {
    match tokio::time::timeout(REACH, TcpStream::connect((address, port::AGENT))).await {
        Ok(stream) => stream.map_err(|error| error.to_string()),
        Err(_) => Err("it cannot be reached in time".into()),
    }
}

pub struct Dial<'a> {
    pub authority: &'a Authority,
    pub key: &'a Key,
    /// Of the server.
    pub uid: &'a str,
    pub host_key: &'a str,
    pub now: Timestamp,
}

impl Dial<'_> {
    /// A reply for each request, or in words why not.
    pub async fn ask(&self, stream: TcpStream, requests: &[Request], limit: Duration) -> Result<Vec<Reply>, String> {
        let session = match tokio::time::timeout(LOGIN, self.log_in(stream)).await {
            Ok(session) => session?,
            Err(_) => return Err("it does not let us in in time".into()),
        };
        let replies = tokio::time::timeout(limit, converse(&session, requests)).await;
        // It notices that we are gone anyway.
        let _ = session.disconnect(russh::Disconnect::ByApplication, "", "").await;
        replies.unwrap_or_else(|_| Err("it does not answer in time".into()))
    }

    async fn log_in(&self, stream: TcpStream) -> Result<client::Handle<Pinned>, String> {
        let host_key = PublicKey::from_openssh(self.host_key).map_err(|error| format!("its host key: {error}"))?;
        let certificate = self.certificate().map_err(|error| format!("signing a certificate: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let session = client::connect_stream(Arc::default(), stream, Pinned(host_key)).await;
        let mut session = session.map_err(|error| error.to_string())?;
        let login = session.authenticate_openssh_cert("odc", self.key.0.clone(), certificate).await;
        match login.map_err(|error| error.to_string())? {
            AuthResult::Success => Ok(session),
            AuthResult::Failure { .. } => Err("it does not know our certificate's authority".into()),
        }
    }

    fn certificate(&self) -> russh::keys::ssh_key::Result<Certificate> {
        let now = u64::try_from(self.now.as_second()).unwrap_or_default();
        let mut nonce = [0; 16];
        rand::rng().fill_bytes(&mut nonce);
        let (from, until) = (now.saturating_sub(BACK_DATED), now.saturating_add(GOOD_FOR));
        let mut builder = Builder::new(nonce, self.key.0.public_key().key_data().clone(), from, until)?;
        builder.cert_type(CertType::User)?.key_id("odc-operator")?.valid_principal(format!("control:{}", self.uid))?;
        builder.sign(&self.authority.signing)
    }
}

async fn converse(session: &client::Handle<Pinned>, requests: &[Request]) -> Result<Vec<Reply>, String> {
    let broken = |error: russh::Error| error.to_string();
    let channel = session.channel_open_session().await.map_err(broken)?;
    channel.request_subsystem(false, "odc-control").await.map_err(broken)?;
    let mut stream = channel.into_stream();
    let mut replies = Vec::new();
    let mut frames = Frames::default();
    let mut piece = vec![0; 16 << 10];
    for request in requests {
        let line = write_request(request).map_err(|error| error.to_string())?;
        stream.write_all(&line).await.map_err(|error| error.to_string())?;
        let line = loop {
            if let Some(line) = frames.take().map_err(|error| error.to_string())? {
                break line;
            }
            match stream.read(&mut piece).await.map_err(|error| error.to_string())? {
                0 => return Err("it ended the conversation".into()),
                count => frames.push(&piece[..count]),
            }
        };
        replies.push(read_reply(&line).map_err(|error| error.to_string())?);
    }
    Ok(replies)
}

/// Talks to the holder of one key and to nobody else.
struct Pinned(PublicKey);

impl client::Handler for Pinned {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.key_data() == self.0.key_data(),
            PublicKeyOrCertificate::Certificate(_) => false,
        })
    }
}
