//! One process of the service, which a test may kill and start again.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::command::{executable, http_get};
use crate::wait;

const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Killed when dropped.
#[derive(Debug)]
pub struct ServiceProcess {
    child: Child,
    subcommand: &'static str,
    environment: Vec<(String, String)>,
    /// Address of the API, unused by other roles.
    address: SocketAddr,
    /// Address of the metrics and health endpoints.
    metrics_address: SocketAddr,
    /// Of all starts.
    pub log: PathBuf,
}

impl ServiceProcess {
    pub(super) fn spawn(
        subcommand: &'static str,
        environment: Vec<(String, String)>,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        // Both at a time, so that they differ.
        let listeners = (odc_local::free_port::reserve()?, odc_local::free_port::reserve()?);
        let (address, metrics_address) = (listeners.0.local_addr()?, listeners.1.local_addr()?);
        drop(listeners);
        let log = directory.join(format!("{subcommand}-{}.log", metrics_address.port()));
        let mut all = vec![
            ("ODC_API_ADDRESS".to_owned(), address.to_string()),
            ("ODC_METRICS_ADDRESS".to_owned(), metrics_address.to_string()),
        ];
        all.extend(environment);
        let child = start(subcommand, &all, &log)?;
        Ok(Self { child, subcommand, environment: all, address, metrics_address, log })
    }

    /// Returns the URL of the API.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the process id, unless the process was killed.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process reports that it is ready.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        wait::until(&format!("odc {} ready", self.subcommand), READY_TIMEOUT, async || {
            let ready = self.get("/readyz").await.with_context(|| self.log_tail())?;
            anyhow::ensure!(ready.contains("200 OK"), "{ready}\n{}", self.log_tail());
            Ok(())
        })
        .await
    }

    /// Returns the response of a GET at the endpoints for health and metrics, with its head.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        http_get(&self.metrics_address.to_string(), path).await
    }

    /// Returns the value of a metric; `name` includes the labels, as in `odc_queue_messages{queue="a"}`.
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let metrics = self.get("/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.with_context(|| format!("no metric {name} in:\n{metrics}"))?.parse().context("parsing a metric")
    }

    /// Returns the last lines of the log.
    pub fn log_tail(&self) -> String {
        odc_local::artifact::tail(&std::fs::read_to_string(&self.log).unwrap_or_default(), 30)
    }

    /// Sends SIGKILL and waits for the exit.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Sends SIGTERM and waits for the exit.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        kill_process(self.raw_pid()?, Signal::TERM)?;
        let status = self.child.wait().await?;
        anyhow::ensure!(status.success(), "odc {} ended with {status}:\n{}", self.subcommand, self.log_tail());
        Ok(())
    }

    /// Sends SIGCONT to a process that a fault has stopped.
    pub fn resume(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.raw_pid()?, Signal::CONT)?)
    }

    fn raw_pid(&self) -> anyhow::Result<Pid> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.context("the process has exited")
    }

    /// Starts the process again with the same settings and addresses, after it was killed or stopped.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.child = start(self.subcommand, &self.environment, &self.log)?;
        Ok(())
    }
}

fn start(subcommand: &str, environment: &[(String, String)], log: &Path) -> anyhow::Result<Child> {
    Command::new(executable("odc")?)
        .arg(subcommand)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(log)?)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("starting odc {subcommand}"))
}
