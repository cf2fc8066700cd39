//! The server's notebook server: started when somebody wants it, started again when it dies, and left alone when only
//! `serve` does.
//!
//! It runs as a process group of its own, with its number and start in a file, so that a new `serve` finds it again and
//! nobody else's process is ever taken for it.

pub mod http;
pub mod launch;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{Jupyter, JupyterState, Line, Text};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::random;
use crate::serve::activity::notebook::{self, Kernel};
use crate::serve::apart::Apart;
use crate::serve::jupyter::launch::{Flavor, Launch};
use crate::serve::kept;
use crate::state::process::Process;

pub const PORT: u16 = 8888;

const FILE: &str = "jupyter.json";
const LOG: &str = "jupyter.log";

/// While it is wanted. Its end is seen at once where it is our child; this is for one that was adopted.
const GLANCE: Duration = Duration::from_millis(500);
/// Between two questions about its kernels.
const ASK: Duration = Duration::from_secs(30);
/// From the request to end to the kill.
const GRACE: Duration = Duration::from_secs(5);
/// Who ran for so long may start at once again.
const WELL: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The state directory is in memory.
const LARGEST_LOG: u64 = 1 << 20;
/// Of its last words.
const LAST_WORDS: u64 = 400;

#[derive(Debug)]
pub struct Notebook {
    state: PathBuf,
    launch: Launch,
    apart: Apart,
    port: u16,
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    kept: Kept,
    answers: bool,
    error: Option<String>,
    deaths: u32,
    started: Option<Instant>,
    /// No attempt before that.
    not_before: Option<Instant>,
}

/// What a new `serve` must know.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    wanted: bool,
    token: String,
    flavor: Option<Flavor>,
    process: Option<Process>,
}

impl Notebook {
    /// Finds again what a predecessor started.
    pub fn begin(state: &Path, home: &Path, port: u16) -> Self {
        let launch = Launch { path: std::env::var_os("PATH"), home: home.to_owned(), log: state.join(LOG), port };
        let kept = kept::load(&state.join(FILE)).unwrap_or_default();
        let inner = Mutex::new(Inner { kept, ..Inner::default() });
        Self { state: state.to_owned(), launch, apart: Apart::default(), port, inner, changed: Notify::new() }
    }

    /// Says whether it should run. That it does may take a moment.
    pub fn want(&self, on: bool) {
        let mut inner = self.inner();
        if inner.kept.wanted != on {
            inner.kept.wanted = on;
            inner.error = None;
            inner.deaths = 0;
            inner.not_before = None;
            if on {
                inner.kept.token = random::hex::<24>();
            }
            self.keep(&inner.kept);
        }
        drop(inner);
        self.changed.notify_one();
    }

    /// As it is, or as it is after at most `patience`, if it is about to change.
    pub async fn settled(&self, patience: Duration) -> Jupyter {
        let begun = Instant::now();
        loop {
            let now = self.told();
            if now.state != JupyterState::Starting || begun.elapsed() >= patience {
                return now;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn told(&self) -> Jupyter {
        let inner = self.inner();
        let running = inner.kept.process.is_some();
        let state = match &inner.kept {
            Kept { wanted: false, .. } => JupyterState::Off,
            Kept { flavor: None, .. } if inner.error.is_some() => JupyterState::Absent,
            _ if running && inner.answers => JupyterState::Running,
            _ if running || inner.error.is_none() => JupyterState::Starting,
            _ => JupyterState::Restarting,
        };
        let there = !matches!(state, JupyterState::Off | JupyterState::Absent);
        Jupyter {
            state,
            port: there.then_some(self.port),
            path: inner.kept.flavor.filter(|_| there).map(|flavor| Line::new(flavor.url_path())),
            token: there.then(|| Line::new(&inner.kept.token)),
            error: inner.error.as_ref().map(Text::new),
        }
    }

    /// Its process, if it has one.
    pub fn pid(&self) -> Option<u32> {
        self.inner().kept.process.map(|process| process.pid)
    }

    /// Keeps it as it is wanted, for ever.
    pub async fn run(&self) {
        loop {
            let wanted = self.inner().kept.wanted;
            let process = self.inner().kept.process;
            match (wanted, process) {
                (true, Some(process)) if process.runs() => self.check().await,
                (true, Some(_)) => self.ended(),
                (true, None) => self.start().await,
                (false, Some(process)) => self.stop(process).await,
                (false, None) => self.changed.notified().await,
            }
            if wanted {
                let _ = timeout(GLANCE, self.changed.notified()).await;
            }
        }
    }

    /// Asks about its kernels, for ever. Nothing, while none runs.
    pub async fn watch(&self, tell: impl Fn(Option<Result<Vec<Kernel>, String>>)) {
        loop {
            let runs = self.told().state == JupyterState::Running;
            tell(if runs { Some(self.kernels().await) } else { None });
            // A new one is asked soon.
            let rest = if runs { ASK } else { Duration::from_secs(2) };
            sleep(rest).await;
        }
    }

    async fn kernels(&self) -> Result<Vec<Kernel>, String> {
        let token = self.inner().kept.token.clone();
        notebook::parse(&http::get(self.port, "/api/kernels?no_track_activity=1", &token).await?)
    }

    async fn check(&self) {
        // Another server on the port does not know our token, so it is not taken for ours.
        let answers = if self.inner().answers { true } else { self.kernels().await.is_ok() };
        let mut inner = self.inner();
        inner.answers = answers;
        if inner.started.is_some_and(|started| started.elapsed() > WELL) {
            inner.deaths = 0;
            inner.error = None;
        }
        drop(inner);
        launch::shorten(&self.state.join(LOG), LARGEST_LOG);
    }

    async fn start(&self) {
        let token = {
            let mut inner = self.inner();
            if inner.not_before.is_some_and(|not_before| Instant::now() < not_before) {
                return;
            }
            inner.answers = false;
            inner.kept.token.clone()
        };
        // It may lie in the home, and begins there.
        let (launch, runtime) = (self.launch.clone(), Handle::current());
        let started = move || {
            let _here = runtime.enter();
            let (flavor, program) = launch.find()?;
            let process = launch.start(flavor, &program, &token);
            Some((flavor, process.map_err(|error| format!("{} cannot be started: {error}", program.display()))))
        };
        let started = self.apart.run(started).await;
        let mut inner = self.inner();
        match started {
            Ok(Some((flavor, Ok(process)))) => {
                inner.kept.flavor = Some(flavor);
                inner.kept.process = Some(process);
                inner.started = Some(Instant::now());
            }
            Ok(Some((flavor, Err(error)))) => {
                inner.kept.flavor = Some(flavor);
                inner.error = Some(error);
                Self::rest(&mut inner);
            }
            Ok(None) => {
                inner.kept.flavor = None;
                inner.error = Some(launch::ABSENT.to_owned());
                // Somebody may install it.
                inner.not_before = Some(Instant::now() + Duration::from_secs(5));
                return;
            }
            Err(error) => {
                inner.error = Some(format!("Jupyter cannot be started: {error}"));
                Self::rest(&mut inner);
            }
        }
        self.keep(&inner.kept);
    }

    fn ended(&self) {
        let mut inner = self.inner();
        inner.kept.process = None;
        inner.answers = false;
        let words = launch::last_words(&self.state.join(LOG), LAST_WORDS);
        let said = if words.is_empty() { String::new() } else { format!(" Its last words: {words}") };
        inner.error = Some(format!("Jupyter ended by itself and is started again.{said}"));
        if inner.started.is_none_or(|started| started.elapsed() > WELL) {
            inner.deaths = 0;
        }
        Self::rest(&mut inner);
        self.keep(&inner.kept);
    }

    fn rest(inner: &mut Inner) {
        inner.not_before = Some(Instant::now() + pause(inner.deaths));
        inner.deaths = inner.deaths.saturating_add(1);
    }

    async fn stop(&self, process: Process) {
        signal(process, Signal::TERM);
        let begun = Instant::now();
        while process.runs() && begun.elapsed() < GRACE {
            sleep(Duration::from_millis(20)).await;
        }
        signal(process, Signal::KILL);
        let mut inner = self.inner();
        inner.kept.process = None;
        inner.answers = false;
        self.keep(&inner.kept);
    }

    fn keep(&self, kept: &Kept) {
        // Without it, a new `serve` starts a second one, which finds the port taken and says so.
        let _ = kept::store(&self.state.join(FILE), kept);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After so many deaths in a row.
fn pause(deaths: u32) -> Duration {
    Duration::from_secs(1 << deaths.min(10)).min(LONGEST_PAUSE)
}

/// Only if it is this very process.
fn signal(process: Process, signal: Signal) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| process.runs()) {
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests;
