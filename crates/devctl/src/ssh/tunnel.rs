//! A byte stream to a port of a pod through the Kubernetes API: a web socket with the protocol `v4.channel.k8s.io`.
//!
//! kube has its own port-forwarder, but it relays both directions in one task, so that a blocked direction blocks the
//! other; it sends chunks of 4 KiB; and it drops pending data when the local side closes. Here the directions are
//! independent.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{Sink as _, Stream as _};
use k8s_openapi::api::core::v1::Pod;
use kube::core::Request;
use kube::{Client, Resource as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

/// Larger chunks are not faster and use memory in every proxy on the path.
const CHUNK_SIZE: usize = 64 * 1024;

/// Each port has a data channel and an error channel.
const DATA_CHANNEL: u8 = 0;
const ERROR_CHANNEL: u8 = 1;

/// The error of reading from or writing to a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The reason comes from the kubelet, such as "connection refused".
    #[error("could not connect to pod {pod}: {reason}")]
    Refused { pod: String, reason: String },
    #[error("lost the connection through the Kubernetes API")]
    Lost(#[source] Box<WsError>),
    #[error("port-forward protocol error: {0}")]
    Protocol(&'static str),
}

/// Reads end when the pod or the API server closes the connection. The protocol has no half-close, so shutdown closes both
/// directions.
pub struct Tunnel<S> {
    pod: String,
    stream: WebSocketStream<S>,
    /// Whether each channel has sent its port number, which is its first message.
    initialized: [bool; 2],
    /// Received data that was not read yet.
    buffered: Bytes,
}

/// Connects to a port of a pod. Succeeds even if nothing listens; the first read or write then fails.
pub async fn open(
    client: &Client,
    namespace: &str,
    pod: &str,
    port: u16,
) -> Result<Tunnel<impl AsyncRead + AsyncWrite + Unpin + Send + use<>>, kube::Error> {
    let request = Request::new(Pod::url_path(&(), Some(namespace)))
        .portforward(pod, &[port])
        .map_err(kube::Error::BuildRequest)?;
    let connection = client.connect(request).await?;
    Ok(Tunnel::new(pod, connection.into_stream()))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Tunnel<S> {
    fn new(pod: &str, stream: WebSocketStream<S>) -> Self {
        Self { pod: pod.to_owned(), stream, initialized: [false; 2], buffered: Bytes::new() }
    }

    /// Returns the data of a message.
    fn parse_message(&mut self, mut bytes: Bytes) -> Result<Bytes, Error> {
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let channel = bytes.get_u8();
        let initialized =
            self.initialized.get_mut(usize::from(channel)).ok_or(Error::Protocol("unexpected channel"))?;
        if !*initialized {
            *initialized = true;
            return match bytes.len() {
                2 => Ok(Bytes::new()),
                _ => Err(Error::Protocol("missing port number")),
            };
        }
        if channel == ERROR_CHANNEL {
            return Err(refused_error(&self.pod, &String::from_utf8_lossy(&bytes)));
        }
        Ok(bytes)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.buffered.is_empty() {
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Ok(()));
            };
            match message {
                Ok(Message::Binary(bytes)) => self.buffered = self.parse_message(bytes).map_err(io::Error::other)?,
                Ok(Message::Close(_)) => return Poll::Ready(Ok(())),
                // tungstenite answers pings.
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(lost_error(error))),
            }
        }
        let count = buffer.remaining().min(self.buffered.len());
        buffer.put_slice(&self.buffered.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.stream).poll_ready(context)).map_err(lost_error)?;
        let chunk = &bytes[..bytes.len().min(CHUNK_SIZE)];
        let mut message = BytesMut::with_capacity(chunk.len() + 1);
        message.put_u8(DATA_CHANNEL);
        message.put_slice(chunk);
        Pin::new(&mut self.stream).start_send(Message::Binary(message.freeze())).map_err(lost_error)?;
        Poll::Ready(Ok(chunk.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context).map_err(lost_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context).map_err(lost_error)
    }
}

fn lost_error(error: WsError) -> io::Error {
    io::Error::other(Error::Lost(Box::new(error)))
}

/// The kubelet prefixes the reason once per layer; the last part is the cause.
fn refused_error(pod: &str, reason: &str) -> Error {
    let reason = reason.trim();
    let cause = reason.rsplit(": ").next().filter(|last| !last.is_empty()).unwrap_or(reason);
    Error::Refused { pod: pod.to_owned(), reason: cause.to_owned() }
}

#[cfg(test)]
mod tests;
