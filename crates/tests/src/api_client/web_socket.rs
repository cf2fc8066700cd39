//! The receiving side of a WebSocket (RFC 6455).

use anyhow::Context as _;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

/// The headers of a handshake. The key is the example of the RFC.
pub(super) const HANDSHAKE: &[(&str, &str)] = &[
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const TEXT: u8 = 1;
const CLOSE: u8 = 8;

/// Closed when dropped.
#[derive(Debug)]
pub struct WebSocket(TokioIo<Upgraded>);

impl WebSocket {
    pub(super) fn new(upgraded: Upgraded) -> Self {
        Self(TokioIo::new(upgraded))
    }

    /// Waits for the next message, which is JSON. Returns `None` after the last one.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            match self.read_frame().await? {
                (TEXT, payload) => return Ok(Some(serde_json::from_slice(&payload).context("parsing a message")?)),
                (CLOSE, _) => return Ok(None),
                // Pings, which need no answer while the test lasts.
                _ => {}
            }
        }
    }

    /// Reads a frame. Those of a server are not masked, and short messages are not fragmented.
    async fn read_frame(&mut self) -> anyhow::Result<(u8, Vec<u8>)> {
        let first = self.0.read_u8().await?;
        let length = match self.0.read_u8().await? {
            126 => self.0.read_u16().await?.into(),
            127 => self.0.read_u64().await?,
            length => length.into(),
        };
        let mut payload = vec![0; usize::try_from(length)?];
        self.0.read_exact(&mut payload).await?;
        Ok((first & 0x0f, payload))
    }
}
