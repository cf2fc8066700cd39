//! Activity signals of the server. Components record what they see, and [`pollers`] sample the rest. The agent only
//! reports; which signals count as activity is decided by the operator.
//!
//! Times are relative to the boot of the node.

pub mod forwarded_ports;
pub mod gpu;
pub mod jupyter;
pub mod last_seen;
pub mod oom;
pub mod pollers;
pub mod proc_stat;
pub mod process_cpu;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{self as control, Busy, BusyTree, Gpu, JupyterSignal, KeepAlive, Line, Sessions, Signals};

use crate::boot_time;
use crate::process_id::ProcessId;
use crate::serve::activity::forwarded_ports::Ports;
use crate::serve::activity::gpu::GpuActivity;
use crate::serve::activity::jupyter::JupyterActivity;
use crate::serve::activity::last_seen::{LastSeen, seconds_since};
use crate::serve::activity::process_cpu::{CpuUsage, Origin};

/// Session leaders that are remembered. Beyond, the lowest PID is dropped.
const MAX_SESSION_LEADERS: usize = 4096;

#[derive(Debug)]
pub struct Activity {
    agent_boot_id: Line,
    container_boot_id: Line,
    started_at: Duration,
    open_sessions: AtomicU32,
    session_closed: LastSeen,
    terminal_input: LastSeen,
    terminal_output: LastSeen,
    transfer: LastSeen,
    heartbeat: LastSeen,
    oom_kills: AtomicU64,
    inner: Mutex<Inner>,
}

/// Values that change rarely enough for a lock.
#[derive(Debug, Default)]
struct Inner {
    ports: Ports,
    session_leaders: BTreeSet<u32>,
    /// When processes of an origin last used the CPU, and the busiest one.
    cpu: HashMap<Origin, (Duration, Option<Line>)>,
    gpu: Option<GpuActivity>,
    jupyter: Option<JupyterActivity>,
    /// End and reason.
    keep_alive: Option<(Duration, Option<Line>)>,
}

/// Counts a session as open until it is dropped.
#[derive(Debug)]
pub struct SessionGuard(Arc<Activity>);

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

impl Activity {
    pub fn new() -> Self {
        Self {
            agent_boot_id: Line::new(crate::random::hex::<8>()),
            container_boot_id: container_boot_id(),
            started_at: boot_time::since_boot(),
            open_sessions: AtomicU32::new(0),
            session_closed: LastSeen::default(),
            terminal_input: LastSeen::default(),
            terminal_output: LastSeen::default(),
            transfer: LastSeen::default(),
            heartbeat: LastSeen::default(),
            oom_kills: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    pub fn open_session(self: &Arc<Self>) -> SessionGuard {
        self.open_sessions.fetch_add(1, Ordering::Relaxed);
        SessionGuard(Arc::clone(self))
    }

    pub fn record_terminal_input(&self) {
        self.terminal_input.set(boot_time::since_boot());
    }

    pub fn record_terminal_output(&self) {
        self.terminal_output.set(boot_time::since_boot());
    }

    /// Records data of a file transfer, or of a command without a terminal.
    pub fn record_transfer(&self) {
        self.transfer.set(boot_time::since_boot());
    }

    /// Records data to or from a port; 0 stands for all Unix sockets.
    pub fn record_forwarded(&self, port: u16, bytes: u64) {
        self.lock().ports.record(port, bytes, boot_time::since_boot());
    }

    /// Registers the leader of a session; its descendants are attributed to sessions.
    pub fn add_session_leader(&self, pid: u32) {
        let mut inner = self.lock();
        inner.session_leaders.insert(pid);
        if inner.session_leaders.len() > MAX_SESSION_LEADERS {
            inner.session_leaders.pop_first();
        }
    }

    pub fn record_heartbeat(&self) {
        self.heartbeat.set(boot_time::since_boot());
    }

    /// Sets the end of the keep-alive and its reason, or cancels it.
    pub fn set_keep_alive(&self, until: Option<(Duration, Option<Line>)>) {
        self.lock().keep_alive = until;
    }

    pub fn signals(&self) -> Signals {
        self.signals_at(boot_time::since_boot())
    }

    /// Returns when the server was last active, to decide whether an idle warning still applies.
    pub fn last_active(&self) -> Option<Duration> {
        let inner = self.lock();
        let recorded =
            [&self.terminal_input, &self.terminal_output, &self.transfer, &self.heartbeat].map(LastSeen::get);
        let cpu = inner.cpu.values().map(|(at, _)| Some(*at));
        let gpu = inner.gpu.as_ref().and_then(|gpu| gpu.busy_at);
        let jupyter = inner.jupyter.as_ref().and_then(|jupyter| jupyter.active_at);
        recorded.into_iter().chain(cpu).chain([inner.ports.last_active(), gpu, jupyter]).flatten().max()
    }

    pub fn is_kept_alive(&self) -> bool {
        self.lock().keep_alive.as_ref().is_some_and(|(until, _)| *until > boot_time::since_boot())
    }

    fn signals_at(&self, now: Duration) -> Signals {
        let inner = self.lock();
        let seen = |last_seen: &LastSeen| control::LastSeen { last_seen_seconds_ago: last_seen.seconds_ago(now) };
        let tree = |origin| {
            let (at, process) = inner.cpu.get(&origin).cloned().unzip();
            BusyTree { last_seen_seconds_ago: at.map(|at| seconds_since(at, now)), process: process.flatten() }
        };
        let open = self.open_sessions.load(Ordering::Relaxed);
        let keep_alive = inner.keep_alive.as_ref().and_then(|(until, reason)| {
            // Rounded up, so that an active keep-alive never shows 0 seconds.
            let remaining_seconds = until.saturating_sub(now).as_millis().div_ceil(1000);
            let remaining_seconds = u64::try_from(remaining_seconds).ok().filter(|remaining| *remaining > 0)?;
            Some(KeepAlive { remaining_seconds, reason: reason.clone() })
        });
        Signals {
            agent_boot_id: self.agent_boot_id.clone(),
            container_boot_id: self.container_boot_id.clone(),
            up_seconds: seconds_since(self.started_at, now),
            sessions: Sessions {
                open,
                last_seen_seconds_ago: if open > 0 { Some(0) } else { self.session_closed.seconds_ago(now) },
            },
            terminal_input: seen(&self.terminal_input),
            terminal_output: seen(&self.terminal_output),
            transfer: seen(&self.transfer),
            forwarded: inner.ports.report(now),
            busy: Busy {
                sessions: tree(Origin::Session),
                entrypoint: tree(Origin::Entrypoint),
                others: tree(Origin::Other),
            },
            gpu: inner.gpu.as_ref().map(|gpu| Gpu {
                percent: gpu.percent,
                memory_bytes: gpu.memory_bytes,
                last_seen_seconds_ago: gpu.busy_at.map(|at| seconds_since(at, now)),
                error: gpu.error.clone(),
            }),
            jupyter: inner.jupyter.as_ref().map(|jupyter| JupyterSignal {
                busy_kernels: jupyter.busy_kernels,
                connections: jupyter.connections,
                last_seen_seconds_ago: jupyter.active_at.map(|at| seconds_since(at, now)),
                error: jupyter.error.clone(),
            }),
            keep_alive,
            heartbeat: seen(&self.heartbeat),
            oom_kills: self.oom_kills.load(Ordering::Relaxed),
        }
    }

    fn record_cpu(&self, origin: Origin, usage: &CpuUsage, now: Duration) {
        self.lock().cpu.insert(origin, (now, usage.busiest().map(Line::new)));
    }

    fn session_leaders(&self) -> BTreeSet<u32> {
        self.lock().session_leaders.clone()
    }

    fn remove_session_leaders(&self, exited: &BTreeSet<u32>) {
        self.lock().session_leaders.retain(|leader| !exited.contains(leader));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.0.session_closed.set(boot_time::since_boot());
        self.0.open_sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns an ID of this run of the container: the boot ID of the node and the start time of PID 1.
fn container_boot_id() -> Line {
    let node = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let ticks = ProcessId::init().start_ticks.unwrap_or_default();
    Line::new(format!("{}-{ticks}", node.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_signals_are_reported_with_their_age() {
        let activity = Arc::new(Activity::new());
        let initial = activity.signals_at(activity.started_at);
        assert_eq!(
            initial,
            Signals {
                agent_boot_id: initial.agent_boot_id.clone(),
                container_boot_id: initial.container_boot_id.clone(),
                ..Signals::default()
            }
        );

        activity.record_terminal_input();
        activity.record_forwarded(8888, 10);
        activity.record_heartbeat();
        let session = activity.open_session();
        // The events may have taken some seconds on a busy machine.
        let is_age = |seconds: Option<u64>| seconds.is_some_and(|seconds| (3600..3660).contains(&seconds));
        let later = boot_time::since_boot() + Duration::from_secs(3600);
        let signals = activity.signals_at(later);
        assert!(is_age(signals.terminal_input.last_seen_seconds_ago));
        assert_eq!(signals.terminal_output.last_seen_seconds_ago, None);
        assert!(is_age(signals.forwarded[0].last_seen_seconds_ago));
        assert_eq!(signals.sessions, Sessions { open: 1, last_seen_seconds_ago: Some(0) });
        drop(session);
        let signals = activity.signals_at(boot_time::since_boot() + Duration::from_secs(3600));
        assert_eq!(signals.sessions.open, 0);
        assert!(is_age(signals.sessions.last_seen_seconds_ago));
        assert!(activity.last_active().is_some());
    }

    #[test]
    fn keep_alive_expires() {
        let activity = Activity::new();
        let now = boot_time::since_boot();
        activity.set_keep_alive(Some((now + Duration::from_secs(90), Some("training".into()))));
        let keep_alive = |after| activity.signals_at(now + Duration::from_secs(after)).keep_alive;
        assert_eq!(keep_alive(0), Some(KeepAlive { remaining_seconds: 90, reason: Some("training".into()) }));
        assert_eq!(keep_alive(89).unwrap().remaining_seconds, 1);
        assert_eq!(keep_alive(90), None);
        activity.set_keep_alive(None);
        assert_eq!(keep_alive(0), None);
    }

    #[test]
    fn agent_boot_differs_and_container_boot_does_not() {
        assert_ne!(Activity::new().agent_boot_id, Activity::new().agent_boot_id);
        assert_eq!(Activity::new().container_boot_id, Activity::new().container_boot_id);
    }

    #[test]
    fn number_of_session_leaders_is_limited() {
        let activity = Activity::new();
        (1..10_000).for_each(|pid| activity.add_session_leader(pid));
        assert_eq!(activity.session_leaders().len(), MAX_SESSION_LEADERS);
    }
}
