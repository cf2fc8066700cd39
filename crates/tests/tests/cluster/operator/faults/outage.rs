//! An API server that is unavailable or restarts.

use anyhow::Context as _;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use odc_api::v1alpha1::Phase;
use odc_tests::apifault::TraceEntry;
use odc_tests::wait;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::time::{Duration, Instant};

use super::super::fault_harness::FaultHarness;
use super::super::fixture::{TIMEOUT, with_fixture, with_own_control_plane};
use super::{LEASE_DURATION, RENEW_INTERVAL, check_pods, pod_uids, wait_exit};

#[tokio::test]
async fn api_server_outage_keeps_servers_running() -> anyhow::Result<()> {
    with_fixture(async |fixture| {
        let mut harness = FaultHarness::start(fixture).await?;
        for name in ["running", "deleted"] {
            fixture.create_running(name, json!({"flavor": "gpu"})).await?;
        }
        let pod = fixture.pods.get("running-0").await?;

        // An outage shorter than the lease: the same process continues.
        harness.proxy.down().await?;
        let writes_before = harness.proxy.writes().len();
        fixture.servers.delete("deleted", &DeleteParams::default()).await?;
        fixture.create("created", json!({"flavor": "gpu", "nodes": 2})).await?;
        // At least one renewal of the Lease fails.
        tokio::time::sleep(RENEW_INTERVAL).await;
        harness.proxy.up().await?;
        fixture.wait_for_phase("created", Phase::Running).await?;
        fixture.wait_pod_deleted("deleted-0").await?;
        assert!(harness.operator.child.try_wait()?.is_none(), "{}", harness.operator.log_tail());
        check_pods(&harness, "created", 2, 2).await?;

        // An outage longer than the lease: the leader exits without a write.
        let outage = Instant::now();
        harness.proxy.down().await?;
        fixture.create("second", json!({"flavor": "gpu"})).await?;
        let status = wait_exit(&mut harness.operator).await?;
        assert!(!status.success(), "{status}");
        anyhow::ensure!(outage.elapsed() >= LEASE_DURATION / 2, "the leader gave up after {:?}", outage.elapsed());
        // Operators that start during the outage exit and are started again.
        harness.spawn_next().await?;
        let outage_duration =
            if cfg!(feature = "full") { Duration::from_secs(60) } else { outage.elapsed() + RENEW_INTERVAL };
        while outage.elapsed() < outage_duration {
            tokio::select! {
                status = harness.operator.child.wait() => {
                    status?;
                    harness.spawn_next().await?;
                }
                () = tokio::time::sleep(outage_duration.saturating_sub(outage.elapsed())) => {}
            }
        }
        harness.proxy.up().await?;
        harness.operator.wait_ready().await?;
        fixture.wait_for_phase("second", Phase::Running).await?;
        check_pods(&harness, "second", 1, 1).await?;

        // The server that did not change has no writes.
        assert_eq!(fixture.pods.get("running-0").await?.uid(), pod.uid());
        let touched: Vec<TraceEntry> = harness
            .proxy
            .writes()
            .into_iter()
            .skip(writes_before)
            .filter(|entry| entry.name.starts_with("running"))
            .collect();
        assert!(touched.is_empty(), "{touched:#?}");
        Ok(())
    })
    .await
}

/// Returns the pid of the API server of this test, which is a child process.
fn api_server_pid() -> anyhow::Result<Pid> {
    let parent = format!("PPid:\t{}", std::process::id());
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        // A process may exit between the two reads.
        let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        let is_child = read("status").lines().any(|line| line == parent);
        if is_child && read("cmdline").split('\0').any(|word| word == "kube-apiserver") {
            let pid = path.file_name().and_then(|name| name.to_str()?.parse().ok()).and_then(Pid::from_raw);
            return pid.context("the directory name in /proc is not a pid");
        }
    }
    anyhow::bail!("this test has no child process kube-apiserver")
}

#[tokio::test]
async fn api_server_restart_keeps_servers_running() -> anyhow::Result<()> {
    with_own_control_plane(async |fixture| {
        let mut operator = fixture.start_operator().await?;
        fixture.create_running("running", json!({"flavor": "gpu"})).await?;
        let pods = pod_uids(fixture).await?;
        let mark = fixture.wait_idle().await?;
        kill_process(api_server_pid()?, Signal::KILL)?;
        wait::until("API server restarted", TIMEOUT, async || {
            fixture.create("created", json!({"flavor": "gpu", "nodes": 2})).await.map(drop)
        })
        .await?;
        // On a slow machine the restart takes longer than the lease, and then the next operator continues.
        tokio::select! {
            done = fixture.wait_for_phase("created", Phase::Running) => done.map(drop)?,
            status = operator.child.wait() => {
                status?;
                fixture.release_lease().await?;
                operator = fixture.start_operator().await?;
                fixture.wait_for_phase("created", Phase::Running).await.with_context(|| operator.log_tail())?;
            }
        }
        let now = pod_uids(fixture).await?;
        assert_eq!((now.len(), now.get("running-0")), (3, pods.get("running-0")));
        let touched: Vec<String> =
            fixture.writes_since(mark)?.into_iter().filter(|line| line.contains("running")).collect();
        assert_eq!(touched, Vec::<String>::new());
        Ok(())
    })
    .await
}
