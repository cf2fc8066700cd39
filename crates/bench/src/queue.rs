//! The queue end to end, on a control plane with simulated nodes: many more requests than fit, from many teams and with short
//! lifetimes. Reports the makespan relative to its lower bound, the time at full utilization of all devices, and the cost of
//! scheduling decisions.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::manifests;
use odc_tests::operator::{self, Operator};
use odc_tests::{ControlPlane, with_new_control_plane};
use serde_json::json;

use crate::Report;
use crate::operator::{CONCURRENCY, cpu_time, memory, mib, wait_users_ready};

const TEAMS: usize = 12;
/// Few, so that the queue is long and the idle time at the end is negligible.
const NODES: usize = 32;
const DEVICES_PER_NODE: usize = 8;
/// Requests of each team: number, devices and lifetime in seconds.
const REQUEST_CLASSES: [(usize, usize, usize); 3] = [(70, 1, 20), (20, 4, 30), (10, 8, 40)];
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(900);
/// Goal for the makespan relative to its lower bound.
const MAX_MAKESPAN_RATIO: f64 = 1.15;
/// Metric of the operator: CPU seconds of scheduling cycles.
const CYCLE_CPU_METRIC: &str = "odc_scheduler_cpu_seconds";

struct Request {
    name: String,
    team: usize,
    devices: usize,
    seconds: usize,
}

/// Returns the requests of all classes, interleaved deterministically.
fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for (class, (count, devices, seconds)) in REQUEST_CLASSES.into_iter().enumerate() {
        for number in 0..count {
            for team in 0..TEAMS {
                let position = (number * 100 + class * 30) / count;
                let name = format!("c{class}-{number}-{team}");
                all.push((position, team, Request { name, team, devices, seconds }));
            }
        }
    }
    all.sort_by_key(|(position, team, _)| (*position, *team));
    all.into_iter().map(|(.., request)| request).collect()
}

/// Returns the report in Markdown.
pub(crate) async fn run() -> anyhow::Result<Report> {
    with_new_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        manifests::install(&plane.client).await?;
        let operator = start(plane, directory.path()).await?;
        let requests = requests();
        let work: usize = requests.iter().map(|request| request.devices * request.seconds).sum();
        let lower_bound = work as f64 / (NODES * DEVICES_PER_NODE) as f64;
        let (started, cpu_before) = (Instant::now(), cpu_time(&operator)?);
        let cycles_before = cycle_cpu_seconds(&operator).await?;
        stream::iter(&requests)
            .map(Ok::<_, anyhow::Error>)
            .try_for_each_concurrent(CONCURRENCY, async |request| create(plane, request).await)
            .await?;
        wait_all_expired(plane, requests.len()).await?;
        let makespan = started.elapsed().as_secs_f64();
        let cpu = cpu_time(&operator)?.saturating_sub(cpu_before);
        let cycles = cycle_cpu_seconds(&operator).await?.zip(cycles_before).map(|(after, before)| after - before);
        let ratio = makespan / lower_bound;
        let ms_per_request = |seconds: f64| seconds * 1_000.0 / requests.len() as f64;
        let scheduling = cycles.map_or_else(
            || format!("not measured: the operator has no metric {CYCLE_CPU_METRIC}"),
            |seconds| format!("{:.2} ms", ms_per_request(seconds)),
        );
        let mut text = String::new();
        writeln!(
            text,
            "{} requests of {TEAMS} teams at once, {NODES} nodes with {DEVICES_PER_NODE} devices. The lower bound, full utilization of all \
             devices, is {lower_bound:.0} s. The figures of Kueue are from another run on a similar machine, with workloads and \
             without pods.\n",
            requests.len()
        )?;
        writeln!(text, "| | ODC | Kueue | goal |\n|---|--:|--:|--:|")?;
        writeln!(text, "| makespan | {makespan:.0} s | | |")?;
        writeln!(text, "| makespan relative to the lower bound | {ratio:.2} | 3.0-3.5 | ≤ {MAX_MAKESPAN_RATIO} |")?;
        writeln!(text, "| CPU time of scheduling per request | {scheduling} | | |")?;
        writeln!(
            text,
            "| CPU time of the operator per request, from creation to expiry | {:.1} ms | 5.7-6.1 ms, admission only | |",
            ms_per_request(cpu.as_secs_f64())
        )?;
        writeln!(text, "| memory of the operator | {:.1} MiB | 104-119 MiB | |\n", mib(memory(&operator)?))?;
        let mut report = Report::from(text);
        report.goal(ratio <= MAX_MAKESPAN_RATIO, || format!("makespan: {ratio:.2} of the lower bound, goal ≤ {MAX_MAKESPAN_RATIO}"));
        Ok(report)
    })
    .await
}

async fn start(plane: &ControlPlane, directory: &Path) -> anyhow::Result<Operator> {
    let devices = DEVICES_PER_NODE.to_string();
    for number in 0..NODES {
        let resources = [
            ("cpu", "64"),
            ("memory", "512Gi"),
            ("ephemeral-storage", "1Ti"),
            ("pods", "110"),
            ("nvidia.com/gpu", devices.as_str()),
        ];
        plane.add_node(&format!("node-{number}"), &resources).await?;
    }
    let api = "odc.dev/v1alpha1";
    let flavor = json!({"apiVersion": api, "kind": "DevServerFlavor", "metadata": {"name": "gpu"}, "spec": {
        "default": true, "privilege": "Sudo", "device": {"resource": "nvidia.com/gpu", "perNode": DEVICES_PER_NODE},
        "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}});
    manifests::apply(&plane.client, &flavor).await?;
    for team in 0..TEAMS {
        let name = format!("t{team}");
        let user = json!({"apiVersion": api, "kind": "DevServerUser", "metadata": {"name": name}, "spec": {}});
        manifests::apply(&plane.client, &user).await?;
        let members = json!({"members": [name]});
        let team = json!({"apiVersion": api, "kind": "Team", "metadata": {"name": name}, "spec": members});
        manifests::apply(&plane.client, &team).await?;
    }
    let kubeconfig = directory.join("operator.kubeconfig");
    operator::write_token_kubeconfig(
        &plane.kubeconfig,
        &operator::service_account_token(&plane.client).await?,
        &kubeconfig,
    )?;
    let operator = Operator::start(&kubeconfig, directory, &[("ODC_EXPIRY_GRACE", "0s")]).await?;
    wait_users_ready(plane, (0..TEAMS).map(|team| format!("t{team}"))).await?;
    Ok(operator)
}

async fn create(plane: &ControlPlane, request: &Request) -> anyhow::Result<()> {
    let Request { name, team, devices, seconds } = request;
    let servers: Api<DevServer> = Api::namespaced(plane.client.clone(), &format!("dev-t{team}"));
    let server = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
        "team": format!("t{team}"), "count": devices, "lifetime": format!("{seconds}s"),
        "home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}}}))?;
    servers.create(&PostParams::default(), &server).await?;
    Ok(())
}

/// Waits until all servers have expired. Uses a watch, because listing them repeatedly would add load.
async fn wait_all_expired(plane: &ControlPlane, count: usize) -> anyhow::Result<()> {
    let servers: Api<DevServer> = Api::all(plane.client.clone());
    let mut events = std::pin::pin!(watcher(servers, watcher::Config::default()).default_backoff().applied_objects());
    let (mut expired, started) = (HashSet::new(), Instant::now());
    while expired.len() < count {
        let remaining = COMPLETION_TIMEOUT.saturating_sub(started.elapsed());
        let Ok(Some(next)) = tokio::time::timeout(remaining, events.next()).await else {
            anyhow::bail!("{} of {count} servers have expired after {} s", expired.len(), COMPLETION_TIMEOUT.as_secs());
        };
        // The watcher reconnects after an error.
        let Ok(server) = next else { continue };
        match server.status.as_ref().and_then(|status| status.phase) {
            Some(Phase::Expired) => drop(expired.insert((server.metadata.namespace, server.metadata.name))),
            Some(other) if other.is_terminal() => anyhow::bail!("server {:?} is {other}", server.metadata.name),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the CPU seconds of all scheduling cycles, if the operator reports them.
async fn cycle_cpu_seconds(operator: &Operator) -> anyhow::Result<Option<f64>> {
    let metrics = operator.get("/metrics").await?;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(CYCLE_CPU_METRIC)?.trim_start_matches("_total").strip_prefix(' '));
    Ok(line.map(|value| value.trim().parse()).transpose()?)
}
