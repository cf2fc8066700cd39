//! Many servers at once, each with a new disk, compared with as many with an ephemeral home.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams};
use odc_api::v1alpha1::{DevServer, Disk, Phase};
use odc_tests::{Cluster, manifests, wait};
use serde_json::{Value, json};

use super::fixture::{Fixture, is_released, phase};
use crate::operator::CONCURRENCY;

/// The quota of a user.
const DISKS: usize = 50;
const USER: &str = "burst";
const FLAVOR: &str = "burst";
/// Without any progress.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(super) async fn measure(cluster: &Cluster, report: &mut String) -> anyhow::Result<()> {
    // All servers fit on two nodes with two cores.
    let flavor = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": FLAVOR}, "spec": {
        "privilege": "Sudo", "resources": {"per": "Server", "cpu": "60m", "memory": "96Mi"},
        "nodeSelector": {"odc.dev/local-node": "true"}}});
    manifests::apply(&cluster.namespace.client, &flavor).await?;
    let fixture = Fixture::new(cluster, USER).await?;
    for number in 0..DISKS {
        fixture.create_disk(&format!("disk-{number}"), "1Gi").await?;
    }
    let ephemeral = start_all(&fixture, |_| json!({"ephemeral": "1Gi"})).await?;
    let ephemeral_stop = stop_all(&fixture).await?;
    let started = start_all(&fixture, |number| json!({"disk": format!("disk-{number}")})).await?;
    let stopped = Instant::now();
    stop_all(&fixture).await?;
    wait::until_count("released disks", DISKS, TIMEOUT, async || {
        let disks = fixture.disks().list(&ListParams::default()).await?;
        Ok(disks.iter().filter(|disk: &&Disk| is_released(disk)).count())
    })
    .await?;
    let stopped = stopped.elapsed();
    writeln!(report, "{DISKS} servers at once, one run, no failure.\n")?;
    writeln!(report, "| | with new disks | ephemeral homes | ratio |\n|---|--:|--:|--:|")?;
    let rows = [
        ("created until all are running", started, ephemeral),
        ("deleted until all are gone; with disks, until all restore points are verified", stopped, ephemeral_stop),
    ];
    for (name, disks, ephemeral) in rows {
        let [disks, ephemeral] = [disks, ephemeral].map(|time| time.as_secs_f64());
        writeln!(report, "| {name} | {disks:.1} s | {ephemeral:.1} s | {:.2} |", disks / ephemeral)?;
    }
    Ok(())
}

/// Creates all servers and waits until they are running. Fails if one of them fails.
async fn start_all(fixture: &Fixture, home: impl Fn(usize) -> Value) -> anyhow::Result<Duration> {
    let started = Instant::now();
    stream::iter(0..DISKS)
        .map(Ok::<_, anyhow::Error>)
        .try_for_each_concurrent(CONCURRENCY, async |number| {
            fixture.create_server(&format!("server-{number}"), FLAVOR, &home(number)).await
        })
        .await?;
    wait::until_count("running servers", DISKS, TIMEOUT, async || {
        let servers = fixture.servers().list(&ListParams::default()).await?.items;
        let failed = servers.iter().find(|server| phase(Some(server)).is_some_and(Phase::is_terminal));
        anyhow::ensure!(failed.is_none(), "a server has failed: {failed:#?}");
        Ok(servers.iter().filter(|server| phase(Some(server)) == Some(Phase::Running)).count())
    })
    .await?;
    Ok(started.elapsed())
}

/// Deletes all servers and waits until they are gone.
async fn stop_all(fixture: &Fixture) -> anyhow::Result<Duration> {
    let started = Instant::now();
    fixture.servers().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    wait::until_count("deleted servers", DISKS, TIMEOUT, async || {
        let left: Vec<DevServer> = fixture.servers().list(&ListParams::default()).await?.items;
        Ok(DISKS - left.len())
    })
    .await?;
    Ok(started.elapsed())
}
