//! Connects to forwarding targets and relays data between them and a channel.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use russh::Channel;
use russh::server::{Handle, Msg};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::serve::activity::Activity;
use crate::serve::blocking::BlockingPool;
use crate::serve::forward::resolver::resolve;
use crate::serve::ssh::channel_writer::{ChannelClosed, ChannelWriter};
use crate::serve::ssh::receive_buffer::ReceiveBuffers;

const CHUNK_SIZE: usize = 32 << 10;

/// Time for the client to close a channel after EOF in both directions. `ssh -W` never does.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Port number under which Unix sockets are counted.
pub const UNIX_SOCKET_PORT: u16 = 0;

/// Where a client wants to connect to.
#[derive(Clone, Debug)]
pub enum Target {
    Port { host: String, port: u16 },
    Socket(PathBuf),
}

/// A connection in the server.
pub enum Upstream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Target {
    pub async fn connect(&self, blocking: &BlockingPool) -> io::Result<Upstream> {
        match self {
            Self::Socket(path) => {
                // The path lookup may hang; the connect after it does not.
                let lookup = path.clone();
                blocking.run(move || fs::metadata(lookup)).await??;
                UnixStream::connect(path).await.map(Upstream::Unix)
            }
            Self::Port { host, port } => {
                let mut last_error = io::Error::new(io::ErrorKind::NotFound, "no address found");
                for address in resolve(host).await? {
                    match TcpStream::connect((address, *port)).await {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Upstream::Tcp(stream));
                        }
                        Err(error) => last_error = error,
                    }
                }
                Err(last_error)
            }
        }
    }

    /// Returns the port number under which the connection is counted.
    pub fn port(&self) -> u16 {
        match self {
            Self::Port { port, .. } => *port,
            Self::Socket(_) => UNIX_SOCKET_PORT,
        }
    }
}

/// Reports relayed bytes as activity of a port.
#[derive(Clone, Debug)]
pub struct ByteCounter {
    pub activity: Arc<Activity>,
    /// Nothing is counted without a port.
    pub port: Option<u16>,
}

impl ByteCounter {
    fn add(&self, bytes: usize) {
        if let Some(port) = self.port {
            self.activity.record_forwarded(port, bytes as u64);
        }
    }
}

/// Relays until EOF in both directions, or until one side is closed. Data of the client comes from its receive buffer;
/// the read half of the channel is dropped, because russh would block the whole connection on a slow reader.
pub async fn relay(
    channel: Channel<Msg>,
    handle: Handle,
    buffers: ReceiveBuffers,
    upstream: Upstream,
    counter: ByteCounter,
) {
    let (_, channel) = channel.split();
    let writer = ChannelWriter::new(channel, handle, buffers);
    let result = match upstream {
        Upstream::Tcp(mut stream) => {
            let (read, write) = stream.split();
            copy_bidirectional(&writer, read, write, &counter).await
        }
        Upstream::Unix(mut stream) => {
            let (read, write) = stream.split();
            copy_bidirectional(&writer, read, write, &counter).await
        }
    };
    if result.is_ok() {
        // russh keeps a channel that the server closes first until the connection ends. Most clients close a channel
        // after EOF in both directions.
        let _ = timeout(CLOSE_TIMEOUT, writer.input.closed()).await;
    }
    writer.close().await;
}

async fn copy_bidirectional(
    writer: &ChannelWriter,
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    counter: &ByteCounter,
) -> Result<(), ChannelClosed> {
    let to_upstream = async {
        while let Some(chunk) = writer.input.next().await {
            counter.add(chunk.len());
            if write.write_all(&chunk).await.is_err() {
                break;
            }
        }
        // Fails if the upstream is closed already.
        let _ = write.shutdown().await;
        writer.input.discard().await;
    };
    let to_client = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_SIZE);
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(bytes) => {
                    counter.add(bytes);
                    writer.write(buffer.split().freeze()).await?;
                }
            }
        }
        writer.send_eof().await;
        Ok(())
    };
    let to_client = async {
        tokio::select! {
            result = to_client => result,
            () = writer.input.closed() => Err(ChannelClosed),
        }
    };
    tokio::select! {
        ((), result) = async { tokio::join!(to_upstream, to_client) } => result,
        () = writer.input.aborted() => Err(ChannelClosed),
    }
}
