//! Connections that are carried through a client's own: to a port or socket in the server, from one, and to the client's
//! key agent.

pub mod agent;
pub mod listen;
pub mod resolve;

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
use crate::serve::apart::Apart;
use crate::serve::forward::resolve::resolve;
use crate::serve::inbox::Inboxes;
use crate::serve::outbox::{Gone, Outbox};

const PIECE: usize = 32 << 10;

/// How long a client may take to close a channel that is at its end. One with `-W` never does, and its user waits.
const CLOSING: Duration = Duration::from_millis(100);

/// Where a client wants to go.
#[derive(Clone, Debug)]
pub enum Target {
    Port { host: String, port: u16 },
    Socket(PathBuf),
}

/// A connection in the server.
pub enum Link {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Target {
    pub async fn connect(&self, apart: &Apart) -> io::Result<Link> {
        match self {
            Self::Socket(path) => {
                // The way there may hang; what follows does not.
                let there = path.clone();
                apart.run(move || fs::metadata(there)).await??;
                UnixStream::connect(path).await.map(Link::Unix)
            }
            Self::Port { host, port } => {
                let mut problem = io::Error::new(io::ErrorKind::NotFound, "it has no address");
                for address in resolve(host).await? {
                    match TcpStream::connect((address, *port)).await {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Link::Tcp(stream));
                        }
                        Err(error) => problem = error,
                    }
                }
                Err(problem)
            }
        }
    }

    /// What is counted under: sockets have no number, and are one.
    pub fn port(&self) -> u16 {
        match self {
            Self::Port { port, .. } => *port,
            Self::Socket(_) => SOCKET,
        }
    }
}

/// What sockets are counted under.
pub const SOCKET: u16 = 0;

/// Counts what is carried.
#[derive(Clone, Debug)]
pub struct Count {
    pub activity: Arc<Activity>,
    /// Nothing is counted without one.
    pub port: Option<u16>,
}

impl Count {
    fn add(&self, bytes: usize) {
        if let Some(port) = self.port {
            self.activity.forwarded(port, bytes as u64);
        }
    }
}

/// Until both sides have said all, or one is gone. What the client sends comes by its inbox; the channel's own way for
/// that is given up at once, because the whole connection would wait for whoever did not read it.
pub async fn carry(channel: Channel<Msg>, handle: Handle, inboxes: Inboxes, link: Link, count: Count) {
    let (_, channel) = channel.split();
    let outbox = Outbox::new(channel, handle, inboxes);
    let carried = match link {
        Link::Tcp(mut stream) => {
            let (read, write) = stream.split();
            both_ways(&outbox, read, write, &count).await
        }
        Link::Unix(mut stream) => {
            let (read, write) = stream.split();
            both_ways(&outbox, read, write, &count).await
        }
    };
    if carried.is_ok() {
        // A channel that we close first, the library keeps in mind until the connection ends. Most clients close one on
        // which both sides have said all.
        let _ = timeout(CLOSING, outbox.inbox.closed()).await;
    }
    outbox.close().await;
}

async fn both_ways(
    outbox: &Outbox,
    mut read: impl AsyncRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
    count: &Count,
) -> Result<(), Gone> {
    let inwards = async {
        while let Some(piece) = outbox.inbox.next().await {
            count.add(piece.len());
            if write.write_all(&piece).await.is_err() {
                break;
            }
        }
        // The other side may have gone already.
        let _ = write.shutdown().await;
        outbox.inbox.discard().await;
    };
    let outwards = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            match read.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(bytes) => {
                    count.add(bytes);
                    outbox.send(buffer.split().freeze()).await?;
                }
            }
        }
        outbox.end().await;
        Ok(())
    };
    let outwards = async {
        tokio::select! {
            done = outwards => done,
            () = outbox.inbox.closed() => Err(Gone),
        }
    };
    tokio::select! {
        ((), done) = async { tokio::join!(inwards, outwards) } => done,
        () = outbox.inbox.gone() => Err(Gone),
    }
}
