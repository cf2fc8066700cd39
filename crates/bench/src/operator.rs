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

use crate::Report;

/// Creates under way at once.
pub(crate) const TOGETHER: usize = 32;
const NOOPS: usize = 4000;
/// Servers that the operator never sees.
const NOBODYS: usize = 1000;
const LIMIT: Duration = Duration::from_secs(1200);
const USERS: usize = 20;
/// Bursts, each on a control plane of its own: on a shared machine one says little.
const RUNS: usize = 5;

/// Goals: the part of the bound that is reached; memory with a thousand servers, and for each further one.
const LEAST_PART: f64 = 0.7;
const MOST_MIB: f64 = 30.0;
const MOST_KIB_EACH: f64 = 8.0;

/// As it stands in `docs/performance.md`. `more` is how many servers there are in the end.
pub(crate) async fn run(more: usize) -> anyhow::Result<Report> {
    let first = 1000.min(more);
    let mut runs = Vec::new();
    for _ in 1..RUNS {
        runs.push(with_control_plane(async |plane| alone(plane, first).await).await?);
    }
    with_control_plane(async |plane| {
        let directory = tempfile::tempdir()?;
        let before = yardstick(plane).await?;
        let mut operator = start(plane, directory.path()).await?;
        let idle = at_rest(&operator).await?;
        let burst = Burst::measure(plane, &operator, first).await?;
        let (few, after) = Memory::now(plane, &mut operator, directory.path(), async || noops(plane).await).await?;
        runs.push(Run { before, burst, after });
        let mut report = Report::default();
        rates_table(&mut report, first, &runs)?;

        let mut many = None;
        if more > first {
            create(plane, &operator, 0, more - first, first).await?;
            let (memory, ()) = Memory::now(plane, &mut operator, directory.path(), async || Ok(())).await?;
            many = Some((more, memory));
        }
        memory_table(&mut report, idle, (first, few), many)?;
        Ok(report)
    })
    .await
}

/// A run that nothing but its rate is wanted of.
async fn alone(plane: &ControlPlane, servers: usize) -> anyhow::Result<Run> {
    let directory = tempfile::tempdir()?;
    let before = yardstick(plane).await?;
    let mut operator = start(plane, directory.path()).await?;
    at_rest(&operator).await?;
    let burst = Burst::measure(plane, &operator, servers).await?;
    at_rest(&operator).await?;
    operator.kill().await?;
    Ok(Run { before, burst, after: noops(plane).await? })
}

async fn yardstick(plane: &ControlPlane) -> anyhow::Result<Duration> {
    odc::install(&plane.client).await?;
    noops(plane).await
}

/// Servers that are made at once.
struct Burst {
    took: Duration,
    /// What it cost the operator.
    spent: Duration,
    /// For each.
    writes: f64,
    servers: usize,
}

impl Burst {
    async fn measure(plane: &ControlPlane, operator: &Operator, servers: usize) -> anyhow::Result<Self> {
        let (before, used_before) = (plane.requests()?.len(), used(operator)?);
        let took = create(plane, operator, 0, servers, 0).await?;
        let spent = used(operator)?.saturating_sub(used_before);
        let writes = writes(&plane.requests()?[before..], servers);
        Ok(Self { took, spent, writes, servers })
    }
}

/// A burst between two yardsticks. A shared machine is not equally fast all the time, and an API server that holds more is
/// slower.
struct Run {
    before: Duration,
    burst: Burst,
    after: Duration,
}

impl Run {
    /// How much of the bound is reached if [`NOOPS`] writes take as long as this.
    fn part(&self, yardstick: Duration) -> f64 {
        let bound = per_second(NOOPS, yardstick) / self.burst.writes;
        per_second(self.burst.servers, self.burst.took) / bound
    }

    /// By the mean of both.
    fn of_the_bound(&self) -> f64 {
        self.part((self.before + self.after) / 2)
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
        "| writes that change nothing, {TOGETHER} at once, before and afterwards | {servers} creates until all run, in a second | writes \
         for each, ours and others' | processor time of the operator for each | of the bound | by the first yardstick alone \
         |\n|--:|--:|--:|--:|--:|--:|"
    )?;
    for run in runs {
        let Burst { took, spent, writes, .. } = run.burst;
        let [before, after] = [run.before, run.after].map(|took| per_second(NOOPS, took));
        writeln!(
            report.text,
            "| {before:.0}/s, {after:.0}/s | {:.1}/s | {writes:.1} | {:.1} ms | {:.2} | {:.2} |",
            per_second(servers, took),
            spent.as_secs_f64() * 1_000.0 / servers as f64,
            run.of_the_bound(),
            run.part(run.before),
        )?;
    }
    let part = median(&Run::of_the_bound);
    writeln!(
        report.text,
        "\nOf the bound: {part:.2} (goal: ≥ {LEAST_PART}), the median of {} runs; by the first yardstick alone {:.2}.\n",
        runs.len(),
        median(&|run| run.part(run.before))
    )?;
    report.goal(part >= LEAST_PART, || format!("{part:.2} of the bound, not {LEAST_PART}"));
    Ok(())
}

/// What the operator takes with so many servers: right after they were made, at rest, and after its restart.
#[derive(Clone, Copy)]
struct Memory([u64; 3]);

impl Memory {
    /// Restarts it, and does something while it is stopped.
    async fn now<T>(
        plane: &ControlPlane,
        operator: &mut Operator,
        directory: &Path,
        meanwhile: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Self, T)> {
        let (made, rest) = (memory(operator)?, at_rest(operator).await?);
        operator.kill().await?;
        let done = meanwhile().await?;
        let leases: Api<Lease> = Api::namespaced(plane.client.clone(), "odc-system");
        leases.delete("odc-operator", &DeleteParams::default()).await?;
        *operator = Operator::start(&directory.join("operator.kubeconfig"), directory, &[]).await?;
        Ok((Self([made, rest, at_rest(operator).await?]), done))
    }
}

/// Goals are of an operator that has come to rest, restarted or not; what a burst leaves for a moment is only shown.
fn memory_table(
    report: &mut Report,
    idle: u64,
    (first, Memory(few)): (usize, Memory),
    many: Option<(usize, Memory)>,
) -> anyhow::Result<()> {
    const CHECKED: [(usize, &str); 2] = [(1, "at rest"), (2, "after its restart")];
    let cells = |values: [f64; 3], unit: &str| values.map(|value| format!("{value:.2} {unit}")).join(" | ");
    writeln!(
        report.text,
        "| operator's memory | right after they were made | at rest | after its restart | goal for the last two |\n\
         |---|--:|--:|--:|--:|"
    )?;
    writeln!(report.text, "| 0 servers | | {:.2} MiB | | |", mib(idle))?;
    let few_mib = few.map(mib);
    writeln!(report.text, "| {first} servers | {} | ≤ {MOST_MIB} MiB |", cells(few_mib, "MiB"))?;
    for (at, when) in CHECKED {
        report.goal(few_mib[at] <= MOST_MIB, || {
            format!("{:.2} MiB with {first} servers {when}, not {MOST_MIB}", few_mib[at])
        });
    }
    let Some((more, Memory(many))) = many else { return Ok(()) };
    writeln!(report.text, "| {more} servers | {} | |", cells(many.map(mib), "MiB"))?;
    let each = [0, 1, 2].map(|at| (many[at] as f64 - few[at] as f64) / (more - first) as f64 / 1024.0);
    writeln!(report.text, "| for each further server | {} | ≤ {MOST_KIB_EACH} KiB |", cells(each, "KiB"))?;
    for (at, when) in CHECKED {
        report.goal(each[at] <= MOST_KIB_EACH, || {
            format!("{:.2} KiB for each further server {when}, not {MOST_KIB_EACH}", each[at])
        });
    }
    Ok(())
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
/// twice that comes before it has heard of its own last one. Gives how long [`NOOPS`] of them take.
async fn noops(plane: &ControlPlane) -> anyhow::Result<Duration> {
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
    let took = started.elapsed();
    servers.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    Ok(took)
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

/// The CPU it has used so far.
pub(crate) fn used(operator: &Operator) -> anyhow::Result<Duration> {
    let pid = operator.child.id().context("the operator runs")?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').context("a process has a name")?;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum();
    Ok(Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second()))
}
