//! devctl compared with kubectl on the same control plane with the same permissions: the time from start to the first request
//! bytes, and complete lists. The measurements are interleaved.

mod blackhole;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Api, Patch, PatchParams, PostParams};
use odc_api::v1alpha1::DevServer;
use odc_tests::{ControlPlane, manifests, user, with_new_control_plane};
use serde_json::json;

use crate::Report;
use crate::agent::cost::sizes;
use blackhole::BlackholeServer;

const STARTS: usize = 40;
const LISTS: usize = 20;
const LARGE_LISTS: usize = 6;
const SMALL_LIST: usize = 20;
const LARGE_LIST: usize = 5000;
/// Concurrent writes.
const CONCURRENCY: usize = 32;
const USER: &str = "ada";

/// The two programs, called with the credentials of one user.
struct Programs {
    devctl: PathBuf,
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

#[derive(Clone, Copy)]
enum Program {
    Devctl,
    Kubectl,
}

/// Upper bound of a measurement.
#[derive(Clone, Copy)]
enum Goal {
    Within(Duration),
    /// Relative to kubectl's time.
    Ratio(f64),
}

impl Goal {
    fn is_met(self, devctl: Duration, kubectl: Duration) -> bool {
        match self {
            Self::Within(limit) => devctl <= limit,
            Self::Ratio(ratio) => devctl <= kubectl.mul_f64(ratio),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Within(limit) => write!(f, "≤ {} ms", limit.as_millis()),
            Self::Ratio(ratio) => write!(f, "≤ {ratio} of kubectl"),
        }
    }
}

const MAX_EXECUTABLE_MIB: f64 = 20.0;

/// Returns the report in Markdown.
pub(crate) async fn run() -> anyhow::Result<Report> {
    let devctl =
        PathBuf::from(std::env::var_os("ODC_DEVCTL").context("ODC_DEVCTL is not set; it must be the path of devctl")?);
    with_new_control_plane(async |plane| {
        manifests::install(&plane.client).await?;
        let home = tempfile::tempdir()?;
        // The multi-call executable selects the program by its file name.
        let kubectl = home.path().join("kubectl");
        std::os::unix::fs::symlink(odc_local::artifact::Executables::find()?.kube, &kubectl)?;
        let kubeconfig = home.path().join("kubeconfig");
        user::create_user_without_operator(&plane.client, &plane.kubeconfig, USER, &kubeconfig).await?;
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

    let server = BlackholeServer::new(&programs.kubeconfig, programs.home.path())?;
    let (devctl, kubectl) =
        interleave(STARTS, |program| server.time_to_first_byte(programs.command(program, server.kubeconfig())))?;
    row(
        &mut report,
        "start to the first bytes for the API server",
        Goal::Within(Duration::from_millis(15)),
        devctl,
        kubectl,
    )?;

    create_servers(plane, 0..SMALL_LIST).await?;
    let (devctl, kubectl) = interleave(LISTS, |program| programs.list(program, SMALL_LIST))?;
    row(&mut report, &format!("list of {SMALL_LIST} servers"), Goal::Ratio(0.5), devctl, kubectl)?;

    create_servers(plane, SMALL_LIST..LARGE_LIST).await?;
    let (devctl, kubectl) = interleave(LARGE_LISTS, |program| programs.list(program, LARGE_LIST))?;
    row(&mut report, &format!("list of {LARGE_LIST} servers"), Goal::Within(Duration::from_secs(1)), devctl, kubectl)?;

    writeln!(report.text, "\n| | goal | measured |\n|---|---|---|")?;
    writeln!(
        report.text,
        "| executable as built | ≤ {MAX_EXECUTABLE_MIB} MiB | {built:.1} MiB (stripped {stripped:.1}) |"
    )?;
    report.goal(built <= MAX_EXECUTABLE_MIB, || format!("executable: {built:.1} MiB, goal ≤ {MAX_EXECUTABLE_MIB} MiB"));
    Ok(report)
}

impl Programs {
    fn command(&self, program: Program, kubeconfig: &Path) -> Command {
        let (path, arguments): (_, &[&str]) = match program {
            Program::Devctl => (&self.devctl, &["list"]),
            Program::Kubectl => (&self.kubectl, &["get", "devservers.odc.dev"]),
        };
        let mut command = Command::new(path);
        command.args(arguments);
        command.env_clear().env("HOME", self.home.path()).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        command
    }

    /// Measures a list and checks that it is complete.
    fn list(&self, program: Program, servers: usize) -> anyhow::Result<Duration> {
        let mut command = self.command(program, &self.kubeconfig);
        let started = Instant::now();
        let output = command.output()?;
        let elapsed = started.elapsed();
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?}: {errors}");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"server-")).count();
        anyhow::ensure!(lines == servers, "{command:?}: expected {servers} servers, got {lines}");
        Ok(elapsed)
    }
}

/// Measures both programs in the order A B B A, and so on, and returns the medians. The first run of each is not counted, so
/// that kubectl has cached its API discovery.
fn interleave(
    rounds: usize,
    mut measure: impl FnMut(Program) -> anyhow::Result<Duration>,
) -> anyhow::Result<(Duration, Duration)> {
    use Program::{Devctl, Kubectl};
    let (mut devctl, mut kubectl) = (Vec::new(), Vec::new());
    for program in [Devctl, Kubectl] {
        measure(program)?;
    }
    for round in 0..rounds {
        for program in if round % 2 == 0 { [Devctl, Kubectl] } else { [Kubectl, Devctl] } {
            let elapsed = measure(program)?;
            match program {
                Devctl => devctl.push(elapsed),
                Kubectl => kubectl.push(elapsed),
            }
        }
    }
    Ok((median(devctl), median(kubectl)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn row(report: &mut Report, name: &str, goal: Goal, devctl: Duration, kubectl: Duration) -> anyhow::Result<()> {
    report.goal(goal.is_met(devctl, kubectl), || format!("{name}: {goal}"));
    let [devctl, kubectl] = [devctl, kubectl].map(|time| time.as_secs_f64() * 1000.0);
    writeln!(report.text, "| {name} | {goal} | {:.2} | {devctl:.1} ms | {kubectl:.1} ms |", devctl / kubectl)?;
    Ok(())
}

/// Creates servers of realistic size, with a status, conditions and a timeline.
async fn create_servers(plane: &ControlPlane, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let servers: &Api<DevServer> = &Api::namespaced(plane.client.clone(), &format!("dev-{USER}"));
    stream::iter(numbers)
        .map(Ok::<_, anyhow::Error>)
        .try_for_each_concurrent(CONCURRENCY, async |number| {
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
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": "The condition is met and nothing is missing.", "lastTransitionTime": time, "observedGeneration": 1});
    let kinds = ["Accepted", "DiskReady", "Admitted", "PodsReady", "Ready"];
    let timeline = ["Queued", "Starting", "Running"].map(|phase| json!({"phase": phase, "at": time, "reason": phase}));
    json!({
        "phase": "Running", "flavor": "h100", "observedGeneration": 1,
        "conditions": kinds.map(|kind| condition(kind, kind)),
        "admission": {"run": 1, "epoch": 3, "nodes": [format!("node-{}", number % 100)], "admittedAt": time, "queuedAt": time},
        "startedAt": time, "runningSince": time, "accumulatedRunSeconds": 0, "expiresAt": "2026-11-16T16:00:00Z",
        "access": {"hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ"},
        "pods": [{"name": format!("server-{number}-0"), "run": 1, "node": format!("node-{}", number % 100), "ip": "10.0.0.1", "ready": true}],
        "timeline": timeline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goals_are_reported() -> anyhow::Result<()> {
        let mut report = Report::default();
        let [fast, slow] = [10, 30].map(Duration::from_millis);
        row(&mut report, "start", Goal::Within(Duration::from_millis(15)), fast, slow)?;
        row(&mut report, "list", Goal::Ratio(0.5), fast, slow)?;
        assert_eq!(report.missed, Vec::<String>::new());
        row(&mut report, "start", Goal::Within(Duration::from_millis(15)), slow, fast)?;
        row(&mut report, "list", Goal::Ratio(0.5), slow, fast)?;
        assert_eq!(report.missed, ["start: ≤ 15 ms", "list: ≤ 0.5 of kubectl"]);
        Ok(())
    }
}
