//! `odc-agent serve`: the SSH server of a dev server. It needs nothing from the image.
//!
//! One thread does everything. A connection is answered by [`connection`], which starts what people run in [`session`],
//! their files in [`sftp`] and their forwarded connections in [`forward`]. Who gets in is up to [`access`] and
//! [`certificate`]. The server itself is looked after by [`steward`]. What is started outlives us, as far as it does not hang on a terminal or pipe of ours.

pub mod access;
pub mod account;
pub mod activity;
pub mod apart;
pub mod board;
pub mod certificate;
pub mod connection;
pub mod control;
pub mod deadline;
pub mod flow;
pub mod forward;
pub mod gang;
pub mod hearsay;
pub mod inbox;
pub mod intake;
pub mod jupyter;
pub mod kept;
pub mod listing;
pub mod local;
pub mod marker;
pub mod motd;
pub mod outbox;
pub mod prompt;
pub mod quiesce;
pub mod served;
pub mod session;
pub mod sftp;
pub mod startups;
pub mod steward;
pub mod terminals;
pub mod transport;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use russh::keys::{Algorithm, PrivateKey};
use russh::server::Config;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::args;
use crate::init::journal::Journal;
use crate::serve::access::Access;
use crate::serve::account::Account;
use crate::serve::activity::Activity;
use crate::serve::apart::Apart;
use crate::serve::connection::{Peer, Strangers, attend};
use crate::serve::marker::Marker;
use crate::serve::served::{Directory, Identity, Served};
use crate::serve::steward::Steward;
use crate::serve::terminals::Terminals;
use crate::state::directory;

/// Threads for what may block: files of people who copy. Made when they are needed, and enough that some are left if a few
/// hang in a network's file system.
const BLOCKING_THREADS: usize = 32;

/// Among the keys, if the user wants one.
const PRE_STOP: &str = "pre-stop.sh";

/// Connections that the kernel keeps for us until we take them. Of more, clients learn nothing and try again after a
/// second, so a flood must not fill it before we have had our turn. The kernel has a limit of its own.
const WAITING: u32 = 4096;

/// After a failure to take a connection, as when there are too many files.
const BREATH: Duration = Duration::from_millis(100);

/// Returns only if it cannot begin.
pub fn run(args: &args::Serve) -> anyhow::Result<ExitCode> {
    let args::Serve { listen, keys, server_uid, control_cas, keep, state, login_grace, keepalive, rekey_after } = args;
    let journal = Arc::new(Journal::open());
    hearsay::listen(&journal);
    let state = directory::find(state.state_dir.as_deref()).context("finding a place for the state")?;
    let host_key = keys.join("host_key");
    let host_key =
        PrivateKey::read_openssh_file(&host_key).with_context(|| format!("reading {}", host_key.display()))?;
    anyhow::ensure!(host_key.algorithm() == Algorithm::Ed25519, "the host key must be an ed25519 key");
    let (access, unusable) = Access::begin(keys, control_cas, &state, keep.as_deref());
    let hosts = std::env::var("ODC_HOSTS").unwrap_or_default();
    if let Err(error) = gang::prepare(keys, &state, Path::new(gang::EVERYBODYS), &hosts) {
        journal.say(format!("the nodes of this server cannot log in to each other: {error}"));
    }
    for line in unusable {
        journal.say(format!("not used: {line}"));
    }
    let identity = Identity::from_environment(server_uid.as_str());
    let settings = steward::Settings {
        state: state.clone(),
        home: Account::look_up().home,
        pre_stop: Some(keys.join(PRE_STOP)).filter(|script| script.is_file()),
        server: identity.server.clone(),
        jupyter_port: jupyter::PORT,
    };
    let steward = Steward::new(settings, &journal);
    let served = Arc::new(Served {
        activity: Arc::new(Activity::new()),
        access,
        terminals: Terminals::default(),
        identity,
        directory: Directory::new(state),
        journal,
        expires_in: OnceLock::new(),
        steward,
        apart: Apart::default(),
    });
    let config = Arc::new(transport::config(host_key, Duration::from_millis(*keepalive), *rekey_after));
    let grace = Duration::from_secs((*login_grace).into());
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .context("starting")?
        .block_on(accept(*listen, served, config, grace))
}

async fn accept(
    listen: SocketAddr,
    served: Arc<Served>,
    config: Arc<Config>,
    grace: Duration,
) -> anyhow::Result<ExitCode> {
    let listener = bind(listen).with_context(|| format!("listening on {listen}"))?;
    let address = listener.local_addr()?;
    let marker = Marker::new(address);
    if let Err(error) = marker.store(served.directory.path()) {
        served.journal.say(format!("no probe will pass, because nobody can be told where we listen: {error}"));
    }
    if let Err(error) = steward::begin(&served) {
        served.journal.say(format!("helpers such as odc-status cannot reach us: {error}"));
    }
    tokio::spawn({
        let served = Arc::clone(&served);
        async move { forward::agent::sweep(served.directory.path()).await }
    });
    let strangers = Strangers::default();
    let mut dice = Dice::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BREATH).await;
            continue;
        };
        let Ok(peer) = ends(&stream) else { continue };
        let stranger = strangers.admit(dice.roll());
        tokio::spawn(attend(stream, peer, stranger, Arc::clone(&served), Arc::clone(&config), grace));
        // Whoever comes must be able to say who they are before the next ones have them give way, and people who work
        // here have their turn, however many come.
        yield_now().await;
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Whoever was here before may have left connections that the kernel still remembers.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

fn ends(stream: &TcpStream) -> io::Result<Peer> {
    stream.set_nodelay(true)?;
    Ok(Peer { client: stream.peer_addr()?, server: stream.local_addr()? })
}

/// Enough chance to tell connections apart that came at the same time.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        Self(RandomState::new().hash_one(0))
    }

    fn roll(&mut self) -> u32 {
        // Knuth's multiplier; the upper half is the random one.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}
