//! The TLS listener for the client: a loopback port that can be closed and reopened.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::apifault::proxy::Proxy;
use crate::certificate::LoopbackCertificate;

pub struct Listener {
    pub address: SocketAddr,
    /// CA certificate for the client, PEM.
    pub authority: String,
    tls: TlsAcceptor,
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

/// Accepts connections until `stop` is dropped.
struct AcceptLoop {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Listener {
    pub fn open(proxy: Arc<Proxy>) -> anyhow::Result<Self> {
        let (tls, authority) = create_certificate()?;
        let socket = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        let accept_loop = AcceptLoop::start(socket, &tls, &proxy)?;
        Ok(Self { address, authority, tls, proxy, state: Mutex::new(State::Open(accept_loop)) })
    }

    /// Closes all connections and refuses new ones.
    pub async fn close(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Failed) {
            State::Open(AcceptLoop { stop, task }) => {
                drop(stop);
                task.await?;
            }
            other => *state = other,
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
            State::Closed(socket) => State::Open(AcceptLoop::start(socket, &self.tls, &self.proxy)?),
            State::Failed => State::Open(AcceptLoop::start(bind(self.address)?, &self.tls, &self.proxy)?),
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
    fn start(socket: TcpSocket, tls: &TlsAcceptor, proxy: &Arc<Proxy>) -> anyhow::Result<Self> {
        let listener = socket.listen(1024)?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(listener, tls.clone(), Arc::clone(proxy), stopped));
        Ok(Self { stop, task })
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, proxy: Arc<Proxy>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, tls.clone(), Arc::clone(&proxy)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// Serves one connection. Errors are ignored, since the client sees them as well.
async fn serve(stream: TcpStream, tls: TlsAcceptor, proxy: Arc<Proxy>) {
    // Watch events must not be delayed.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| Arc::clone(&proxy).handle(request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Creates a CA and a server certificate for loopback. Returns the acceptor and the CA certificate.
fn create_certificate() -> anyhow::Result<(TlsAcceptor, String)> {
    let LoopbackCertificate { authority, certificate, key } = LoopbackCertificate::create()?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), authority))
}
