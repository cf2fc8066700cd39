//! Looks after the server while people work in it: counts its time, warns, watches, keeps the notebook server.
//!
//! What the operator says comes in by [`crate::serve::control`], what people in the server say by
//! [`crate::serve::local`]; both end here.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{About, IdleTerms, Line, Status, Text, span};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::clock;
use crate::init::journal::Journal;
use crate::serve::activity::{Activity, memory, watch};
use crate::serve::board::{Board, Notice, Subject};
use crate::serve::deadline::{Deadline, warning};
use crate::serve::jupyter::Notebook;
use crate::serve::quiesce::Quiesce;
use crate::serve::served::Served;
use crate::serve::{kept, local};

pub const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(24 * 60 * 60);

const IDLE_FILE: &str = "WARN_IDLE.txt";
const OOM_FILE: &str = "OOM_DETECTED.txt";
const KEEP_ALIVE_FILE: &str = "keep-alive.json";
const OOM_COUNT_FILE: &str = "oom.json";

/// Timers do not count while the node sleeps, so none is trusted for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// While an idle warning holds, any use takes it back at once.
const ATTENTIVE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Settings {
    /// The state directory.
    pub state: PathBuf,
    pub home: PathBuf,
    pub pre_stop: Option<PathBuf>,
    /// Its name, for the commands that people are told.
    pub server: String,
    pub jupyter_port: u16,
}

#[derive(Debug)]
pub struct Steward {
    pub board: Board,
    pub deadline: Arc<Deadline>,
    pub notebook: Notebook,
    pub quiesce: Arc<Quiesce>,
    server: String,
    state: PathBuf,
    heard: Mutex<Heard>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    /// When the warning that holds was given.
    idle_warned: Option<Duration>,
    verdict: Option<(Text, Duration)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptAlive {
    /// Since the node was started.
    until_milliseconds: u64,
    reason: Option<Line>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a server can be kept alive for {} at most; ask again later", span::text(LONGEST_KEEP_ALIVE.as_secs()))]
pub struct TooLong;

impl Steward {
    pub fn new(settings: Settings, journal: &Arc<Journal>) -> Self {
        let Settings { state, home, pre_stop, server, jupyter_port } = settings;
        let leftovers: Vec<&str> = warning::FILES.into_iter().chain([IDLE_FILE]).collect();
        let journal = Arc::clone(journal);
        let complain = move |what| journal.say(what);
        Self {
            board: Board::new(&state, &home, &leftovers, complain),
            deadline: Arc::new(Deadline::begin(&state)),
            notebook: Notebook::begin(&state, &home, jupyter_port),
            quiesce: Arc::new(Quiesce { state: state.clone(), home, pre_stop }),
            server: if server.is_empty() { "NAME".to_owned() } else { server },
            state,
            heard: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub fn set_deadline(&self, remaining: Option<Duration>, idle: Option<IdleTerms>) {
        self.deadline.set(remaining, idle, clock::since_boot());
        self.changed.notify_one();
    }

    /// Shows a text, or takes it back. Gives what is to be told on all terminals.
    pub fn notify(&self, about: About, text: Option<&Text>) -> Option<String> {
        let (subject, file) = match about {
            About::Idle => (Subject::Idle, Some(IDLE_FILE)),
            About::Message => (Subject::Message, None),
        };
        if about == About::Idle {
            self.heard().idle_warned = text.map(|_| clock::since_boot());
        }
        let notice = text.map(|text| Notice {
            line: Some(text.to_string()),
            file: file.map(|name| (name, format!("{}\n", text.trim_end()))),
        });
        let changed = self.board.put(subject, notice);
        self.changed.notify_one();
        text.filter(|_| changed).map(ToString::to_string)
    }

    pub fn tell_idle(&self, verdict: Text) {
        self.heard().verdict = Some((verdict, clock::since_boot()));
    }

    /// A new `serve` goes on with it.
    pub fn keep_alive(&self, activity: &Activity, seconds: u64, reason: Option<Line>) -> Result<(), TooLong> {
        let time = Duration::from_secs(seconds);
        if time > LONGEST_KEEP_ALIVE {
            return Err(TooLong);
        }
        let until = clock::since_boot() + time;
        let until_milliseconds = u64::try_from(until.as_millis()).unwrap_or_default();
        let _ =
            kept::store(&self.state.join(KEEP_ALIVE_FILE), &KeptAlive { until_milliseconds, reason: reason.clone() });
        activity.keep_alive((!time.is_zero()).then_some((until, reason)));
        self.changed.notify_one();
        Ok(())
    }

    pub fn status(&self, served: &Served) -> Status {
        let now = clock::since_boot();
        let (verdict, verdict_at) = self.heard().verdict.clone().unzip();
        Status {
            server: Line::new(&served.identity.server),
            owner: Line::new(&served.identity.owner),
            flavor: Line::new(&served.identity.flavor),
            remaining_seconds: self.deadline.remaining(now).map(|remaining| remaining.as_secs()),
            idle: self.deadline.idle(),
            verdict,
            verdict_seconds_ago: verdict_at.map(|at| now.saturating_sub(at).as_secs()),
            notices: self.board.lines(),
            jupyter: self.notebook.told(),
            signals: served.activity.signals(),
        }
    }

    /// Gives a warning when it is due, shows what holds, and takes back what does not.
    fn look(&self, activity: &Activity, tell_all: impl Fn(&str)) {
        let now = clock::since_boot();
        let (holds, due) = self.deadline.look(now);
        let remaining = self.deadline.remaining(now).unwrap_or_default();
        let text = warning::text(&self.server, remaining);
        if due {
            tell_all(&text);
        }
        let notice = holds.map(|warning| Notice {
            line: Some(warning::line(&self.server, remaining)),
            file: Some((warning.file(), text)),
        });
        self.board.put(Subject::Expiry, notice);
        let warned = self.heard().idle_warned;
        let used = warned.is_some_and(|warned| activity.is_kept_alive() || activity.last_use() > Some(warned));
        if used {
            self.heard().idle_warned = None;
            self.board.put(Subject::Idle, None);
        }
    }

    async fn rest(&self) {
        let patience = warning::patience(self.deadline.remaining(clock::since_boot()));
        let longest = if self.board.has(Subject::Idle) { ATTENTIVE } else { LONGEST_WAIT };
        let _ = timeout(patience.map_or(longest, |patience| patience.min(longest)), self.changed.notified()).await;
    }

    fn ran_out_of_memory(&self, kills: u64) -> String {
        let text = memory::notice(kills);
        self.board.put(Subject::Memory, Some(Notice { line: None, file: Some((OOM_FILE, format!("{text}\n"))) }));
        let _ = kept::store(&self.state.join(OOM_COUNT_FILE), &kills);
        text
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to look after the server, each concern in a task of its own, until the runtime ends. An error means that
/// helpers in the server cannot reach us; all else goes on.
pub fn begin(served: &Arc<Served>) -> io::Result<()> {
    let steward = &served.steward;
    if let Some(KeptAlive { until_milliseconds, reason }) = kept::load(&steward.state.join(KEEP_ALIVE_FILE)) {
        served.activity.keep_alive(Some((Duration::from_millis(until_milliseconds), reason)));
    }
    let deadline = Arc::clone(&steward.deadline);
    let _ = served.expires_in.set(Box::new(move || deadline.remaining(clock::since_boot())));

    tokio::spawn(keep_time(Arc::clone(served)));
    tokio::spawn(watch::processes(Arc::clone(&served.activity), {
        let served = Arc::clone(served);
        move || served.steward.notebook.pid()
    }));
    tokio::spawn(watch::gpus(Arc::clone(&served.activity)));
    watch_memory(served);
    tokio::spawn(keep_notebook(Arc::clone(served)));
    tokio::spawn(watch_notebook(Arc::clone(served)));
    tokio::spawn(local::serve(local::listen(&steward.state)?, Arc::clone(served)));
    Ok(())
}

async fn keep_time(served: Arc<Served>) {
    loop {
        served.steward.look(&served.activity, |text| served.terminals.tell_all(text));
        served.steward.rest().await;
    }
}

/// Who finds no count began to look now. It is written down at once, so that a successor can tell if we are killed.
fn watch_memory(served: &Arc<Served>) {
    let Some(file) = memory::own_file() else { return };
    let count_file = served.steward.state.join(OOM_COUNT_FILE);
    let known = kept::load(&count_file).unwrap_or_else(|| {
        let now = memory::count(&file).unwrap_or_default();
        let _ = kept::store(&count_file, &now);
        now
    });
    let tell = {
        let served = Arc::clone(served);
        move |kills| {
            let text = served.steward.ran_out_of_memory(kills);
            served.terminals.tell_all(&text);
            served.journal.say(text);
        }
    };
    tokio::spawn(watch::memory(Arc::clone(&served.activity), file, known, tell));
}

async fn keep_notebook(served: Arc<Served>) {
    served.steward.notebook.run().await;
}

async fn watch_notebook(served: Arc<Served>) {
    served.steward.notebook.watch(|kernels| served.activity.saw_notebook(kernels)).await;
}

#[cfg(test)]
mod tests;
