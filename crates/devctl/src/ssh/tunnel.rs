//! A byte stream to a port of a pod through the Kubernetes API: a WebSocket that speaks `v4.channel.k8s.io`.
//!
//! kube has a port-forwarder of its own. It carries both directions in one task, so one that is stuck stops the other
//! (and a server that waits for us to read never reads on); it sends pieces of 4 KiB, and drops what is still to come
//! when our side has said all it has to say. Here each direction goes on its own.

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

/// What is sent at once. Larger pieces are no faster, and take memory in every proxy on the way.
const PIECE: usize = 64 * 1024;

/// A port has two channels: its bytes, and the reason if it fails.
const DATA: u8 = 0;
const FAILURE: u8 = 1;

/// Why reading from or writing to a tunnel failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// In the words of the node, such as "connection refused".
    #[error("pod {pod} cannot be reached: {reason}")]
    Refused { pod: String, reason: String },
    #[error("the connection through the Kubernetes API broke")]
    Broken(#[source] Box<WsError>),
    #[error("the API server sent something that is no port-forwarding ({0})")]
    Protocol(&'static str),
}

/// Reading ends when the pod, or the API server on the way, closes it. The protocol cannot say that only our direction
/// has ended, so shutting down closes both.
pub struct Tunnel<S> {
    pod: String,
    stream: WebSocketStream<S>,
    /// Whether each channel has said its port, as it does first.
    begun: [bool; 2],
    /// What came and was not yet taken.
    rest: Bytes,
}

/// Connects to a port of a pod. Whether the port answers is known only when something comes from it.
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
        Self { pod: pod.to_owned(), stream, begun: [false; 2], rest: Bytes::new() }
    }

    /// What a message brings: bytes, or none.
    fn unpack(&mut self, mut bytes: Bytes) -> Result<Bytes, Error> {
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let channel = bytes.get_u8();
        let begun = self.begun.get_mut(usize::from(channel)).ok_or(Error::Protocol("a channel nobody asked for"))?;
        if !*begun {
            *begun = true;
            return match bytes.len() {
                2 => Ok(Bytes::new()),
                _ => Err(Error::Protocol("a channel that does not say its port first")),
            };
        }
        if channel == FAILURE {
            return Err(refused(&self.pod, &String::from_utf8_lossy(&bytes)));
        }
        Ok(bytes)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Tunnel<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            let Some(message) = ready!(Pin::new(&mut self.stream).poll_next(context)) else {
                return Poll::Ready(Ok(()));
            };
            match message {
                Ok(Message::Binary(bytes)) => self.rest = self.unpack(bytes).map_err(io::Error::other)?,
                Ok(Message::Close(_)) => return Poll::Ready(Ok(())),
                // Pings are answered by the library.
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(broken(error))),
            }
        }
        let count = into.remaining().min(self.rest.len());
        into.put_slice(&self.rest.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Tunnel<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.stream).poll_ready(context)).map_err(broken)?;
        let piece = &bytes[..bytes.len().min(PIECE)];
        let mut message = BytesMut::with_capacity(piece.len() + 1);
        message.put_u8(DATA);
        message.put_slice(piece);
        Pin::new(&mut self.stream).start_send(Message::Binary(message.freeze())).map_err(broken)?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context).map_err(broken)
    }
}

fn broken(error: WsError) -> io::Error {
    io::Error::other(Error::Broken(Box::new(error)))
}

/// Nodes wrap the reason in where it came from, once per layer; the last part is what happened.
fn refused(pod: &str, reason: &str) -> Error {
    let reason = reason.trim();
    let short = reason.rsplit(": ").next().filter(|last| !last.is_empty()).unwrap_or(reason);
    Error::Refused { pod: pod.to_owned(), reason: short.to_owned() }
}

#[cfg(test)]
mod tests;
