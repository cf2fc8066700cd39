//! Keeps one shared test bed: starts the cloud, lets tests use it, ends it when nobody has come for a while.
//!
//! `odc-testbed NODES` keeps; `odc-testbed --end` waits for the keepers of this clone to leave and clears whatever killed
//! keepers and tests have left.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use odc_tests::bed::{ALONE, Bed, GRANTED, OTHER_KEEPER, odc_local, prefix, temporary};
use odc_tests::odc;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{RwLock, watch};

/// Long enough for the runner to start the next test.
const LINGER: Duration = Duration::from_secs(5);
/// The kinds of beds there are.
const SIZES: [u8; 2] = [0, 2];

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    odc_tests::begin();
    let argument = std::env::args().nth(1).unwrap_or_default();
    if argument == "--end" {
        end_all().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let nodes = argument.parse()?;
    keep(&Bed::of(nodes)).await
}

async fn keep(bed: &Bed) -> anyhow::Result<ExitCode> {
    // The terminal of the test that started us is none of our business.
    let _ = rustix::process::setsid();
    let lock = std::fs::File::create(bed.lock())?;
    if lock.try_lock().is_err() {
        return Ok(ExitCode::from(u8::try_from(OTHER_KEEPER)?));
    }
    let _ = std::fs::remove_file(bed.socket());
    std::fs::write(bed.log(), "")?;
    odc_local(&bed.directory, &["up", "--nodes", &bed.nodes.to_string()]).await?.good()?;
    if bed.nodes > 0 {
        shorten_times(bed).await?;
    }
    let listener = UnixListener::bind(bed.socket())?;

    let users = watch::Sender::new(0usize);
    let turns = Arc::new(RwLock::new(()));
    let mut nobody = users.subscribe();
    loop {
        let idle = async {
            // The sender is ours and lives on.
            let _ = nobody.wait_for(|count| *count == 0).await;
            tokio::time::sleep(LINGER).await;
        };
        tokio::select! {
            accepted = listener.accept() => {
                let (connection, _) = accepted?;
                users.send_modify(|count| *count += 1);
                let (users, turns) = (users.clone(), turns.clone());
                tokio::spawn(async move {
                    serve(connection, &turns).await;
                    users.send_modify(|count| *count -= 1);
                });
            }
            () = idle => if *users.borrow() == 0 { break },
        }
    }
    std::fs::remove_file(bed.socket())?;
    drop(listener);
    odc_local(&bed.directory, &["reset"]).await?.good()?;
    Ok(ExitCode::SUCCESS)
}

/// What takes minutes elsewhere takes seconds here.
async fn shorten_times(bed: &Bed) -> anyhow::Result<()> {
    let client = odc_local::cluster::client(&bed.directory.join("kubeconfig")).await?;
    let deployments: Api<Deployment> = Api::namespaced(client, "odc-system");
    let env: Vec<_> = odc::short_times().iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    let container = json!({"name": "operator", "env": env});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    deployments.patch("odc-operator", &PatchParams::default(), &Patch::Strategic(patch)).await?;
    let rolled_out = await_condition(deployments, "odc-operator", odc_local::installation::is_rolled_out);
    tokio::time::timeout(Duration::from_secs(120), rolled_out).await??;
    Ok(())
}

/// Until the other side hangs up; an error on the line is just that.
async fn serve(mut connection: UnixStream, turns: &RwLock<()>) {
    let Ok(mode) = connection.read_u8().await else { return };
    if mode == ALONE {
        let _turn = turns.write().await;
        hold(connection).await;
    } else {
        let _turn = turns.read().await;
        hold(connection).await;
    }
}

async fn hold(mut connection: UnixStream) {
    if connection.write_all(&[GRANTED]).await.is_ok() {
        let _ = connection.read_u8().await;
    }
}

/// Goes on after a failure, so that one bad directory does not keep the others.
async fn end_all() -> anyhow::Result<()> {
    let mut result = Ok(());
    for nodes in SIZES {
        let bed = Bed::of(nodes);
        if bed.lock().exists() {
            result = result.and(await_keeper(&bed).await);
        }
    }
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&prefix()) || !entry.path().is_dir() {
            continue;
        }
        let cleared = if name.starts_with(&temporary()) {
            std::fs::remove_dir_all(entry.path()).map_err(Into::into)
        } else {
            odc_local(&entry.path(), &["reset"]).await.and_then(|output| output.good().map(drop))
        };
        result = result.and(cleared);
    }
    result
}

/// A living keeper leaves by itself.
async fn await_keeper(bed: &Bed) -> anyhow::Result<()> {
    let lock = std::fs::File::create(bed.lock())?;
    let deadline = Instant::now() + Duration::from_secs(120);
    while lock.try_lock().is_err() {
        anyhow::ensure!(Instant::now() < deadline, "the keeper of {} does not leave", bed.directory.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for leftover in [bed.socket(), bed.log(), bed.lock()] {
        // Not every keeper came to make all of them.
        let _ = std::fs::remove_file(leftover);
    }
    Ok(())
}
