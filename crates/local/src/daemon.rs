//! The supervisor as a process of its own: `odc local supervise`.
//!
//! It holds the lock of the state directory, makes the host ready, keeps the parts and answers on the socket. It may be
//! killed at any moment: the parts go on, and the next one adopts them.

use std::sync::Arc;

use anyhow::Context as _;
use tokio::io::BufReader;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, mpsc, watch};
use tracing::{info, warn};

use crate::artifact::Executables;
use crate::control::{Reply, Request, receive, send};
use crate::host::Host;
use crate::layout::Layout;
use crate::parts::Blueprint;
use crate::problem::Problem;
use crate::process::Record;
use crate::settings::{Settings, Shape};
use crate::supervisor::{Lifetime, Snapshot, Supervisor, end_in_order};

/// Runs until told to end.
pub async fn supervise(layout: Layout) -> anyhow::Result<()> {
    // Its own session: the terminal that started it may close.
    let _ = rustix::process::setsid();
    let lock = std::fs::File::create(layout.lock()).with_context(|| format!("opening {}", layout.lock().display()))?;
    if lock.try_lock().is_err() {
        return Err(Problem::Busy { directory: layout.root().into() }.into());
    }
    // Only the holder of the lock may touch the socket; one that lies here is of a dead supervisor.
    let _ = std::fs::remove_file(layout.socket());
    let listener =
        UnixListener::bind(layout.socket()).with_context(|| format!("listening on {}", layout.socket().display()))?;
    let supervisor = Supervisor::new(layout.clone(), Lifetime::Detached)?;
    let (leave, mut leaving) = mpsc::channel(1);
    let daemon = Arc::new(Daemon { layout, board: supervisor.watch(), supervisor: Mutex::new(supervisor), leave });
    info!(pid = std::process::id(), "supervising {}", daemon.layout.root().display());

    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let daemon = daemon.clone();
                tokio::spawn(async move {
                    if let Err(error) = daemon.answer(stream).await {
                        warn!("a request failed: {error:#}");
                    }
                });
            }
            _ = leaving.recv() => break,
            _ = terminate.recv() => {
                // A shutdown of the machine ends every process itself; parts are not ours to end here.
                daemon.supervisor.lock().await.let_go().await;
                break;
            }
        }
    }
    let _ = std::fs::remove_file(daemon.layout.socket());
    info!("ended");
    Ok(())
}

struct Daemon {
    layout: Layout,
    board: watch::Receiver<Snapshot>,
    supervisor: Mutex<Supervisor>,
    leave: mpsc::Sender<()>,
}

impl Daemon {
    async fn answer(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        let request = receive(&mut BufReader::new(&mut stream)).await?;
        if request == Request::Watch {
            return self.stream_parts(stream).await;
        }
        let leaves = matches!(request, Request::HandOver | Request::Stop);
        let reply = match self.carry_out(request).await {
            Ok(reply) => reply,
            Err(error) => Reply::Failed(format!("{error:#}")),
        };
        let done = matches!(reply, Reply::Done);
        send(&mut stream, &reply).await?;
        if leaves && done {
            self.leave.send(()).await?;
        }
        Ok(())
    }

    async fn stream_parts(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        let mut board = self.board.clone();
        loop {
            let snapshot = board.borrow_and_update().clone();
            // The asker hung up: that is how it says "enough".
            if send(&mut stream, &Reply::Parts(snapshot)).await.is_err() {
                return Ok(());
            }
            board.changed().await?;
        }
    }

    async fn carry_out(&self, request: Request) -> anyhow::Result<Reply> {
        match request {
            Request::Hello => {
                return Ok(Reply::Hello { build: crate::artifact::own_build()?, pid: std::process::id() });
            }
            Request::Watch => {}
            Request::Apply => self.apply().await?,
            Request::Unplug { node } => self.unplug(&node).await?,
            Request::HandOver => self.supervisor.lock().await.let_go().await,
            Request::Stop => {
                let mut supervisor = self.supervisor.lock().await;
                supervisor.let_go().await;
                end_cloud(&self.layout).await?;
            }
        }
        Ok(Reply::Done)
    }

    async fn apply(&self) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor.lock().await;
        let settings = Settings::load(&self.layout)?.context("there are no settings yet")?;
        let blueprint = Blueprint::new(settings, self.layout.clone(), Executables::find()?)?;
        if let Some(host) = &blueprint.host {
            host.ensure_bridge().await?;
            host.ensure_way_out().await?;
            // A cloud that was asked to shrink.
            for node in host.present_nodes().filter(|node| !blueprint.settings.all_nodes().any(|known| known == *node))
            {
                supervisor.release_node(node).await;
                host.remove_node(node).await?;
                host.forget_node(node)?;
            }
            for node in blueprint.settings.running_nodes() {
                host.ensure_node(&blueprint.settings, node).await?;
            }
        }
        supervisor.apply(blueprint.parts()).await
    }

    async fn unplug(&self, name: &str) -> anyhow::Result<()> {
        let mut supervisor = self.supervisor.lock().await;
        let settings = Settings::load(&self.layout)?.context("there are no settings yet")?;
        let node = settings.find_node(name)?;
        let blueprint = Blueprint::new(settings, self.layout.clone(), Executables::find()?)?;
        let host = blueprint.host.as_ref().context("this cloud has no nodes of its own")?;
        // Killed, not asked: a machine that loses power says nothing either. The keepers must be gone before, or they
        // would start the parts again.
        supervisor.release_node(node).await;
        host.remove_node(node).await?;
        supervisor.apply(blueprint.parts()).await
    }
}

/// Ends everything a cloud has, whether or not a supervisor runs: processes in order, then what it changed on the host.
pub async fn end_cloud(layout: &Layout) -> anyhow::Result<()> {
    let Some(settings) = Settings::load(layout)? else { return Ok(()) };
    let run = layout.run();
    if settings.shape() == Shape::Full {
        let host = Host::new(layout, settings.network)?;
        // First the kubelets and what hangs on them, then the containers, which nobody starts again now.
        let records = Record::load_all(&run);
        let kubelets = records
            .into_iter()
            .filter(|record| record.name.contains('/') && !record.name.ends_with("/containerd"))
            .collect();
        end_in_order(&run, kubelets).await?;
        for node in settings.all_nodes() {
            host.end_containers(node).await;
        }
        end_in_order(&run, Record::load_all(&run)).await?;
        host.remove().await?;
    } else {
        end_in_order(&run, Record::load_all(&run)).await?;
    }
    Ok(())
}
