//! The client for agents: SSH with a pinned host key and a short-lived certificate, then the subsystem `odc-control`,
//! with one reply for each request.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use odc_api::port;
use odc_control::{LineDecoder, Reply, Request, read_reply, write_request};
use rand::Rng as _;
use russh::client::{self, AuthResult};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_key::certificate::{Builder, CertType};
use russh::keys::{Certificate, PrivateKey, PublicKey};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::ssh_control_ca::ControlCa;
use super::ssh_keygen::generate_key;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const AUTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Certificates are backdated by this, because clocks may differ.
const CLOCK_SKEW_SECONDS: u64 = 300;
const CERTIFICATE_VALIDITY_SECONDS: u64 = 300;

/// The key of this process. A new certificate is signed for each connection.
pub struct ClientKey(Arc<PrivateKey>);

impl ClientKey {
    pub fn generate() -> anyhow::Result<Self> {
        Ok(Self(Arc::new(generate_key(odc_api::label::OPERATOR)?)))
    }
}

/// Opens the TCP connection. A separate step, so that unreachable agents do not occupy the permits of
/// [`AgentClient::request`].
pub async fn connect(address: &str) -> Result<TcpStream, String> {
    match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((address, port::AGENT))).await {
        Ok(stream) => stream.map_err(|error| error.to_string()),
        Err(_) => Err("connect timed out".into()),
    }
}

pub struct AgentClient<'a> {
    pub ca: &'a ControlCa,
    pub key: &'a ClientKey,
    /// The uid of the server.
    pub uid: &'a str,
    pub host_key: &'a str,
    pub now: Timestamp,
}

impl AgentClient<'_> {
    /// Sends requests over a connection. Returns one reply for each.
    pub async fn request(
        &self,
        stream: TcpStream,
        requests: &[Request],
        timeout: Duration,
    ) -> Result<Vec<Reply>, String> {
        let session = match tokio::time::timeout(AUTH_TIMEOUT, self.authenticate(stream)).await {
            Ok(session) => session?,
            Err(_) => return Err("authentication timed out".into()),
        };
        let replies = tokio::time::timeout(timeout, exchange(&session, requests)).await;
        // The agent also notices a closed connection.
        let _ = session.disconnect(russh::Disconnect::ByApplication, "", "").await;
        replies.unwrap_or_else(|_| Err("request timed out".into()))
    }

    async fn authenticate(&self, stream: TcpStream) -> Result<client::Handle<PinnedHostKey>, String> {
        let host_key = PublicKey::from_openssh(self.host_key).map_err(|error| format!("invalid host key: {error}"))?;
        let certificate = self.certificate().map_err(|error| format!("signing a certificate: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let session = client::connect_stream(Arc::default(), stream, PinnedHostKey(host_key)).await;
        let mut session = session.map_err(|error| error.to_string())?;
        let result = session.authenticate_openssh_cert("odc", self.key.0.clone(), certificate).await;
        match result.map_err(|error| error.to_string())? {
            AuthResult::Success => Ok(session),
            AuthResult::Failure { .. } => Err("the agent does not trust the control CA".into()),
        }
    }

    fn certificate(&self) -> russh::keys::ssh_key::Result<Certificate> {
        let now = u64::try_from(self.now.as_second()).unwrap_or_default();
        let mut nonce = [0; 16];
        rand::rng().fill_bytes(&mut nonce);
        let valid_after = now.saturating_sub(CLOCK_SKEW_SECONDS);
        let valid_before = now.saturating_add(CERTIFICATE_VALIDITY_SECONDS);
        let mut builder = Builder::new(nonce, self.key.0.public_key().key_data().clone(), valid_after, valid_before)?;
        builder
            .cert_type(CertType::User)?
            .key_id(odc_api::label::OPERATOR)?
            .valid_principal(format!("control:{}", self.uid))?;
        builder.sign(&self.ca.signing_key)
    }
}

async fn exchange(session: &client::Handle<PinnedHostKey>, requests: &[Request]) -> Result<Vec<Reply>, String> {
    let text = |error: russh::Error| error.to_string();
    let channel = session.channel_open_session().await.map_err(text)?;
    channel.request_subsystem(false, "odc-control").await.map_err(text)?;
    let mut stream = channel.into_stream();
    let mut replies = Vec::new();
    let mut frames = LineDecoder::default();
    let mut buffer = vec![0; 16 << 10];
    for request in requests {
        let line = write_request(request).map_err(|error| error.to_string())?;
        stream.write_all(&line).await.map_err(|error| error.to_string())?;
        let line = loop {
            if let Some(line) = frames.next_line().map_err(|error| error.to_string())? {
                break line;
            }
            match stream.read(&mut buffer).await.map_err(|error| error.to_string())? {
                0 => return Err("connection closed by the agent".into()),
                count => frames.push(&buffer[..count]),
            }
        };
        replies.push(read_reply(&line).map_err(|error| error.to_string())?);
    }
    Ok(replies)
}

/// Accepts exactly one host key.
struct PinnedHostKey(PublicKey);

impl client::Handler for PinnedHostKey {
    type Error = russh::Error;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => key.key_data() == self.0.key_data(),
            PublicKeyOrCertificate::Certificate(_) => false,
        })
    }
}
