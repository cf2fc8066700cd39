//! Where the client knocks: a port on loopback with a certificate of its own, which can be shut and opened again.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Mutex, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::apifault::proxy::Proxy;

pub struct Door {
    pub address: SocketAddr,
    /// The authority a client must trust, in PEM.
    pub authority: String,
    tls: TlsAcceptor,
    proxy: Arc<Proxy>,
    state: Mutex<State>,
}

enum State {
    Open(Porter),
    /// Keeps the port, and refuses everyone.
    Shut(TcpSocket),
    /// Opening or shutting failed half-way.
    Lost,
}

/// Accepts connections until the other end of `stop` is gone.
struct Porter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Door {
    pub fn open(proxy: Arc<Proxy>) -> anyhow::Result<Self> {
        let (tls, authority) = identity()?;
        let socket = take_port(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = socket.local_addr()?;
        let porter = Porter::start(socket, &tls, &proxy)?;
        Ok(Self { address, authority, tls, proxy, state: Mutex::new(State::Open(porter)) })
    }

    /// Closes all connections and refuses new ones.
    pub async fn shut(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        match std::mem::replace(&mut *state, State::Lost) {
            State::Open(Porter { stop, task }) => {
                drop(stop);
                task.await?;
            }
            other => *state = other,
        }
        if matches!(*state, State::Lost) {
            *state = State::Shut(take_port(self.address)?);
        }
        Ok(())
    }

    pub async fn reopen(&self) -> anyhow::Result<()> {
        let mut state = self.state.lock().await;
        *state = match std::mem::replace(&mut *state, State::Lost) {
            State::Open(porter) => State::Open(porter),
            State::Shut(socket) => State::Open(Porter::start(socket, &self.tls, &self.proxy)?),
            State::Lost => State::Open(Porter::start(take_port(self.address)?, &self.tls, &self.proxy)?),
        };
        Ok(())
    }
}

/// A port that is bound but not listened to refuses connections, and nobody else can take it.
fn take_port(address: SocketAddr) -> anyhow::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("taking {address}"))?;
    Ok(socket)
}

impl Porter {
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

/// One connection. However it ends, the client has noticed; so nobody else is told.
async fn serve(stream: TcpStream, tls: TlsAcceptor, proxy: Arc<Proxy>) {
    // Small pieces of a watch must not wait for more.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = tls.accept(stream).await else { return };
    let service = service_fn(|request| Arc::clone(&proxy).handle(request));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// An authority made on the spot, and a server certificate of it for loopback.
fn identity() -> anyhow::Result<(TlsAcceptor, String)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()])?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsAcceptor::from(Arc::new(config)), pem))
}
