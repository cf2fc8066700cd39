//! The operator on a control plane with simulated nodes: the rate at which servers start, relative to an upper bound derived
//! from the write rate of the API server, and the memory per server.

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
use odc_tests::manifests;
use odc_tests::operator::{self as operator_process, Operator};
use odc_tests::{ControlPlane, wait, with_new_control_plane};
use serde_json::json;

use crate::{Report, cpu};

/// Concurrent writes.
pub(crate) const CONCURRENCY: usize = 32;
/// Patches of the baseline.
const BASELINE_WRITES: usize = 4000;
/// Servers of the baseline, in a namespace that the operator does not manage.
const UNMANAGED_SERVERS: usize = 1000;
const CONVERGE_TIMEOUT: Duration = Duration::from_secs(1200);
const USERS: usize = 20;
/// Runs, each on its own control plane, because single runs vary on a shared machine.
const RUNS: usize = 5;

/// Goal for the fraction of the upper bound that is reached.
const MIN_FRACTION: f64 = 0.7;
/// Goal for the memory with a thousand servers.
const MAX_OPERATOR_MIB: f64 = 30.0;
/// Goal for the memory of each further server.
const MAX_KIB_PER_SERVER: f64 = 8.0;

/// Returns the report in Markdown. `total` is the number of servers at the end.
pub(crate) async fn run(total: usize) -> anyhow::Result<Report> {
    let first = 1000.min(total);
    let mut runs = Vec::new();
    for _ in 1..RUNS {
        runs.push(with_new_control_plane(async |plane| measure_run(plane, first).await).await?);
    }
    with_new_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        let before = install_and_measure_baseline(plane).await?;
        let mut operator = start(plane, directory.path()).await?;
        let idle = settled_memory(&operator).await?;
        let burst = Burst::measure(plane, &operator, first).await?;
        let (few, after) =
            Memory::measure(plane, &mut operator, directory.path(), async || baseline(plane).await).await?;
        runs.push(Run { before, burst, after });
        let mut report = Report::default();
        rates_table(&mut report, first, &runs)?;

        let mut many = None;
        if total > first {
            create(plane, &operator, 0, total - first, first).await?;
            let (memory, ()) = Memory::measure(plane, &mut operator, directory.path(), async || Ok(())).await?;
            many = Some((total, memory));
        }
        memory_table(&mut report, idle, (first, few), many)?;
        Ok(report)
    })
    .await
}

/// Measures the rate of one run, without memory.
async fn measure_run(plane: &ControlPlane, servers: usize) -> anyhow::Result<Run> {
    let directory = tempfile::tempdir()?;
    let before = install_and_measure_baseline(plane).await?;
    let mut operator = start(plane, directory.path()).await?;
    settled_memory(&operator).await?;
    let burst = Burst::measure(plane, &operator, servers).await?;
    settled_memory(&operator).await?;
    operator.kill().await?;
    Ok(Run { before, burst, after: baseline(plane).await? })
}

async fn install_and_measure_baseline(plane: &ControlPlane) -> anyhow::Result<Duration> {
    manifests::install(&plane.client).await?;
    baseline(plane).await
}

/// Servers that are created at once.
struct Burst {
    elapsed: Duration,
    /// CPU time of the operator.
    cpu: Duration,
    writes_per_server: f64,
    servers: usize,
}

impl Burst {
    async fn measure(plane: &ControlPlane, operator: &Operator, servers: usize) -> anyhow::Result<Self> {
        let (requests_before, cpu_before) = (plane.requests()?.len(), cpu_time(operator)?);
        let elapsed = create(plane, operator, 0, servers, 0).await?;
        let cpu = cpu_time(operator)?.saturating_sub(cpu_before);
        let writes_per_server = writes_per_server(&plane.requests()?[requests_before..], servers);
        Ok(Self { elapsed, cpu, writes_per_server, servers })
    }
}

/// A burst between two baselines, because the speed of a shared machine varies and an API server with more objects is slower.
struct Run {
    before: Duration,
    burst: Burst,
    after: Duration,
}

impl Run {
    /// Returns the fraction of the upper bound that is reached if [`BASELINE_WRITES`] writes take `baseline`.
    fn fraction(&self, baseline: Duration) -> f64 {
        let upper_bound = per_second(BASELINE_WRITES, baseline) / self.burst.writes_per_server;
        per_second(self.burst.servers, self.burst.elapsed) / upper_bound
    }

    /// Returns the fraction by the mean of both baselines.
    fn mean_fraction(&self) -> f64 {
        self.fraction((self.before + self.after) / 2)
    }
}

fn rates_table(report: &mut Report, servers: usize, runs: &[Run]) -> anyhow::Result<()> {
    let median = |value: &dyn Fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    };
    writeln!(
        report.text,
        "| baseline writes, {CONCURRENCY} concurrent, before and after | {servers} servers, rate until all are running | writes per \
         server by all clients | CPU time of the operator per server | fraction of the upper bound | by the first baseline only \
         |\n|--:|--:|--:|--:|--:|--:|"
    )?;
    for run in runs {
        let Burst { elapsed, cpu, writes_per_server, .. } = run.burst;
        let [before, after] = [run.before, run.after].map(|elapsed| per_second(BASELINE_WRITES, elapsed));
        writeln!(
            report.text,
            "| {before:.0}/s, {after:.0}/s | {:.1}/s | {writes_per_server:.1} | {:.1} ms | {:.2} | {:.2} |",
            per_second(servers, elapsed),
            cpu.as_secs_f64() * 1_000.0 / servers as f64,
            run.mean_fraction(),
            run.fraction(run.before),
        )?;
    }
    let fraction = median(&Run::mean_fraction);
    writeln!(
        report.text,
        "\nFraction of the upper bound: {fraction:.2} (goal: ≥ {MIN_FRACTION}), the median of {} runs; by the first baseline only: {:.2}.\n",
        runs.len(),
        median(&|run| run.fraction(run.before))
    )?;
    report.goal(fraction >= MIN_FRACTION, || {
        format!("fraction of the upper bound: {fraction:.2}, goal ≥ {MIN_FRACTION}")
    });
    Ok(())
}

/// Memory of the operator: right after the burst, settled, and settled after a restart.
#[derive(Clone, Copy)]
struct Memory([u64; 3]);

impl Memory {
    /// Restarts the operator and runs `while_stopped` in between.
    async fn measure<T>(
        plane: &ControlPlane,
        operator: &mut Operator,
        directory: &Path,
        while_stopped: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Self, T)> {
        let (after_burst, settled) = (memory(operator)?, settled_memory(operator).await?);
        operator.kill().await?;
        let result = while_stopped().await?;
        let leases: Api<Lease> = Api::namespaced(plane.client.clone(), "odc-system");
        leases.delete("odc-operator", &DeleteParams::default()).await?;
        *operator = Operator::start(&directory.join("operator.kubeconfig"), directory, &[]).await?;
        Ok((Self([after_burst, settled, settled_memory(operator).await?]), result))
    }
}

/// The goals apply to settled memory, before and after the restart. Memory right after the burst is only reported.
fn memory_table(
    report: &mut Report,
    idle: u64,
    (first, Memory(few)): (usize, Memory),
    many: Option<(usize, Memory)>,
) -> anyhow::Result<()> {
    const CHECKED: [(usize, &str); 2] = [(1, "settled"), (2, "after a restart")];
    let cells = |values: [f64; 3], unit: &str| values.map(|value| format!("{value:.2} {unit}")).join(" | ");
    writeln!(
        report.text,
        "| memory of the operator | after the burst | settled | after a restart | goal for the last two |\n\
         |---|--:|--:|--:|--:|"
    )?;
    writeln!(report.text, "| 0 servers | | {:.2} MiB | | |", mib(idle))?;
    let few_mib = few.map(mib);
    writeln!(report.text, "| {first} servers | {} | ≤ {MAX_OPERATOR_MIB} MiB |", cells(few_mib, "MiB"))?;
    for (index, moment) in CHECKED {
        report.goal(few_mib[index] <= MAX_OPERATOR_MIB, || {
            format!("memory with {first} servers, {moment}: {:.2} MiB, goal ≤ {MAX_OPERATOR_MIB} MiB", few_mib[index])
        });
    }
    let Some((total, Memory(many))) = many else { return Ok(()) };
    writeln!(report.text, "| {total} servers | {} | |", cells(many.map(mib), "MiB"))?;
    let per_server = [0, 1, 2].map(|index| (many[index] as f64 - few[index] as f64) / (total - first) as f64 / 1024.0);
    writeln!(report.text, "| each further server | {} | ≤ {MAX_KIB_PER_SERVER} KiB |", cells(per_server, "KiB"))?;
    for (index, moment) in CHECKED {
        report.goal(per_server[index] <= MAX_KIB_PER_SERVER, || {
            format!(
                "memory of each further server, {moment}: {:.2} KiB, goal ≤ {MAX_KIB_PER_SERVER} KiB",
                per_server[index]
            )
        });
    }
    Ok(())
}

async fn start(plane: &ControlPlane, directory: &Path) -> anyhow::Result<Operator> {
    for number in 0..100 {
        let resources = [("cpu", "4000"), ("memory", "4Ti"), ("ephemeral-storage", "100Ti"), ("pods", "1000")];
        plane.add_node(&format!("node-{number}"), &resources).await?;
    }
    manifests::apply(
        &plane.client,
        &json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerFlavor", "metadata": {"name": "cpu"}, "spec": {
            "default": true, "privilege": "Sudo", "resources": {"per": "Server", "cpu": "100m", "memory": "64Mi"}}}),
    )
    .await?;
    for user in 0..USERS {
        let user = json!({"apiVersion": "odc.dev/v1alpha1", "kind": "DevServerUser", "metadata": {"name": format!("u{user}")}, "spec": {}});
        manifests::apply(&plane.client, &user).await?;
    }
    let kubeconfig = directory.join("operator.kubeconfig");
    operator_process::write_token_kubeconfig(
        &plane.kubeconfig,
        &operator_process::service_account_token(&plane.client).await?,
        &kubeconfig,
    )?;
    let operator = Operator::start(&kubeconfig, directory, &[]).await?;
    wait_users_ready(plane, (0..USERS).map(|user| format!("u{user}"))).await?;
    Ok(operator)
}

/// Waits until the users are ready and their namespaces accept pods.
pub(crate) async fn wait_users_ready(plane: &ControlPlane, names: impl Iterator<Item = String>) -> anyhow::Result<()> {
    let users: Api<DevServerUser> = Api::all(plane.client.clone());
    for name in names {
        wait::until("the users are ready", Duration::from_secs(120), async || {
            let status = users.get(&name).await?.status.unwrap_or_default();
            anyhow::ensure!(condition::is_true(&status.conditions, condition::Type::Ready), "{name} is not ready");
            Ok(())
        })
        .await?;
        odc_local::cluster::wait_default_service_account(&plane.client, &format!("dev-{name}")).await?;
    }
    Ok(())
}

/// Returns the time of [`BASELINE_WRITES`] patches that change one annotation of servers without an operator: the minimal cost
/// of a write to the API server. The patches rotate over the servers, as in the burst, because the API server retries a patch
/// of an object whose last write is not in its watch cache yet.
async fn baseline(plane: &ControlPlane) -> anyhow::Result<Duration> {
    let servers: &Api<DevServer> = &Api::namespaced(plane.client.clone(), "default");
    numbers(0..UNMANAGED_SERVERS)
        .try_for_each_concurrent(CONCURRENCY, async |number| {
            servers.create(&PostParams::default(), &server(&format!("server-{number}"))?).await?;
            Ok(())
        })
        .await?;
    let started = Instant::now();
    numbers(0..BASELINE_WRITES)
        .try_for_each_concurrent(CONCURRENCY, async |number| {
            let patch = json!({"metadata": {"annotations": {"number": number.to_string()}}});
            let name = format!("server-{}", number % UNMANAGED_SERVERS);
            servers.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Ok(())
        })
        .await?;
    let elapsed = started.elapsed();
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(elapsed)
}

fn server(name: &str) -> anyhow::Result<DevServer> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"home": {"ephemeral": "1Gi"}, "idle": {"action": "None"}},
    }))?)
}

/// Creates `count` servers, numbered from `from`, and waits until all are running. `counted` is the number of starts that the
/// operator has already counted.
async fn create(
    plane: &ControlPlane,
    operator: &Operator,
    counted: usize,
    count: usize,
    from: usize,
) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let client = &plane.client;
    numbers(from..from + count)
        .try_for_each_concurrent(CONCURRENCY, async |number| {
            let servers: Api<DevServer> = Api::namespaced(client.clone(), &format!("dev-u{}", number % USERS));
            servers.create(&PostParams::default(), &server(&format!("server-{number}"))?).await?;
            Ok(())
        })
        .await?;
    // Read from the metrics of the operator, because listing all servers repeatedly would add load.
    wait::until("all servers are running", CONVERGE_TIMEOUT, async || {
        let metrics = operator.get("/metrics").await?;
        let line = metrics.lines().find_map(|line| line.strip_prefix("odc_start_seconds_count "));
        let running: usize = line.context("the metrics contain odc_start_seconds_count")?.trim().parse()?;
        anyhow::ensure!(running >= counted + count, "{running} of {} are running", counted + count);
        Ok(())
    })
    .await?;
    Ok(started.elapsed())
}

/// Returns the number of writes per server by all clients.
fn writes_per_server(requests: &[Request], servers: usize) -> f64 {
    requests.iter().filter(|request| request.is_write() && request.resource != "leases").count() as f64 / servers as f64
}

fn numbers(range: Range<usize>) -> impl TryStream<Ok = usize, Error = anyhow::Error> {
    stream::iter(range).map(Ok)
}

fn per_second(count: usize, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Waits until the memory of the operator is stable and returns it.
async fn settled_memory(operator: &Operator) -> anyhow::Result<u64> {
    const MAX_VARIATION_BYTES: u64 = 128 << 10;
    const SAMPLES: usize = 8;
    const SAMPLE_INTERVAL: Duration = Duration::from_secs(2);
    let (mut samples, started) = (Vec::new(), Instant::now());
    while started.elapsed() < CONVERGE_TIMEOUT {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        samples.push(memory(operator)?);
        let recent = samples.iter().rev().take(SAMPLES).copied();
        if let (Some(min), Some(max)) = (recent.clone().min(), recent.max())
            && samples.len() >= SAMPLES
            && max - min <= MAX_VARIATION_BYTES
        {
            return Ok(max);
        }
    }
    anyhow::bail!("the memory of the operator does not settle: {samples:?}")
}

pub(crate) fn memory(operator: &Operator) -> anyhow::Result<u64> {
    odc_local::process::resident_memory(operator.child.id().context("the operator is running")?)
}

/// Returns the CPU time of the operator since its start.
pub(crate) fn cpu_time(operator: &Operator) -> anyhow::Result<Duration> {
    cpu::process(operator.child.id().context("the operator is running")?)
}
