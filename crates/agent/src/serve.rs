//! `odc-agent serve`: the SSH server of a dev server. It needs nothing from the image.
//!
//! Everything runs on one thread. [`ssh`] handles connections: [`auth`] authenticates them, [`session`] runs shells and
//! commands, [`sftp`] transfers files, and [`forward`] relays forwarded connections. [`control`] serves the operator
//! and the user commands. [`background`] runs everything else: expiry warnings ([`notify`]), activity signals
//! ([`activity`]) and the Jupyter server ([`jupyter`]). Started processes outlive `serve`, unless they depend on its
//! terminals or pipes.

pub mod accept_retry;
pub mod activity;
pub mod auth;
pub mod background;
pub mod blocking;
pub mod context;
pub mod control;
pub mod endpoint_file;
pub mod expiry_and_idle;
pub mod forward;
pub mod gang_ssh;
pub mod jupyter;
pub mod notify;
pub mod persisted_state;
pub mod quiesce;
pub mod session;
pub mod sftp;
pub mod ssh;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use russh::keys::{Algorithm, PrivateKey};
use russh::server::Config;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::yield_now;

use crate::init_state::directory;
use crate::log::Logger;
use crate::serve::accept_retry::accept_retrying;
use crate::serve::activity::Activity;
use crate::serve::auth::access_list::Access;
use crate::serve::blocking::BlockingPool;
use crate::serve::context::{Context, Identity};
use crate::serve::endpoint_file::ServeEndpoint;
use crate::serve::expiry_and_idle::{Lifecycle, LifecycleConfig};
use crate::serve::notify::broadcast::TerminalBroadcast;
use crate::serve::session::account::Account;
use crate::serve::ssh::connection::serve_connection;
use crate::serve::ssh::handler::Addresses;
use crate::serve::ssh::pre_auth::PreAuthConnections;
use crate::serve::ssh::{config, russh_log};
use crate::{args, random};

/// Threads for blocking file system calls of SFTP. Started on demand, and enough that some remain if a few hang on a
/// network file system.
const MAX_BLOCKING_THREADS: usize = 32;

/// File name of the optional preStop script in the keys directory.
const PRE_STOP_FILE: &str = "pre-stop.sh";

/// Clients of further connections retry after a second, so a burst must not fill the queue before it is accepted. The
/// kernel limits the value to `net.core.somaxconn`.
const LISTEN_BACKLOG: u32 = 4096;

/// Returns only on an error during startup.
pub fn run(args: &args::Serve) -> anyhow::Result<ExitCode> {
    let args::Serve { listen, keys, server_uid, control_cas, persist_dir, state, login_grace, keepalive, rekey_after } =
        args;
    let logger = Arc::new(Logger::new());
    russh_log::install(&logger);
    let state_dir = directory::find(state.state_dir.as_deref()).context("no usable state directory")?;
    let host_key = load_host_key(&keys.join("host_key"))?;
    let (access, invalid) = Access::load(keys, control_cas, &state_dir, persist_dir.as_deref());
    for line in invalid {
        logger.log(format!("ignored {line}"));
    }
    let hosts = std::env::var("ODC_HOSTS").unwrap_or_default();
    if let Err(error) = gang_ssh::configure(keys, &state_dir, Path::new(gang_ssh::SYSTEM_SSH_CONFIG_DIR), &hosts) {
        logger.log(format!("cannot configure SSH between the nodes of this server: {error}"));
    }
    let identity = Identity::from_env(server_uid.as_str());
    let lifecycle = LifecycleConfig {
        state_dir: state_dir.clone(),
        home: Account::look_up().home,
        pre_stop: Some(keys.join(PRE_STOP_FILE)).filter(|script| script.is_file()),
        server: identity.server.clone(),
        jupyter_port: jupyter::PORT,
    };
    let ctx = Arc::new(Context {
        activity: Arc::new(Activity::new()),
        access,
        broadcast: TerminalBroadcast::default(),
        identity,
        state_dir,
        lifecycle: Lifecycle::new(lifecycle, &logger),
        logger,
        blocking: BlockingPool::default(),
    });
    let config = Arc::new(config::server_config(host_key, Duration::from_millis(*keepalive), *rekey_after));
    let login_grace = Duration::from_secs((*login_grace).into());
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .build()
        .context("cannot start the runtime")?
        .block_on(accept(*listen, ctx, config, login_grace))
}

fn load_host_key(path: &Path) -> anyhow::Result<PrivateKey> {
    let host_key = PrivateKey::read_openssh_file(path).with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(host_key.algorithm() == Algorithm::Ed25519, "the host key must be an ed25519 key");
    Ok(host_key)
}

async fn accept(
    listen: SocketAddr,
    ctx: Arc<Context>,
    config: Arc<Config>,
    login_grace: Duration,
) -> anyhow::Result<ExitCode> {
    let listener = bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    let endpoint = ServeEndpoint::new(listener.local_addr()?);
    if let Err(error) = endpoint.store(&ctx.state_dir) {
        ctx.logger.log(format!("cannot write serve.json; readiness probes will fail: {error}"));
    }
    if let Err(error) = background::spawn_tasks(&ctx) {
        ctx.logger.log(format!("cannot listen on agent.sock; odc-status will not work: {error}"));
    }
    let pre_auth = PreAuthConnections::default();
    loop {
        let (stream, _) = accept_retrying(|| listener.accept()).await;
        let Ok(addresses) = addresses(&stream) else { continue };
        let guard = pre_auth.register(random::u32());
        tokio::spawn(serve_connection(stream, addresses, guard, Arc::clone(&ctx), Arc::clone(&config), login_grace));
        // Yield so that new connections can send their version string before the pre-auth limit evicts them, and so
        // that established connections are served during a burst.
        yield_now().await;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a previous `serve` may be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

fn addresses(stream: &TcpStream) -> io::Result<Addresses> {
    stream.set_nodelay(true)?;
    Ok(Addresses { client: stream.peer_addr()?, server: stream.local_addr()? })
}
