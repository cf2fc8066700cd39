//! Ports and sockets in the server whose connections are carried to the client that asked for them. Ports are open only to
//! the server itself, as with sshd unless told otherwise.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::server::Handle;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::serve::activity::Activity;
use crate::serve::forward::{Count, Link, SOCKET, carry};
use crate::serve::inbox::Inboxes;

/// More than anybody needs, and fewer than there are files to open.
const MOST: usize = 64;

/// After a failure to take a connection, as when there are too many files.
pub(super) const BREATH: Duration = Duration::from_millis(100);

/// All that one client listens to. They end with it.
#[derive(Default)]
pub struct Listeners {
    ports: HashMap<(String, u32), Vec<JoinHandle<()>>>,
    sockets: HashMap<PathBuf, JoinHandle<()>>,
}

/// Who listens.
#[derive(Clone)]
pub struct Client {
    pub handle: Handle,
    pub inboxes: Inboxes,
    pub activity: Arc<Activity>,
}

impl Listeners {
    /// Gives the port, which is a free one if none was named.
    pub async fn open_port(&mut self, client: &Client, address: &str, port: u32) -> io::Result<u32> {
        let wanted = u16::try_from(port).map_err(|_| io::ErrorKind::InvalidInput)?;
        if self.ports.len() + self.sockets.len() >= MOST {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let first = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, wanted))).await;
        let given = match &first {
            Ok(listener) => listener.local_addr()?.port(),
            Err(_) => wanted,
        };
        // One of the two families may be missing.
        let second = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, given))).await;
        let listeners = match (first, second) {
            (Err(error), Err(_)) => return Err(error),
            (first, second) => [first.ok(), second.ok()],
        };
        let accepting = listeners
            .into_iter()
            .flatten()
            .map(|listener| tokio::spawn(accept_tcp(listener, client.clone(), address.to_owned(), given)));
        self.ports.insert((address.to_owned(), given.into()), accepting.collect());
        Ok(given.into())
    }

    /// Whether there was one.
    pub fn close_port(&mut self, address: &str, port: u32) -> bool {
        let tasks = self.ports.remove(&(address.to_owned(), port));
        tasks.iter().flatten().for_each(JoinHandle::abort);
        tasks.is_some()
    }

    pub fn open_socket(&mut self, client: &Client, path: &str) -> io::Result<()> {
        if self.ports.len() + self.sockets.len() >= MOST {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let listener = listen(Path::new(path))?;
        let task = tokio::spawn(accept_unix(listener, client.clone(), path.to_owned()));
        self.sockets.insert(PathBuf::from(path), task);
        Ok(())
    }

    pub fn close_socket(&mut self, path: &str) -> bool {
        let task = self.sockets.remove(Path::new(path));
        if let Some(task) = &task {
            task.abort();
            let _ = fs::remove_file(path);
        }
        task.is_some()
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.ports.values().flatten().for_each(JoinHandle::abort);
        for (path, task) in &self.sockets {
            task.abort();
            let _ = fs::remove_file(path);
        }
    }
}

/// Only for the server's own user. A socket that nobody listens to was left by a client that is gone, and is replaced.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path).or_else(|error| {
        let left = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if error.kind() == io::ErrorKind::AddrInUse && left && StdUnixStream::connect(path).is_err_and(refused) {
            fs::remove_file(path)?;
            return UnixListener::bind(path);
        }
        Err(error)
    })?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(bound)
}

async fn accept_tcp(listener: TcpListener, client: Client, address: String, port: u16) {
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (client, address) = (client.clone(), address.clone());
        tokio::spawn(async move {
            let Client { handle, inboxes, activity } = client;
            let (ip, from_port) = (from.ip().to_string(), u32::from(from.port()));
            let opened = handle.channel_open_forwarded_tcpip(address, port.into(), ip, from_port).await;
            // If the client wants none, the connection ends here.
            if let Ok(channel) = opened {
                let count = Count { activity, port: Some(port) };
                carry(channel, handle, inboxes, Link::Tcp(stream), count).await;
            }
        });
    }
}

async fn accept_unix(listener: UnixListener, client: Client, path: String) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let (client, path) = (client.clone(), path.clone());
        tokio::spawn(async move {
            let Client { handle, inboxes, activity } = client;
            if let Ok(channel) = handle.channel_open_forwarded_streamlocal(path).await {
                let count = Count { activity, port: Some(SOCKET) };
                carry(channel, handle, inboxes, Link::Unix(stream), count).await;
            }
        });
    }
}
