//! Supervises the Jupyter server: starts it on request, restarts it when it exits, and adopts it after a restart of
//! `serve`.
//!
//! It runs in its own process group. Its PID and start time are persisted, so that a restarted `serve` finds it and
//! never mistakes another process for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{Jupyter, JupyterState, Line, Text};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::backoff::Backoff;
use crate::process_id::ProcessId;
use crate::random;
use crate::serve::activity::jupyter::{self, Kernel};
use crate::serve::blocking::BlockingPool;
use crate::serve::jupyter::http;
use crate::serve::jupyter::launch::{self, FrontEnd, Launch};
use crate::serve::persisted_state;

const FILE: &str = "jupyter.json";
const LOG: &str = "jupyter.log";

/// An adopted process is not a child, so its exit is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const KERNEL_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Until it runs, so that the kernels of a new server are seen soon.
const STARTUP_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// From SIGTERM to SIGKILL.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Uptime after which a start counts as successful.
const STABLE_AFTER: Duration = Duration::from_secs(60);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);
/// How often an image without Jupyter is searched for it; the user may install it.
const SEARCH_INTERVAL: Duration = Duration::from_secs(5);
/// The state directory is on a tmpfs.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// Part of the log that is shown after an unexpected exit.
const LOG_TAIL_BYTES: u64 = 400;

#[derive(Debug)]
pub struct Supervisor {
    state_dir: PathBuf,
    launch: Launch,
    blocking: BlockingPool,
    port: u16,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    persisted: Persisted,
    /// The running server responds.
    responding: bool,
    /// A start is in progress.
    starting: bool,
    /// The image has no Jupyter.
    absent: bool,
    error: Option<String>,
    restarts: Backoff,
    started_at: Option<Instant>,
    /// No start before that time.
    start_not_before: Option<Instant>,
}

/// What a restarted `serve` must know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Persisted {
    /// The token of the enabled server; absent while disabled.
    token: Option<String>,
    front_end: Option<FrontEnd>,
    running: Option<Running>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    process: ProcessId,
    /// The token it was started with.
    token: String,
}

impl Supervisor {
    /// Adopts the server of a previous `serve`.
    pub fn load(state_dir: &Path, home: &Path, port: u16) -> Self {
        let launch = Launch { path: std::env::var_os("PATH"), home: home.to_owned(), log: state_dir.join(LOG), port };
        let persisted = persisted_state::load(&state_dir.join(FILE)).unwrap_or_default();
        let inner = Inner {
            persisted,
            responding: false,
            starting: false,
            absent: false,
            error: None,
            restarts: Backoff::new(Duration::from_secs(1), MAX_RESTART_DELAY, STABLE_AFTER),
            started_at: None,
            start_not_before: None,
        };
        Self {
            state_dir: state_dir.to_owned(),
            launch,
            blocking: BlockingPool::default(),
            port,
            inner: Mutex::new(inner),
            changed: Notify::new(),
        }
    }

    /// Enables or disables the server. It is started or stopped asynchronously.
    pub fn set_enabled(&self, enabled: bool) {
        let mut inner = self.inner();
        if inner.persisted.token.is_some() != enabled {
            inner.persisted.token = enabled.then(random::hex::<24>);
            (inner.responding, inner.absent, inner.error) = (false, false, None);
            inner.restarts.reset();
            inner.start_not_before = None;
            self.persist(&inner.persisted);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// Returns the status when the server is no longer starting, but after at most `timeout`.
    pub async fn wait_settled(&self, timeout: Duration) -> Jupyter {
        let started = Instant::now();
        loop {
            let status = self.status();
            if status.state != JupyterState::Starting || started.elapsed() >= timeout {
                return status;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn status(&self) -> Jupyter {
        let inner = self.inner();
        let is_running = inner.persisted.running.is_some();
        let state = match &inner.persisted.token {
            None => JupyterState::Off,
            Some(_) if inner.absent => JupyterState::Absent,
            Some(_) if is_running && inner.responding => JupyterState::Running,
            Some(_) if is_running || inner.starting || inner.error.is_none() => JupyterState::Starting,
            Some(_) => JupyterState::Restarting,
        };
        let has_address = !matches!(state, JupyterState::Off | JupyterState::Absent);
        Jupyter {
            state,
            port: has_address.then_some(self.port),
            path: inner.persisted.front_end.filter(|_| has_address).map(|front_end| Line::new(front_end.url_path())),
            token: inner.persisted.token.as_ref().filter(|_| has_address).map(Line::new),
            error: inner.error.as_ref().map(Text::new),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.inner().persisted.running.as_ref().map(|running| running.process.pid)
    }

    /// Starts, probes, restarts and stops the server.
    pub async fn run(&self) {
        loop {
            let Persisted { token, running, .. } = self.inner().persisted.clone();
            let is_enabled = token.is_some();
            match (token, running) {
                (Some(token), Some(running)) if running.token == token => {
                    if running.process.is_running() {
                        self.probe(&token).await;
                    } else {
                        self.handle_exit();
                    }
                }
                (Some(token), None) => self.start(token).await,
                // Disabled, or enabled again with another token.
                (_, Some(running)) => self.stop(running.process).await,
                (None, None) => self.changed.notified().await,
            }
            if is_enabled {
                let _ = timeout(POLL_INTERVAL, self.changed.notified()).await;
            }
        }
    }

    /// Queries the kernels periodically. Reports none while the server does not run.
    pub async fn poll_kernels(&self, report: impl Fn(Option<Result<Vec<Kernel>, String>>)) {
        loop {
            let is_running = self.status().state == JupyterState::Running;
            let token = if is_running { self.inner().persisted.token.clone() } else { None };
            let interval = if token.is_some() { KERNEL_POLL_INTERVAL } else { STARTUP_POLL_INTERVAL };
            report(match token {
                Some(token) => Some(self.kernels(&token).await),
                None => None,
            });
            sleep(interval).await;
        }
    }

    async fn kernels(&self, token: &str) -> Result<Vec<Kernel>, String> {
        jupyter::parse(&http::get(self.port, "/api/kernels?no_track_activity=1", token).await?)
    }

    async fn probe(&self, token: &str) {
        // Another server on the port rejects the token, so it is not mistaken for this one.
        let responding = if self.inner().responding { true } else { self.kernels(token).await.is_ok() };
        let mut inner = self.inner();
        // The token may have changed during the request.
        inner.responding = responding && inner.persisted.token.as_deref() == Some(token);
        if inner.started_at.is_some_and(|started_at| started_at.elapsed() > STABLE_AFTER) {
            inner.restarts.reset();
            inner.error = None;
        }
        drop(inner);
        launch::truncate_log(&self.state_dir.join(LOG), MAX_LOG_BYTES);
    }

    /// Waits for the result of the start, however long it takes: otherwise a late process would run unsupervised. The
    /// next iteration of [`Self::run`] stops it if the server was disabled.
    async fn start(&self, token: String) {
        {
            let mut inner = self.inner();
            if inner.start_not_before.is_some_and(|not_before| Instant::now() < not_before) {
                return;
            }
            (inner.responding, inner.starting) = (false, true);
        }
        let started = self.try_start(&token).await;
        let mut inner = self.inner();
        (inner.starting, inner.absent) = (false, false);
        match started {
            Ok(Some((front_end, Ok(process)))) => {
                inner.persisted.front_end = Some(front_end);
                inner.persisted.running = Some(Running { process, token });
                inner.started_at = Some(Instant::now());
            }
            Ok(Some((front_end, Err(error)))) => {
                inner.persisted.front_end = Some(front_end);
                inner.error = Some(error);
                inner.delay_start(Duration::ZERO);
            }
            Ok(None) => {
                inner.persisted.front_end = None;
                (inner.absent, inner.error) = (true, Some(launch::ABSENT.to_owned()));
                inner.start_not_before = Some(Instant::now() + SEARCH_INTERVAL);
                return;
            }
            Err(error) => {
                inner.error = Some(format!("cannot start Jupyter: {error}"));
                inner.delay_start(Duration::ZERO);
            }
        }
        self.persist(&inner.persisted);
    }

    /// Returns nothing if the image has no Jupyter.
    async fn try_start(&self, token: &str) -> io::Result<Option<(FrontEnd, Result<ProcessId, String>)>> {
        // The program may be in the home directory, and the home is its working directory.
        let (launch, runtime, token) = (self.launch.clone(), Handle::current(), token.to_owned());
        let mut task = self.blocking.spawn(move || {
            let _runtime = runtime.enter();
            let (front_end, program) = launch.find()?;
            let process = launch.start(front_end, &program, &token);
            Some((front_end, process.map_err(|error| format!("cannot start {}: {error}", program.display()))))
        })?;
        if let Some(started) = task.wait_timeout().await {
            return started;
        }
        self.inner().error = Some("waiting to start Jupyter: the file system is not responding".to_owned());
        let started = task.join().await;
        self.inner().error = None;
        started
    }

    fn handle_exit(&self) {
        let mut inner = self.inner();
        inner.persisted.running = None;
        inner.responding = false;
        let log = launch::log_tail(&self.state_dir.join(LOG), LOG_TAIL_BYTES);
        let log = if log.is_empty() { String::new() } else { format!(" Last log lines: {log}") };
        inner.error = Some(format!("Jupyter exited unexpectedly and is being restarted.{log}"));
        // The start time of an adopted process is unknown; it counts as stable.
        let uptime = inner.started_at.map_or(STABLE_AFTER, |started_at| started_at.elapsed());
        inner.delay_start(uptime);
        self.persist(&inner.persisted);
    }

    async fn stop(&self, process: ProcessId) {
        signal_group(process, Signal::TERM);
        let started = Instant::now();
        while process.is_running() && started.elapsed() < STOP_GRACE {
            sleep(Duration::from_millis(20)).await;
        }
        signal_group(process, Signal::KILL);
        let mut inner = self.inner();
        inner.persisted.running = None;
        inner.responding = false;
        self.persist(&inner.persisted);
    }

    fn persist(&self, persisted: &Persisted) {
        // On failure a restarted `serve` starts a second server, which finds the port in use and reports it.
        let _ = persisted_state::store(&self.state_dir.join(FILE), persisted);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn delay_start(&mut self, uptime: Duration) {
        self.start_not_before = Some(Instant::now() + self.restarts.next_delay(uptime));
    }
}

/// Signals the process group, if its leader still is this process.
fn signal_group(process: ProcessId, signal: Signal) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| process.is_running()) {
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests;
