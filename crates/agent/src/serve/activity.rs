//! What can be seen of people at work in the server. Whoever carries bytes or starts processes says so here, and
//! [`watch`] looks at the rest. Nothing is judged: which of it counts is the operator's business.
//!
//! All times are on a clock that nobody can set.

pub mod busy;
pub mod gpu;
pub mod mark;
pub mod memory;
pub mod notebook;
pub mod ports;
pub mod process;
pub mod watch;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{Busy, BusyTree, Gpu, JupyterSignal, KeepAlive, Line, Seen, Sessions, Signals};

use crate::clock;
use crate::serve::activity::busy::{Growth, Origin};
use crate::serve::activity::mark::{Mark, ago};
use crate::serve::activity::ports::Ports;
use crate::state::process::Process;

/// Sessions whose processes can still be told from others. Beyond, the oldest number is forgotten.
const MOST_LEADERS: usize = 4096;

#[derive(Debug)]
pub struct Activity {
    agent_boot: Line,
    container_boot: Line,
    started: Duration,
    open: AtomicU32,
    closed: Mark,
    input: Mark,
    output: Mark,
    transfer: Mark,
    heartbeat: Mark,
    oom_kills: AtomicU64,
    rest: Mutex<Rest>,
}

/// What changes seldom enough to be locked.
#[derive(Debug, Default)]
struct Rest {
    ports: Ports,
    leaders: BTreeSet<u32>,
    busy: HashMap<Origin, (Duration, Option<Line>)>,
    gpu: Option<gpu::Seen>,
    notebook: Option<notebook::Seen>,
    keep_alive: Option<(Duration, Option<Line>)>,
}

/// An open session. It is open while this lives.
#[derive(Debug)]
pub struct SessionMark(Arc<Activity>);

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Activity {
    pub fn new() -> Self {
        Self {
            agent_boot: Line::new(crate::random::hex::<8>()),
            container_boot: container_boot(),
            started: clock::since_boot(),
            open: AtomicU32::new(0),
            closed: Mark::default(),
            input: Mark::default(),
            output: Mark::default(),
            transfer: Mark::default(),
            heartbeat: Mark::default(),
            oom_kills: AtomicU64::new(0),
            rest: Mutex::default(),
        }
    }

    pub fn session(self: &Arc<Self>) -> SessionMark {
        self.open.fetch_add(1, Ordering::Relaxed);
        SessionMark(Arc::clone(self))
    }

    pub fn terminal_input(&self) {
        self.input.set(clock::since_boot());
    }

    pub fn terminal_output(&self) {
        self.output.set(clock::since_boot());
    }

    /// Of files, or to and from a command without a terminal.
    pub fn transferred(&self) {
        self.transfer.set(clock::since_boot());
    }

    /// Either way, to or from this port; 0 stands for all Unix sockets.
    pub fn forwarded(&self, port: u16, bytes: u64) {
        self.rest().ports.carried(port, bytes, clock::since_boot());
    }

    /// The first process of a session. Whatever comes from it is the session's.
    pub fn session_process(&self, pid: u32) {
        let mut rest = self.rest();
        rest.leaders.insert(pid);
        if rest.leaders.len() > MOST_LEADERS {
            rest.leaders.pop_first();
        }
    }

    pub fn heartbeat(&self) {
        self.heartbeat.set(clock::since_boot());
    }

    /// Until then, on our clock; `None` ends it.
    pub fn keep_alive(&self, until: Option<(Duration, Option<Line>)>) {
        self.rest().keep_alive = until;
    }

    pub fn signals(&self) -> Signals {
        self.signals_at(clock::since_boot())
    }

    /// When anything was last seen that means use, to tell whether a warning still holds.
    pub fn last_use(&self) -> Option<Duration> {
        let rest = self.rest();
        let marks = [&self.input, &self.output, &self.transfer, &self.heartbeat].map(Mark::at);
        let busy = rest.busy.values().map(|(at, _)| Some(*at));
        let gpu = rest.gpu.as_ref().and_then(|gpu| gpu.busy_at);
        let notebook = rest.notebook.as_ref().and_then(|notebook| notebook.used_at);
        marks.into_iter().chain(busy).chain([rest.ports.newest(), gpu, notebook]).flatten().max()
    }

    pub fn is_kept_alive(&self) -> bool {
        self.rest().keep_alive.as_ref().is_some_and(|(until, _)| *until > clock::since_boot())
    }

    fn signals_at(&self, now: Duration) -> Signals {
        let rest = self.rest();
        let seen = |mark: &Mark| Seen { last_seen_seconds_ago: mark.ago(now) };
        let tree = |origin| {
            let (at, process) = rest.busy.get(&origin).cloned().unzip();
            BusyTree { last_seen_seconds_ago: at.map(|at| ago(at, now)), process: process.flatten() }
        };
        let open = self.open.load(Ordering::Relaxed);
        let kept = rest.keep_alive.as_ref().and_then(|(until, reason)| {
            // Rounded up, so that nobody sees a keep-alive of no time that still holds.
            let remaining_seconds = until.saturating_sub(now).as_millis().div_ceil(1000);
            let remaining_seconds = u64::try_from(remaining_seconds).ok().filter(|left| *left > 0)?;
            Some(KeepAlive { remaining_seconds, reason: reason.clone() })
        });
        Signals {
            agent_boot: self.agent_boot.clone(),
            container_boot: self.container_boot.clone(),
            up_seconds: ago(self.started, now),
            sessions: Sessions { open, last_seen_seconds_ago: if open > 0 { Some(0) } else { self.closed.ago(now) } },
            terminal_input: seen(&self.input),
            terminal_output: seen(&self.output),
            transfer: seen(&self.transfer),
            forwarded: rest.ports.told(now),
            busy: Busy {
                sessions: tree(Origin::Session),
                entrypoint: tree(Origin::Entrypoint),
                others: tree(Origin::Other),
            },
            gpu: rest.gpu.as_ref().map(|gpu| Gpu {
                percent: gpu.percent,
                memory_bytes: gpu.memory_bytes,
                last_seen_seconds_ago: gpu.busy_at.map(|at| ago(at, now)),
                error: gpu.error.clone(),
            }),
            jupyter: rest.notebook.as_ref().map(|notebook| JupyterSignal {
                busy_kernels: notebook.busy_kernels,
                connections: notebook.connections,
                last_seen_seconds_ago: notebook.used_at.map(|at| ago(at, now)),
                error: notebook.error.clone(),
            }),
            keep_alive: kept,
            heartbeat: seen(&self.heartbeat),
            oom_kills: self.oom_kills.load(Ordering::Relaxed),
        }
    }

    fn saw_busy(&self, origin: Origin, growth: &Growth, now: Duration) {
        self.rest().busy.insert(origin, (now, growth.busiest().map(Line::new)));
    }

    fn leaders(&self) -> BTreeSet<u32> {
        self.rest().leaders.clone()
    }

    /// Of those, nothing is left.
    fn forget_leaders(&self, gone: &BTreeSet<u32>) {
        self.rest().leaders.retain(|leader| !gone.contains(leader));
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionMark {
    fn drop(&mut self) {
        self.0.closed.set(clock::since_boot());
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One for each life of the container: the node's, and when process 1 was started in it.
fn container_boot() -> Line {
    let node = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let ticks = Process::init().start_ticks.unwrap_or_default();
    Line::new(format!("{}-{ticks}", node.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_said_is_told_with_its_age() {
        let activity = Arc::new(Activity::new());
        let fresh = activity.signals();
        assert_eq!(
            fresh,
            Signals {
                agent_boot: fresh.agent_boot.clone(),
                container_boot: fresh.container_boot.clone(),
                ..Signals::default()
            }
        );

        activity.terminal_input();
        activity.forwarded(8888, 10);
        activity.heartbeat();
        let session = activity.session();
        let later = clock::since_boot() + Duration::from_secs(60);
        let signals = activity.signals_at(later);
        assert_eq!(signals.terminal_input.last_seen_seconds_ago, Some(60));
        assert_eq!(signals.terminal_output.last_seen_seconds_ago, None);
        assert_eq!(signals.forwarded[0].last_seen_seconds_ago, Some(60));
        assert_eq!(signals.sessions, Sessions { open: 1, last_seen_seconds_ago: Some(0) });
        drop(session);
        let signals = activity.signals_at(later);
        assert_eq!(signals.sessions.open, 0);
        assert!(matches!(signals.sessions.last_seen_seconds_ago, Some(59 | 60)));
        assert!(activity.last_use().is_some());
    }

    #[test]
    fn a_keep_alive_runs_out() {
        let activity = Activity::new();
        let now = clock::since_boot();
        activity.keep_alive(Some((now + Duration::from_secs(90), Some("training".into()))));
        let left = |after| activity.signals_at(now + Duration::from_secs(after)).keep_alive;
        assert_eq!(left(0), Some(KeepAlive { remaining_seconds: 90, reason: Some("training".into()) }));
        assert_eq!(left(89).unwrap().remaining_seconds, 1);
        assert_eq!(left(90), None);
        activity.keep_alive(None);
        assert_eq!(left(0), None);
    }

    #[test]
    fn every_agent_is_another() {
        assert_ne!(Activity::new().agent_boot, Activity::new().agent_boot);
        assert_eq!(Activity::new().container_boot, Activity::new().container_boot);
    }

    #[test]
    fn sessions_without_end_take_no_memory_without_end() {
        let activity = Activity::new();
        (1..10_000).for_each(|pid| activity.session_process(pid));
        assert_eq!(activity.leaders().len(), MOST_LEADERS);
    }
}
