//! The supervisor process, `odc local supervise`.
//!
//! It holds the lock of the state directory, prepares the host, runs the components and serves the control socket. It
//! may be killed at any time: the components keep running, and the next supervisor adopts them.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};
use tracing::{info, warn};

use crate::artifact::Executables;
use crate::components::Blueprint;
use crate::control::{Reply, Request, read_request, write_message};
use crate::error::Error;
use crate::host::Host;
use crate::layout::Layout;
use crate::process::Record;
use crate::settings::{Mode, Settings};
use crate::supervisor::{Lifetime, Statuses, Supervisor, stop_in_dependency_order};

/// Runs until it is asked to hand over or to stop, or receives SIGTERM.
pub async fn supervise(layout: Layout) -> anyhow::Result<()> {
    // Its own session, because the terminal it was started from may close.
    let _ = rustix::process::setsid();
    let lock = std::fs::File::create(layout.lock()).with_context(|| format!("opening {}", layout.lock().display()))?;
    if lock.try_lock().is_err() {
        return Err(Error::Busy { directory: layout.root().into() }.into());
    }
    // Only the lock holder may touch the socket, so an existing one is stale.
    let _ = std::fs::remove_file(layout.socket());
    let listener =
        UnixListener::bind(layout.socket()).with_context(|| format!("listening on {}", layout.socket().display()))?;
    let supervisor = Supervisor::new(layout.clone(), Lifetime::Detached)?;
    let (shutdown, mut shutdown_requested) = mpsc::channel(1);
    let daemon =
        Arc::new(Daemon { layout, statuses: supervisor.watch(), supervisor: Mutex::new(supervisor), shutdown });
    info!(pid = std::process::id(), "supervising {}", daemon.layout.root().display());

    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let daemon = daemon.clone();
                tokio::spawn(async move {
                    if let Err(error) = daemon.handle_connection(stream).await {
                        warn!("request failed: {error:#}");
                    }
                });
            }
            _ = shutdown_requested.recv() => break,
            _ = terminate.recv() => {
                // On a shutdown of the machine init signals the components itself.
                daemon.supervisor.lock().await.detach().await;
                break;
            }
        }
    }
    let _ = std::fs::remove_file(daemon.layout.socket());
    info!("exiting");
    Ok(())
}

struct Daemon {
    layout: Layout,
    statuses: watch::Receiver<Statuses>,
    supervisor: Mutex<Supervisor>,
    shutdown: mpsc::Sender<()>,
}

impl Daemon {
    async fn handle_connection(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        let request = read_request(&mut BufReader::new(&mut stream)).await?;
        if request == Request::Watch {
            return self.stream_statuses(stream).await;
        }
        let exits = matches!(request, Request::HandOver | Request::Stop);
        let reply = match self.dispatch(request).await {
            Ok(reply) => reply,
            Err(error) => Reply::Failed(format!("{error:#}")),
        };
        let done = matches!(reply, Reply::Done);
        write_message(&mut stream, &reply).await?;
        if exits && done {
            self.shutdown.send(()).await?;
        }
        Ok(())
    }

    async fn stream_statuses(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        let mut statuses = self.statuses.clone();
        loop {
            let current = statuses.borrow_and_update().clone();
            // The client ends the watch by disconnecting.
            if write_message(&mut stream, &Reply::Statuses(current)).await.is_err() {
                return Ok(());
            }
            statuses.changed().await?;
        }
    }

    async fn dispatch(&self, request: Request) -> anyhow::Result<Reply> {
        match request {
            Request::Hello => {
                return Ok(Reply::Hello { build: crate::artifact::build_id()?, pid: std::process::id() });
            }
            Request::Watch => {}
            Request::Apply => self.apply().await?,
            Request::PowerOffNode { node } => self.power_off_node(&node).await?,
            Request::HandOver => self.supervisor.lock().await.detach().await,
            Request::Stop => {
                let mut supervisor = self.supervisor.lock().await;
                supervisor.detach().await;
                stop_all(&self.layout).await?;
            }
        }
        Ok(Reply::Done)
    }

    async fn apply(&self) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor.lock().await;
        let settings = Settings::load(&self.layout)?.context("the cluster has no settings yet")?;
        let blueprint = Blueprint::new(settings, self.layout.clone(), Executables::find()?)?;
        if let Some(host) = &blueprint.host {
            host.ensure_bridge().await?;
            host.ensure_masquerade().await?;
            // Nodes removed from the settings.
            for node in host.present_nodes().filter(|node| !blueprint.settings.all_nodes().any(|known| known == *node))
            {
                supervisor.detach_node(node).await;
                host.remove_node(node).await?;
                host.delete_node_disk(node)?;
            }
            for node in blueprint.settings.running_nodes() {
                host.ensure_node(&blueprint.settings, node).await?;
            }
        }
        supervisor.apply(blueprint.components()).await
    }

    async fn power_off_node(&self, name: &str) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor.lock().await;
        let settings = Settings::load(&self.layout)?.context("the cluster has no settings yet")?;
        let node = settings.find_node(name)?;
        let blueprint = Blueprint::new(settings, self.layout.clone(), Executables::find()?)?;
        let host = blueprint.host.as_ref().context("this cluster has no local nodes")?;
        // Killed without a grace period, as in a power failure. Detach first, or the supervisor would restart the
        // components.
        supervisor.detach_node(node).await;
        host.remove_node(node).await?;
        supervisor.apply(blueprint.components()).await
    }
}

/// Stops all processes of a cluster in dependency order, then reverts its changes to the host. Works with and without a
/// running supervisor.
pub async fn stop_all(layout: &Layout) -> anyhow::Result<()> {
    let Some(settings) = Settings::load(layout)? else { return Ok(()) };
    let run = layout.run();
    if settings.mode() == Mode::Full {
        let host = Host::new(layout, settings.network)?;
        // Kubelets and their dependents first, because a running kubelet would restart stopped containers.
        let records = Record::load_all(&run);
        let node_records = records
            .into_iter()
            .filter(|record| record.name.contains('/') && !record.name.ends_with("/containerd"))
            .collect();
        stop_in_dependency_order(&run, node_records).await?;
        for node in settings.all_nodes() {
            host.stop_containers(node).await;
        }
        stop_in_dependency_order(&run, Record::load_all(&run)).await?;
        host.remove().await?;
    } else {
        stop_in_dependency_order(&run, Record::load_all(&run)).await?;
    }
    Ok(())
}
