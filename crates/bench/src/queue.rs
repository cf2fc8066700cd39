//! The queue from end to end, on a control plane with simulated nodes: many more requests than there is room for, of many
//! teams and with short lives. How long until the last one is over, beside the time that all of them would take if every
//! device were used all the while; and what a decision costs.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use odc_api::v1alpha1::{DevServer, Phase};
use odc_tests::odc::{self, Operator};
use odc_tests::{ControlPlane, with_control_plane};
use serde_json::json;

use crate::Report;
use crate::operator::{TOGETHER, memory, mib, used, users_are_ready};

const TEAMS: usize = 12;
/// So few that the queue is long and the last ones hardly count.
const NODES: usize = 32;
const DEVICES: usize = 8;
/// How many a team asks for, devices and seconds of each.
const CLASSES: [(usize, usize, usize); 3] = [(70, 1, 20), (20, 4, 30), (10, 8, 40)];
const LIMIT: Duration = Duration::from_secs(900);
/// A goal: makespan by bound.
const MOST: f64 = 1.15;
/// The operator's metric of the CPU seconds that its plans took.
const PLANNING: &str = "odc_queue_cpu_seconds";

struct Request {
    name: String,
    team: usize,
    devices: usize,
    seconds: usize,
}

/// All classes mixed, the same each time.
fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for (class, (count, devices, seconds)) in CLASSES.into_iter().enumerate() {
        for number in 0..count {
            for team in 0..TEAMS {
                let place = (number * 100 + class * 30) / count;
                let name = format!("c{class}-{number}-{team}");
                all.push((place, team, Request { name, team, devices, seconds }));
            }
        }
    }
    all.sort_by_key(|(place, team, _)| (*place, *team));
    all.into_iter().map(|(.., request)| request).collect()
}

/// As it stands in `docs/scheduling.md`.
pub(crate) async fn run() -> anyhow::Result<Report> {
    with_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        odc::install(&plane.client).await?;
        let operator = start(plane, directory.path()).await?;
        let requests = requests();
        let work: usize = requests.iter().map(|request| request.devices * request.seconds).sum();
        let bound = work as f64 / (NODES * DEVICES) as f64;
        let (began, before) = (Instant::now(), used(&operator)?);
        let planned_before = planning(&operator).await?;
        stream::iter(&requests)
            .map(Ok::<_, anyhow::Error>)
            .try_for_each_concurrent(TOGETHER, async |request| create(plane, request).await)
            .await?;
        all_over(plane, requests.len()).await?;
        let took = began.elapsed().as_secs_f64();
        let spent = used(&operator)?.saturating_sub(before);
        let planned = planning(&operator).await?.zip(planned_before).map(|(after, before)| after - before);
        let ratio = took / bound;
        let each = |seconds: f64| seconds * 1_000.0 / requests.len() as f64;
        let deciding = planned.map_or_else(
            || format!("not measured: the operator has no {PLANNING}"),
            |seconds| format!("{:.2} ms", each(seconds)),
        );
        let mut text = String::new();
        writeln!(
            text,
            "{} requests of {TEAMS} teams at once, {NODES} nodes of {DEVICES} devices. All devices in use all the while would \
             take {bound:.0} s. Kueue's figures are from another run on such a machine, with workloads and no pods.\n",
            requests.len()
        )?;
        writeln!(text, "| | ODC | Kueue | goal |\n|---|--:|--:|--:|")?;
        writeln!(text, "| until the last is over | {took:.0} s | | |")?;
        writeln!(text, "| of the bound | {ratio:.2} times | 3.0-3.5 times | ≤ {MOST} |")?;
        writeln!(text, "| CPU of deciding, for each that was admitted | {deciding} | | |")?;
        writeln!(
            text,
            "| CPU of the whole operator, for each: the request, its pod, its end | {:.1} ms | 5.7-6.1 ms to admit it | |",
            each(spent.as_secs_f64())
        )?;
        writeln!(text, "| memory of the operator | {:.1} MiB | 104-119 MiB | |\n", mib(memory(&operator)?))?;
        let mut report = Report::from(text);
        report.goal(ratio <= MOST, || format!("the last is over after {ratio:.2} times the bound, not {MOST}"));
        Ok(report)
    })
    .await
}

async fn start(plane: &ControlPlane, directory: &Path) -> anyhow::Result<Operator> {
    let devices = DEVICES.to_string();
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
        "default": true, "privilege": "Sudo", "device": {"resource": "nvidia.com/gpu", "perNode": DEVICES},
        "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}});
    odc::apply(&plane.client, &flavor).await?;
    for team in 0..TEAMS {
        let name = format!("t{team}");
        let user = json!({"apiVersion": api, "kind": "DevServerUser", "metadata": {"name": name}, "spec": {}});
        odc::apply(&plane.client, &user).await?;
        let members = json!({"members": [name]});
        let team = json!({"apiVersion": api, "kind": "Team", "metadata": {"name": name}, "spec": members});
        odc::apply(&plane.client, &team).await?;
    }
    let kubeconfig = directory.join("operator.kubeconfig");
    odc::with_token(&plane.kubeconfig, &odc::token(&plane.client).await?, &kubeconfig)?;
    let operator = Operator::start(&kubeconfig, directory, &[("ODC_EXPIRY_GRACE", "0s")]).await?;
    users_are_ready(plane, (0..TEAMS).map(|team| format!("t{team}"))).await?;
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

/// Watched, because to ask for all of them again and again would be a load of its own.
async fn all_over(plane: &ControlPlane, count: usize) -> anyhow::Result<()> {
    let servers: Api<DevServer> = Api::all(plane.client.clone());
    let mut seen = std::pin::pin!(watcher(servers, watcher::Config::default()).default_backoff().applied_objects());
    let (mut over, began) = (HashSet::new(), Instant::now());
    while over.len() < count {
        let left = LIMIT.saturating_sub(began.elapsed());
        let Ok(Some(next)) = tokio::time::timeout(left, seen.next()).await else {
            anyhow::bail!("{} of {count} are over after {} s", over.len(), LIMIT.as_secs());
        };
        // A watch that broke is made anew.
        let Ok(server) = next else { continue };
        match server.status.as_ref().and_then(|status| status.phase) {
            Some(Phase::Expired) => drop(over.insert((server.metadata.namespace, server.metadata.name))),
            Some(other) if other.terminal() => anyhow::bail!("{:?} is {other}", server.metadata.name),
            _ => {}
        }
    }
    Ok(())
}

/// The CPU seconds that plans took so far, if the operator counts them.
async fn planning(operator: &Operator) -> anyhow::Result<Option<f64>> {
    let metrics = operator.get("/metrics").await?;
    let line =
        metrics.lines().find_map(|line| line.strip_prefix(PLANNING)?.trim_start_matches("_total").strip_prefix(' '));
    Ok(line.map(|value| value.trim().parse()).transpose()?)
}
