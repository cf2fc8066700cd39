//! Runs one shared cluster: starts it, grants its use to tests, and stops it when no test has used it for a while.
//!
//! `odc-testbed NAME` runs a cluster. `odc-testbed --stop` waits for the daemons of this clone to exit and removes what
//! killed daemons and tests have left.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use odc_tests::command::odc_local;
use odc_tests::etcd_snapshot::EtcdSnapshot;
use odc_tests::shared_cluster::{
    EXIT_ALREADY_RUNNING, GRANTED, Mode, Purpose, SharedCluster, directory_prefix, temporary_directory_prefix,
};
use odc_tests::{database, manifests, operator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{RwLock, mpsc, watch};

/// Long enough for the test runner to start the next test.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
const DAEMON_EXIT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    odc_tests::init();
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "--stop" {
        remove_all().await?;
        return Ok(ExitCode::SUCCESS);
    }
    run(&SharedCluster::new(argument.parse()?)).await
}

async fn run(cluster: &SharedCluster) -> anyhow::Result<ExitCode> {
    // Detach from the terminal of the test that started this process.
    let _ = rustix::process::setsid();
    let lock = std::fs::File::create(cluster.lock())?;
    if lock.try_lock().is_err() {
        return Ok(ExitCode::from(u8::try_from(EXIT_ALREADY_RUNNING)?));
    }
    let _ = std::fs::remove_file(cluster.socket());
    std::fs::write(cluster.log(), "")?;
    // A killed daemon leaves the objects of a test.
    odc_local(&cluster.directory, &["reset"]).await?.check()?;
    odc_local(&cluster.directory, &["up", "--nodes", &cluster.purpose.nodes().to_string()]).await?.check()?;
    let snapshot = match cluster.purpose {
        Purpose::Nodes(0) => None,
        Purpose::Nodes(_) => {
            operator::shorten_timeouts(&cluster.directory).await?;
            None
        }
        Purpose::ControlPlane(_) => {
            manifests::install(&odc_local::cluster::client(&cluster.directory.join("kubeconfig")).await?).await?;
            Some(EtcdSnapshot::take(&cluster.directory).await?)
        }
    };
    let listener = UnixListener::bind(cluster.socket())?;

    let users = watch::Sender::new(0usize);
    let access = Arc::new(RwLock::new(snapshot));
    let mut user_count = users.subscribe();
    let (failures, mut failed) = mpsc::channel(1);
    loop {
        let idle = async {
            // The sender outlives the loop.
            let _ = user_count.wait_for(|count| *count == 0).await;
            tokio::time::sleep(IDLE_TIMEOUT).await;
        };
        tokio::select! {
            accepted = listener.accept() => {
                let (connection, _) = accepted?;
                users.send_modify(|count| *count += 1);
                let (users, access, failures) = (users.clone(), access.clone(), failures.clone());
                tokio::spawn(async move {
                    if let Err(error) = serve(connection, &access).await {
                        // Fails only if another failure stops the daemon already.
                        let _ = failures.send(error).await;
                    }
                    users.send_modify(|count| *count -= 1);
                });
            }
            // The next daemon starts with a new cluster.
            Some(error) = failed.recv() => {
                std::fs::remove_file(cluster.socket())?;
                return Err(error);
            }
            () = idle => if *users.borrow() == 0 { break },
        }
    }
    std::fs::remove_file(cluster.socket())?;
    drop(listener);
    odc_local(&cluster.directory, &["reset"]).await?.check()?;
    Ok(ExitCode::SUCCESS)
}

/// Serves one test until it closes the connection. A connection error counts as closed. Before exclusive use, the content
/// of the cluster is restored.
async fn serve(mut connection: UnixStream, access: &RwLock<Option<EtcdSnapshot>>) -> anyhow::Result<()> {
    let Ok(byte) = connection.read_u8().await else { return Ok(()) };
    match Mode::from_byte(byte) {
        Some(Mode::Exclusive) => {
            let snapshot = access.write().await;
            if let Some(snapshot) = snapshot.as_ref() {
                snapshot.restore().await?;
            }
            grant(connection).await;
        }
        Some(Mode::Shared) => {
            let _access = access.read().await;
            grant(connection).await;
        }
        None => {}
    }
    Ok(())
}

async fn grant(mut connection: UnixStream) {
    if connection.write_all(&[GRANTED]).await.is_ok() {
        let _ = connection.read_u8().await;
    }
}

/// Continues after a failure, so that one directory does not keep the others. Returns the first error.
async fn remove_all() -> anyhow::Result<()> {
    let mut result = Ok(());
    for purpose in Purpose::all() {
        let cluster = SharedCluster::new(purpose);
        if cluster.lock().exists() {
            result = result.and(wait_daemon_exit(&cluster).await);
        }
    }
    let directories = BTreeSet::from([std::env::temp_dir(), database::directory()]);
    for entry in directories.iter().flat_map(std::fs::read_dir).flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&directory_prefix()) {
            continue;
        }
        if !entry.path().is_dir() {
            // The lock of the templates of databases. Others are removed with their daemon.
            if name.starts_with(&temporary_directory_prefix()) {
                let _ = std::fs::remove_file(entry.path());
            }
            continue;
        }
        let removed = if name.starts_with(&temporary_directory_prefix()) {
            std::fs::remove_dir_all(entry.path()).map_err(Into::into)
        } else {
            odc_local(&entry.path(), &["reset"]).await.and_then(|output| output.check().map(drop))
        };
        result = result.and(removed);
    }
    result
}

/// Waits until the daemon has exited after its idle timeout, and removes its files.
async fn wait_daemon_exit(cluster: &SharedCluster) -> anyhow::Result<()> {
    let lock = std::fs::File::create(cluster.lock())?;
    let deadline = Instant::now() + DAEMON_EXIT_TIMEOUT;
    while lock.try_lock().is_err() {
        anyhow::ensure!(Instant::now() < deadline, "the daemon of {} does not exit", cluster.directory.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for leftover in [cluster.socket(), cluster.log(), cluster.lock(), cluster.in_use()] {
        // A daemon that failed early has not created all of them.
        let _ = std::fs::remove_file(leftover);
    }
    Ok(())
}
