//! The operator on a control plane with simulated nodes: how fast many servers converge beside what the API server could
//! write at best, and how much memory each takes.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStream, TryStreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::{DevServer, DevServerUser, condition};
use odc_tests::audit::Request;
use odc_tests::odc::{self, Operator};
use odc_tests::{ControlPlane, wait, with_control_plane};
use serde_json::json;

/// Creates under way at once.
pub(crate) const TOGETHER: usize = 32;
const NOOPS: usize = 4000;
/// Servers that the operator never sees.
const NOBODYS: usize = 1000;
const LIMIT: Duration = Duration::from_secs(1200);
const USERS: usize = 20;

/// As it stands in `docs/performance.md`. `more` is how many servers there are in the end.
pub(crate) async fn run(more: usize) -> anyhow::Result<String> {
    with_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        odc::install(&plane.client).await?;
        let rate = noop_rate(plane).await?;
        let mut operator = start(plane, directory.path()).await?;
        let mut report = String::new();
        let idle = at_rest(&operator).await?;
        writeln!(report, "No-op writes: {rate:.0}/s ({TOGETHER} at once).\n")?;

        let first = 1000.min(more);
        let before = plane.requests()?.len();
        let took = create(plane, &operator, 0, first, 0).await?;
        let writes = writes(&plane.requests()?[before..], first);
        let bound = rate / writes;
        let reached = per_second(first, took);
        writeln!(
            report,
            "{first} creates: all running after {:.1} s, {reached:.1}/s. All writes of the run, ours and others': {writes:.1} \
             per server, so the bound is {bound:.1}/s; reached {:.2} of it.\n",
            took.as_secs_f64(),
            reached / bound
        )?;
        writeln!(report, "| servers | operator's memory right after they were made | at rest | after its restart |\n|---|---|---|---|")?;
        writeln!(report, "| 0 | | {:.1} MiB | |", mib(idle))?;
        let (made, rest) = (memory(&operator)?, at_rest(&operator).await?);
        let thousand = restarted(plane, &mut operator, directory.path()).await?;
        writeln!(report, "| {first} | {:.1} MiB | {:.1} MiB | {:.1} MiB |", mib(made), mib(rest), mib(thousand))?;
        if more > first {
            create(plane, &operator, 0, more - first, first).await?;
            let (made, rest) = (memory(&operator)?, at_rest(&operator).await?);
            let all = restarted(plane, &mut operator, directory.path()).await?;
            let each = all.saturating_sub(thousand) / (more - first) as u64;
            writeln!(
                report,
                "| {more} | {:.1} MiB | {:.1} MiB | {:.1} MiB, {:.1} KiB for each more |",
                mib(made),
                mib(rest),
                mib(all),
                each as f64 / 1024.0
            )?;
        }
        Ok(report)
    })
    .await
}

async fn start(plane: &ControlPlane, directory: &Path) -> anyhow::Result<Operator> {
    for number in 0..100 {
        let resources = [("cpu", "4000"), ("memory", "4Ti"), ("ephemeral-storage", "100Ti"), ("pods", "1000")];
        plane.add_node(&format!("node-{number}"), &resources).await?;
    }
    odc::apply(
        &plane.client,
        &json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"}, "spec": {
            "default": true, "privilege": "Sudo", "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}}),
    )
    .await?;
    for user in 0..USERS {
        let user = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": format!("u{user}")}, "spec": {}});
        odc::apply(&plane.client, &user).await?;
    }
    let kubeconfig = directory.join("operator.kubeconfig");
    odc::with_token(&plane.kubeconfig, &odc::token(&plane.client).await?, &kubeconfig)?;
    let operator = Operator::start(&kubeconfig, directory, &[]).await?;
    users_are_ready(plane, (0..USERS).map(|user| format!("u{user}"))).await?;
    Ok(operator)
}

/// Waits until they are, and their namespaces take pods.
pub(crate) async fn users_are_ready(plane: &ControlPlane, names: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let users: Api<DevServerUser> = Api::all(plane.client.clone());
    for name in names {
        wait::until("the users", Duration::from_secs(120), async || {
            let status = users.get(&name).await?.status.unwrap_or_default();
            anyhow::ensure!(condition::holds(&status.conditions, condition::Type::Ready), "{name} is not ready");
            Ok(())
        })
        .await?;
        odc_local::cluster::takes_pods(&plane.client, &format!("dev-{name}")).await?;
    }
    Ok(())
}

/// Patches of servers that nobody looks after, changing nothing but an annotation: what a write of this kind costs the
/// API server at the least. Every one goes to another server, as in the run itself, because the API server does a patch
/// twice that comes before it has heard of its own last one.
async fn noop_rate(plane: &ControlPlane) -> anyhow::Result<f64> {
    let servers: &Api<DevServer> = &Api::namespaced(plane.client.clone(), "default");
    each(0..NOBODYS)
        .try_for_each_concurrent(TOGETHER, async |number| {
            servers.create(&PostParams::default(), &server(&format!("server-{number}"))?).await?;
            Ok(())
        })
        .await?;
    let started = Instant::now();
    each(0..NOOPS)
        .try_for_each_concurrent(TOGETHER, async |number| {
            let patch = json!({"metadata": {"annotations": {"number": number.to_string()}}});
            let name = format!("server-{}", number % NOBODYS);
            servers.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Ok(())
        })
        .await?;
    let rate = per_second(NOOPS, started.elapsed());
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(rate)
}

fn server(name: &str) -> anyhow::Result<DevServer> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}},
    }))?)
}

/// Creates servers and waits until all run.
///
/// `counted` of them the operator has counted before, `from` is the number of the first new one.
async fn create(
    plane: &ControlPlane,
    operator: &Operator,
    counted: usize,
    count: usize,
    from: usize,
) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let client = &plane.client;
    each(from..from + count)
        .try_for_each_concurrent(TOGETHER, async |number| {
            let servers: Api<DevServer> = Api::namespaced(client.clone(), &format!("dev-u{}", number % USERS));
            servers.create(&PostParams::default(), &server(&format!("server-{number}"))?).await?;
            Ok(())
        })
        .await?;
    // Asked of the operator, because listing them all again and again would be a load of its own.
    wait::until("all servers run", LIMIT, async || {
        let metrics = operator.get("/metrics").await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix("odc_start_seconds_count "));
        let running: usize = line.context("the operator counts starts")?.trim().parse()?;
        anyhow::ensure!(running >= counted + count, "{running} of {} run", counted + count);
        Ok(())
    })
    .await?;
    Ok(started.elapsed())
}

/// What it takes when it has seen everything once, without the traces of a burst.
async fn restarted(plane: &ControlPlane, operator: &mut Operator, directory: &Path) -> anyhow::Result<u64> {
    operator.kill().await?;
    let leases: Api<Lease> = Api::namespaced(plane.client.clone(), "odc-system");
    leases.delete("odc-operator", &DeleteParams::default()).await?;
    *operator = Operator::start(&directory.join("operator.kubeconfig"), directory, &[]).await?;
    at_rest(operator).await
}

/// All writes for each server, whoever made them.
fn writes(requests: &[Request], servers: usize) -> f64 {
    requests.iter().filter(|request| request.is_write() && request.resource != "leases").count() as f64 / servers as f64
}

fn each(numbers: Range<usize>) -> impl TryStream<Ok = usize, Error = anyhow::Error> {
    stream::iter(numbers).map(Ok)
}

fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What it takes when that has hardly changed for a while.
async fn at_rest(operator: &Operator) -> anyhow::Result<u64> {
    const HARDLY: u64 = 128 << 10;
    const LOOKS: usize = 8;
    const BETWEEN: Duration = Duration::from_secs(2);
    let (mut seen, began) = (Vec::new(), Instant::now());
    while began.elapsed() < LIMIT {
        tokio::time::sleep(BETWEEN).await;
        seen.push(memory(operator)?);
        let recent = seen.iter().rev().take(LOOKS).copied();
        if let (Some(least), Some(most)) = (recent.clone().min(), recent.max())
            && seen.len() >= LOOKS
            && most - least <= HARDLY
        {
            return Ok(most);
        }
    }
    anyhow::bail!("the operator's memory does not come to rest: {seen:?}")
}

pub(crate) fn memory(operator: &Operator) -> anyhow::Result<u64> {
    let pid = operator.child.id().context("the operator runs")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("a process has memory")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>()? << 10)
}
