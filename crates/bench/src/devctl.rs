//! devctl beside kubectl, on the same control plane with the same rights: from start to the first bytes for the API
//! server, and whole lists. They take turns, each first as often as the other.

mod silence;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::DevServer;
use odc_tests::{ControlPlane, odc, person, with_control_plane};
use serde_json::json;

use crate::Report;
use crate::agent::cost::sizes;
use silence::Silence;

const STARTS: usize = 40;
const LISTS: usize = 20;
const LONG_LISTS: usize = 6;
const FEW: usize = 20;
const MANY: usize = 5000;
/// Writes under way at once.
const TOGETHER: usize = 32;
const USER: &str = "ada";

/// The two programs, as one person would call them.
struct Programs {
    devctl: PathBuf,
    kubectl: PathBuf,
    /// Of the control plane.
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

/// What is to be reached.
#[derive(Clone, Copy)]
enum Goal {
    Within(Duration),
    /// Of the time kubectl takes.
    Share(f64),
}

impl Goal {
    fn is_met(self, our: Duration, their: Duration) -> bool {
        match self {
            Self::Within(limit) => our <= limit,
            Self::Share(share) => our <= their.mul_f64(share),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Within(limit) => write!(f, "≤ {} ms", limit.as_millis()),
            Self::Share(share) => write!(f, "≤ {share} of kubectl"),
        }
    }
}

const LARGEST_MIB: f64 = 20.0;

/// As it stands in `docs/performance.md`.
pub(crate) async fn run() -> anyhow::Result<Report> {
    let devctl = PathBuf::from(std::env::var_os("ODC_DEVCTL").context("ODC_DEVCTL names the devctl to measure")?);
    with_control_plane(async |plane| {
        odc::install(&plane.client).await?;
        let home = tempfile::tempdir()?;
        // kubectl is called by its name.
        let kubectl = home.path().join("kubectl");
        std::os::unix::fs::symlink(odc_local::artifact::Executables::find()?.kube, &kubectl)?;
        let kubeconfig = home.path().join("kubeconfig");
        person::settle(&plane.client, &plane.kubeconfig, USER, &kubeconfig).await?;
        let programs = Programs { devctl, kubectl, kubeconfig, home };
        report(plane, &programs).await
    })
    .await
}

async fn report(plane: &ControlPlane, programs: &Programs) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let (stripped, built) = sizes(&programs.devctl, programs.home.path())?;
    let [stripped, built] = [stripped, built].map(|bytes| bytes as f64 / f64::from(1 << 20));
    writeln!(report.text, "| | goal | devctl / kubectl | devctl | kubectl |\n|---|---|---|---|---|")?;

    let silence = Silence::new(&programs.kubeconfig, programs.home.path())?;
    let (our, their) = by_turns(STARTS, |ours| silence.first_bytes(programs.call(ours, silence.kubeconfig())))?;
    row(
        &mut report,
        "start to the first bytes for the API server",
        Goal::Within(Duration::from_millis(15)),
        our,
        their,
    )?;

    servers(plane, 0..FEW).await?;
    let (our, their) = by_turns(LISTS, |ours| programs.list(ours, FEW))?;
    row(&mut report, &format!("whole list of {FEW} servers"), Goal::Share(0.5), our, their)?;

    servers(plane, FEW..MANY).await?;
    let (our, their) = by_turns(LONG_LISTS, |ours| programs.list(ours, MANY))?;
    row(&mut report, &format!("whole list of {MANY} servers"), Goal::Within(Duration::from_secs(1)), our, their)?;

    writeln!(report.text, "\n| | goal | measured |\n|---|---|---|")?;
    writeln!(report.text, "| executable as built | ≤ {LARGEST_MIB} MiB | {built:.1} MiB (stripped {stripped:.1}) |")?;
    if built > LARGEST_MIB {
        report.missed.push(format!("the executable has {built:.1} MiB"));
    }
    Ok(report)
}

impl Programs {
    fn call(&self, ours: bool, kubeconfig: &Path) -> Command {
        let mut command = Command::new(if ours { &self.devctl } else { &self.kubectl });
        command.args(if ours { &["list"] as &[&str] } else { &["get", "devservers.odc.dev"] });
        command.env_clear().env("HOME", self.home.path()).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        command
    }

    /// A whole list; it is checked that it is one.
    fn list(&self, ours: bool, servers: usize) -> anyhow::Result<Duration> {
        let mut command = self.call(ours, &self.kubeconfig);
        let begun = Instant::now();
        let output = command.output()?;
        let took = begun.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?}: {errors}");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"server-")).count();
        anyhow::ensure!(lines == servers, "{command:?}: {lines} servers of {servers}");
        Ok(took)
    }
}

/// A B B A, and so on, after one of each that nobody counts: kubectl has then learnt what the server offers.
fn by_turns(
    times: usize,
    mut measure: impl FnMut(bool) -> anyhow::Result<Duration>,
) -> anyhow::Result<(Duration, Duration)> {
    let (mut our, mut their) = (Vec::new(), Vec::new());
    for ours in [true, false] {
        measure(ours)?;
    }
    for turn in 0..times {
        for ours in [turn % 2 == 0, turn % 2 != 0] {
            let took = measure(ours)?;
            if ours { &mut our } else { &mut their }.push(took);
        }
    }
    Ok((median(our), median(their)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn row(report: &mut Report, what: &str, goal: Goal, our: Duration, their: Duration) -> anyhow::Result<()> {
    if !goal.is_met(our, their) {
        report.missed.push(format!("{what}: {goal}"));
    }
    let [our, their] = [our, their].map(|time| time.as_secs_f64() * 1000.0);
    writeln!(report.text, "| {what} | {goal} | {:.2} | {our:.1} ms | {their:.1} ms |", our / their)?;
    Ok(())
}

/// As large as real ones: with a status, conditions and a timeline.
async fn servers(plane: &ControlPlane, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let servers: &Api<DevServer> = &Api::namespaced(plane.client.clone(), &format!("dev-{USER}"));
    stream::iter(numbers)
        .map(Ok::<_, anyhow::Error>)
        .try_for_each_concurrent(TOGETHER, async |number| {
            let name = format!("server-{number}");
            let server = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"flavor": "h100", "count": 4, "home": {"claim": "home"}},
            }))?;
            servers.create(&PostParams::default(), &server).await?;
            let status = json!({"status": status(number)});
            servers.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            Ok(())
        })
        .await
}

fn status(number: usize) -> serde_json::Value {
    let time = "2026-11-16T08:00:00Z";
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "Everything about this is as it should be.", "lastTransitionTime": time, "observedGeneration": 1});
    let kinds = ["Accepted", "DiskReady", "Admitted", "PodsReady", "Ready"];
    let timeline = ["Queued", "Starting", "Running"].map(|phase| json!({"phase": phase, "at": time, "reason": phase}));
    json!({
        "phase": "Running", "flavor": "h100", "observedGeneration": 1,
        "conditions": kinds.map(|kind| condition(kind, kind)),
        "admission": {"run": 1, "epoch": 3, "nodes": [format!("node-{}", number % 100)], "grantedAt": time, "queuedAt": time},
        "startedAt": time, "runningSince": time, "ranSeconds": 0, "expiresAt": "2026-11-16T16:00:00Z",
        "access": {"hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"},
        "pods": [{"name": format!("server-{number}-0"), "run": 1, "node": format!("node-{}", number % 100), "ip": "10.0.0.1", "ready": true}],
        "timeline": timeline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_is_reported() -> anyhow::Result<()> {
        let mut report = Report::default();
        let [fast, slow] = [10, 30].map(Duration::from_millis);
        row(&mut report, "start", Goal::Within(Duration::from_millis(15)), fast, slow)?;
        row(&mut report, "list", Goal::Share(0.5), fast, slow)?;
        assert_eq!(report.missed, Vec::<String>::new());
        row(&mut report, "start", Goal::Within(Duration::from_millis(15)), slow, fast)?;
        row(&mut report, "list", Goal::Share(0.5), slow, fast)?;
        assert_eq!(report.missed, ["start: ≤ 15 ms", "list: ≤ 0.5 of kubectl"]);
        Ok(())
    }
}
