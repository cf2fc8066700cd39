//! Ports and sockets in the server whose connections are carried to the client that asked for them. Ports are open only to
//! the server itself, as with sshd unless told otherwise.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use russh::server::Handle;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::serve::activity::Activity;
use crate::serve::apart::Apart;
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
    pub apart: Apart,
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

    pub async fn open_socket(&mut self, client: &Client, path: &str) -> io::Result<()> {
        if self.ports.len() + self.sockets.len() >= MOST {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let listener = listen(&client.apart, Path::new(path)).await?;
        let task = tokio::spawn(accept_unix(listener, client.clone(), path.to_owned()));
        self.sockets.insert(PathBuf::from(path), task);
        Ok(())
    }

    pub async fn close_socket(&mut self, apart: &Apart, path: &str) -> bool {
        let Some(task) = self.sockets.remove(Path::new(path)) else { return false };
        task.abort();
        let path = path.to_owned();
        // What is left of it is replaced by whoever wants its place.
        let _ = apart.run(move || fs::remove_file(path)).await;
        true
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.ports.values().flatten().for_each(JoinHandle::abort);
        for (path, task) in self.sockets.drain() {
            task.abort();
            // Its directory may hang, and nobody needs to wait for it.
            let _ = thread::Builder::new().name("apart".to_owned()).spawn(move || fs::remove_file(path));
        }
    }
}

/// Only for the server's own user. A socket that nobody listens to was left by a client that is gone, and is replaced.
/// Whoever does listen is not waited for, even if nobody there takes connections.
pub async fn listen(apart: &Apart, path: &Path) -> io::Result<UnixListener> {
    let there = path.to_owned();
    let bound = match apart.run(move || bind(&there)).await? {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let there = path.to_owned();
            let left = move || fs::symlink_metadata(there).is_ok_and(|file| file.file_type().is_socket());
            let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !apart.run(left).await? || !UnixStream::connect(path).await.is_err_and(refused) {
                return Err(error);
            }
            let there = path.to_owned();
            apart.run(move || fs::remove_file(&there).and_then(|()| bind(&there))).await??
        }
        bound => bound?,
    };
    bound.set_nonblocking(true)?;
    UnixListener::from_std(bound)
}

fn bind(path: &Path) -> io::Result<StdUnixListener> {
    let bound = StdUnixListener::bind(path)?;
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
            let Client { handle, inboxes, activity, .. } = client;
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
            let Client { handle, inboxes, activity, .. } = client;
            if let Ok(channel) = handle.channel_open_forwarded_streamlocal(path).await {
                let count = Count { activity, port: Some(SOCKET) };
                carry(channel, handle, inboxes, Link::Unix(stream), count).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
    use tokio::time::timeout;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_in_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        drop(StdUnixListener::bind(&path).unwrap());
        let apart = Apart::default();
        let held = super::listen(&apart, &path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = super::listen(&apart, &path).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(held);
        fs::write(place.path().join("file"), "").unwrap();
        assert!(super::listen(&apart, &place.path().join("file")).await.is_err());
    }

    #[tokio::test]
    async fn somebody_who_listens_and_takes_no_connection_makes_nobody_wait() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("socket");
        let address = SocketAddrUnix::new(&path).unwrap();
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let stopped = socket();
        bind(&stopped, &address).unwrap();
        listen(&stopped, 0).unwrap();
        // As many as it holds; the next would wait until one is taken.
        let waiting: Vec<_> = std::iter::repeat_with(socket).take_while(|one| connect(one, &address).is_ok()).collect();
        assert!(!waiting.is_empty());
        let taken = timeout(LONG, super::listen(&Apart::default(), &path)).await.expect("it does not wait");
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
