//! A loopback port that can be closed and reopened.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::TcpSocket;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

use crate::dbfault::{Proxy, session};

pub struct Listener {
    pub address: SocketAddr,
    proxy: Arc<Proxy>,
    state: Mutex<State>,
}

enum State {
    Open(AcceptLoop),
    /// The port is bound and refuses connections.
    Closed(TcpSocket),
    /// Opening or closing has failed.
    Failed,
}

/// Accepts connections until it is dropped, which closes them as well.
struct AcceptLoop(JoinHandle<()>);

impl Drop for AcceptLoop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    pub fn open(proxy: Arc<Proxy>) -> anyhow::Result<Self> {
        let socket = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        let accept_loop = AcceptLoop::start(socket, &proxy)?;
        Ok(Self { address, proxy, state: Mutex::new(State::Open(accept_loop)) })
    }

    /// Closes all connections and refuses new ones.
    pub async fn close(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        if let State::Open(accept_loop) = &mut *state {
            accept_loop.0.abort();
            // Fails because it was aborted.
            let _ = (&mut accept_loop.0).await;
            *state = State::Failed;
        }
        if matches!(*state, State::Failed) {
            *state = State::Closed(bind(self.address)?);
        }
        Ok(())
    }

    pub async fn reopen(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        *state = match std::mem::replace(&mut *state, State::Failed) {
            State::Open(accept_loop) => State::Open(accept_loop),
            State::Closed(socket) => State::Open(AcceptLoop::start(socket, &self.proxy)?),
            State::Failed => State::Open(AcceptLoop::start(bind(self.address)?, &self.proxy)?),
        };
        Ok(())
    }
}

/// Binds a port without listening: connections are refused, and no other process can bind it.
fn bind(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("binding {address}"))?;
    Ok(socket)
}

impl AcceptLoop {
    fn start(socket: TcpSocket, proxy: &Arc<Proxy>) -> anyhow::Result<Self> {
        let listener = socket.listen(1024)?;
        let proxy = Arc::clone(proxy);
        Ok(Self(tokio::spawn(async move {
            let mut sessions = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((client, _)) = listener.accept() => {
                        sessions.spawn(session::run(client, Arc::clone(&proxy)));
                    }
                    Some(_) = sessions.join_next() => {}
                }
            }
        })))
    }
}
