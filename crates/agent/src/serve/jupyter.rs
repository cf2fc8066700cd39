//! The server's notebook server: started when somebody wants it, started again when it dies, and left alone when only
//! `serve` does.
//!
//! It runs as a process group of its own, with its number and start in a file, so that a new `serve` finds it again and
//! nobody else's process is ever taken for it.

pub mod http;
pub mod launch;

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
    /// Its start is under way.
    starting: bool,
    /// The image has none.
    absent: bool,
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
    /// The token it is to have; absent while nobody wants it.
    wanted: Option<String>,
    flavor: Option<Flavor>,
    running: Option<Running>,
}

/// One that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    process: Process,
    /// What it was given; it takes no other.
    token: String,
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
        if inner.kept.wanted.is_some() != on {
            inner.kept.wanted = on.then(random::hex::<24>);
            (inner.answers, inner.absent, inner.error) = (false, false, None);
            (inner.deaths, inner.not_before) = (0, None);
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
        let running = inner.kept.running.is_some();
        let state = match &inner.kept.wanted {
            None => JupyterState::Off,
            Some(_) if inner.absent => JupyterState::Absent,
            Some(_) if running && inner.answers => JupyterState::Running,
            Some(_) if running || inner.starting || inner.error.is_none() => JupyterState::Starting,
            Some(_) => JupyterState::Restarting,
        };
        let there = !matches!(state, JupyterState::Off | JupyterState::Absent);
        Jupyter {
            state,
            port: there.then_some(self.port),
            path: inner.kept.flavor.filter(|_| there).map(|flavor| Line::new(flavor.url_path())),
            token: inner.kept.wanted.as_ref().filter(|_| there).map(Line::new),
            error: inner.error.as_ref().map(Text::new),
        }
    }

    /// Its process, if it has one.
    pub fn pid(&self) -> Option<u32> {
        self.inner().kept.running.as_ref().map(|running| running.process.pid)
    }

    /// Keeps it as it is wanted, for ever.
    pub async fn run(&self) {
        loop {
            let Kept { wanted, running, .. } = self.inner().kept.clone();
            let is_wanted = wanted.is_some();
            match (wanted, running) {
                (Some(token), Some(running)) if running.token == token => {
                    if running.process.runs() {
                        self.check(&token).await;
                    } else {
                        self.ended();
                    }
                }
                (Some(token), None) => self.start(token).await,
                // Not wanted any more, or with another token since.
                (_, Some(running)) => self.stop(running.process).await,
                (None, None) => self.changed.notified().await,
            }
            if is_wanted {
                let _ = timeout(GLANCE, self.changed.notified()).await;
            }
        }
    }

    /// Asks about its kernels, for ever. Nothing, while none runs.
    pub async fn watch(&self, tell: impl Fn(Option<Result<Vec<Kernel>, String>>)) {
        loop {
            let token =
                if self.told().state == JupyterState::Running { self.inner().kept.wanted.clone() } else { None };
            // A new one is asked soon.
            let rest = if token.is_some() { ASK } else { Duration::from_secs(2) };
            tell(match token {
                Some(token) => Some(self.kernels(&token).await),
                None => None,
            });
            sleep(rest).await;
        }
    }

    async fn kernels(&self, token: &str) -> Result<Vec<Kernel>, String> {
        notebook::parse(&http::get(self.port, "/api/kernels?no_track_activity=1", token).await?)
    }

    async fn check(&self, token: &str) {
        // Another server on the port does not know our token, so it is not taken for ours.
        let answers = if self.inner().answers { true } else { self.kernels(token).await.is_ok() };
        let mut inner = self.inner();
        // Meanwhile another one may be wanted.
        inner.answers = answers && inner.kept.wanted.as_deref() == Some(token);
        if inner.started.is_some_and(|started| started.elapsed() > WELL) {
            inner.deaths = 0;
            inner.error = None;
        }
        drop(inner);
        launch::shorten(&self.state.join(LOG), LARGEST_LOG);
    }

    /// Returns when it is known what became of it, however long that takes: what nobody waited for would run unknown to
    /// anybody. Whether it is still wanted then is for the next look.
    async fn start(&self, token: String) {
        {
            let mut inner = self.inner();
            if inner.not_before.is_some_and(|not_before| Instant::now() < not_before) {
                return;
            }
            (inner.answers, inner.starting) = (false, true);
        }
        let started = self.started(&token).await;
        let mut inner = self.inner();
        (inner.starting, inner.absent) = (false, false);
        match started {
            Ok(Some((flavor, Ok(process)))) => {
                inner.kept.flavor = Some(flavor);
                inner.kept.running = Some(Running { process, token });
                inner.started = Some(Instant::now());
            }
            Ok(Some((flavor, Err(error)))) => {
                inner.kept.flavor = Some(flavor);
                inner.error = Some(error);
                Self::rest(&mut inner);
            }
            Ok(None) => {
                inner.kept.flavor = None;
                (inner.absent, inner.error) = (true, Some(launch::ABSENT.to_owned()));
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

    /// Nothing, if there is none to start.
    async fn started(&self, token: &str) -> io::Result<Option<(Flavor, Result<Process, String>)>> {
        // It may lie in the home, and begins there.
        let (launch, runtime, token) = (self.launch.clone(), Handle::current(), token.to_owned());
        let mut start = self.apart.begin(move || {
            let _here = runtime.enter();
            let (flavor, program) = launch.find()?;
            let process = launch.start(flavor, &program, &token);
            Some((flavor, process.map_err(|error| format!("{} cannot be started: {error}", program.display()))))
        })?;
        if let Some(started) = start.soon().await {
            return started;
        }
        self.inner().error = Some("Jupyter does not start yet: its file system does not answer".to_owned());
        let started = start.at_last().await;
        self.inner().error = None;
        started
    }

    fn ended(&self) {
        let mut inner = self.inner();
        inner.kept.running = None;
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
        inner.kept.running = None;
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
