//! Remote forwarding: listeners in the server whose connections are relayed to the client. Ports are bound to loopback,
//! as with `GatewayPorts no` in `sshd_config(5)`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use russh::server::Handle;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::serve::accept_retry::accept_retrying;
use crate::serve::activity::Activity;
use crate::serve::blocking::BlockingPool;
use crate::serve::forward::relay::{ByteCounter, UNIX_SOCKET_PORT, Upstream, relay};
use crate::serve::ssh::receive_buffer::ReceiveBuffers;

/// Per connection.
const MAX_LISTENERS: usize = 64;

/// The listeners of one connection; closed when dropped.
#[derive(Default)]
pub struct Listeners {
    ports: HashMap<(String, u32), Vec<JoinHandle<()>>>,
    sockets: HashMap<PathBuf, JoinHandle<()>>,
}

#[derive(Clone)]
pub struct ForwardContext {
    pub handle: Handle,
    pub buffers: ReceiveBuffers,
    pub activity: Arc<Activity>,
    pub blocking: BlockingPool,
}

impl Listeners {
    /// Returns the port, which is chosen by the kernel if `port` is 0.
    pub async fn open_port(&mut self, forward: &ForwardContext, address: &str, port: u32) -> io::Result<u32> {
        let requested = u16::try_from(port).map_err(|_| io::ErrorKind::InvalidInput)?;
        if self.ports.len() + self.sockets.len() >= MAX_LISTENERS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let ipv4 = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, requested))).await;
        let bound = match &ipv4 {
            Ok(listener) => listener.local_addr()?.port(),
            Err(_) => requested,
        };
        // One of the address families may be unavailable.
        let ipv6 = TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, bound))).await;
        let listeners = match (ipv4, ipv6) {
            (Err(error), Err(_)) => return Err(error),
            (ipv4, ipv6) => [ipv4.ok(), ipv6.ok()],
        };
        let tasks = listeners
            .into_iter()
            .flatten()
            .map(|listener| tokio::spawn(accept_tcp(listener, forward.clone(), address.to_owned(), bound)));
        self.ports.insert((address.to_owned(), bound.into()), tasks.collect());
        Ok(bound.into())
    }

    /// Reports whether the port was open.
    pub fn close_port(&mut self, address: &str, port: u32) -> bool {
        let tasks = self.ports.remove(&(address.to_owned(), port));
        tasks.iter().flatten().for_each(JoinHandle::abort);
        tasks.is_some()
    }

    pub async fn open_socket(&mut self, forward: &ForwardContext, path: &str) -> io::Result<()> {
        if self.ports.len() + self.sockets.len() >= MAX_LISTENERS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let listener = listen(&forward.blocking, Path::new(path)).await?;
        let task = tokio::spawn(accept_unix(listener, forward.clone(), path.to_owned()));
        self.sockets.insert(PathBuf::from(path), task);
        Ok(())
    }

    pub async fn close_socket(&mut self, blocking: &BlockingPool, path: &str) -> bool {
        let Some(task) = self.sockets.remove(Path::new(path)) else { return false };
        task.abort();
        let path = path.to_owned();
        // A stale socket file is replaced by the next listener.
        let _ = blocking.run(move || fs::remove_file(path)).await;
        true
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.ports.values().flatten().for_each(JoinHandle::abort);
        for (path, task) in self.sockets.drain() {
            task.abort();
            // The file system may hang, and the result is not needed.
            let _ = thread::Builder::new().name("blocking".to_owned()).spawn(move || fs::remove_file(path));
        }
    }
}

/// Binds a socket with access for the server's user only. A socket file without a listener is stale and is replaced.
/// Does not wait for a listener that accepts no connections.
pub async fn listen(blocking: &BlockingPool, path: &Path) -> io::Result<UnixListener> {
    let socket = path.to_owned();
    let bound = match blocking.run(move || bind(&socket)).await? {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let socket = path.to_owned();
            let is_socket = move || fs::symlink_metadata(socket).is_ok_and(|file| file.file_type().is_socket());
            let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
            if !blocking.run(is_socket).await? || !UnixStream::connect(path).await.is_err_and(is_refused) {
                return Err(error);
            }
            let socket = path.to_owned();
            blocking.run(move || fs::remove_file(&socket).and_then(|()| bind(&socket))).await??
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

async fn accept_tcp(listener: TcpListener, forward: ForwardContext, address: String, port: u16) {
    loop {
        let (stream, from) = accept_retrying(|| listener.accept()).await;
        let _ = stream.set_nodelay(true);
        let (forward, address) = (forward.clone(), address.clone());
        tokio::spawn(async move {
            let ForwardContext { handle, buffers, activity, .. } = forward;
            let (ip, from_port) = (from.ip().to_string(), u32::from(from.port()));
            let opened = handle.channel_open_forwarded_tcpip(address, port.into(), ip, from_port).await;
            // If the client rejects the channel, the connection is closed.
            if let Ok(channel) = opened {
                let counter = ByteCounter { activity, port: Some(port) };
                relay(channel, handle, buffers, Upstream::Tcp(stream), counter).await;
            }
        });
    }
}

async fn accept_unix(listener: UnixListener, forward: ForwardContext, path: String) {
    loop {
        let (stream, _) = accept_retrying(|| listener.accept()).await;
        let (forward, path) = (forward.clone(), path.clone());
        tokio::spawn(async move {
            let ForwardContext { handle, buffers, activity, .. } = forward;
            if let Ok(channel) = handle.channel_open_forwarded_streamlocal(path).await {
                let counter = ByteCounter { activity, port: Some(UNIX_SOCKET_PORT) };
                relay(channel, handle, buffers, Upstream::Unix(stream), counter).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
    use std::time::Duration;
    use tokio::time::timeout;

    const TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn stale_socket_is_replaced_and_one_in_use_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        drop(StdUnixListener::bind(&path).unwrap());
        let blocking = BlockingPool::default();
        let held = super::listen(&blocking, &path).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = super::listen(&blocking, &path).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(held);
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(super::listen(&blocking, &dir.path().join("file")).await.is_err());
    }

    #[tokio::test]
    async fn listener_that_accepts_nothing_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let address = SocketAddrUnix::new(&path).unwrap();
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let full = socket();
        bind(&full, &address).unwrap();
        listen(&full, 0).unwrap();
        // Fill the backlog; the next connect would block.
        let pending: Vec<_> =
            std::iter::repeat_with(socket).take_while(|socket| connect(socket, &address).is_ok()).collect();
        assert!(!pending.is_empty());
        let taken = timeout(TIMEOUT, super::listen(&BlockingPool::default(), &path)).await.expect("it does not block");
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
