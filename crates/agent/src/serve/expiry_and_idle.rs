//! All of `serve` that concerns the life cycle of the server: expiry and idle warnings, keep-alive, OOM notices, Jupyter,
//! and the preparation of a stop. Requests of the operator and of user commands arrive through
//! [`crate::serve::control`]; [`crate::serve::background`] drives the timers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use odc_control::{IdlePolicy, Line, Text, duration};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::boot_time;
use crate::log::Logger;
use crate::serve::activity::{Activity, oom};
use crate::serve::jupyter::supervisor::Supervisor;
use crate::serve::notify::current_notices::{Notice, NoticeKind, Notices};
use crate::serve::notify::deadline::Deadline;
use crate::serve::notify::expiry_warning;
use crate::serve::persisted_state;
use crate::serve::quiesce::Quiesce;

pub const MAX_KEEP_ALIVE: Duration = Duration::from_secs(24 * 60 * 60);

const IDLE_WARNING_FILE: &str = "WARN_IDLE.txt";
const OOM_NOTICE_FILE: &str = "OOM_DETECTED.txt";
const KEEP_ALIVE_FILE: &str = "keep-alive.json";
const OOM_COUNT_FILE: &str = "oom.json";

/// tokio's timers do not advance while the node is suspended, so they are limited.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// Poll interval while an idle warning is shown; activity removes it promptly.
const IDLE_WARNING_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct LifecycleConfig {
    pub state_dir: PathBuf,
    pub home: PathBuf,
    pub pre_stop: Option<PathBuf>,
    /// Name of the server in suggested commands.
    pub server: String,
    pub jupyter_port: u16,
}

#[derive(Debug)]
pub struct Lifecycle {
    pub notices: Notices,
    pub deadline: Deadline,
    pub jupyter: Supervisor,
    pub quiesce: Arc<Quiesce>,
    server: String,
    state_dir: PathBuf,
    idle: Mutex<IdleState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct IdleState {
    /// When the current warning was given.
    warned_at: Option<Duration>,
    /// The idle status set by the operator, and when it arrived.
    status: Option<(Text, Duration)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PersistedKeepAlive {
    /// Milliseconds since the boot of the node.
    until_milliseconds: u64,
    reason: Option<Line>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("keep-alive is limited to {}", duration::format(MAX_KEEP_ALIVE.as_secs()))]
pub struct KeepAliveTooLong;

impl Lifecycle {
    pub fn new(config: LifecycleConfig, logger: &Arc<Logger>) -> Self {
        let LifecycleConfig { state_dir, home, pre_stop, server, jupyter_port } = config;
        let stale_files: Vec<&str> = expiry_warning::FILES.into_iter().chain([IDLE_WARNING_FILE]).collect();
        let logger = Arc::clone(logger);
        let on_error = move |error| logger.log(error);
        Self {
            notices: Notices::new(&state_dir, &home, &stale_files, on_error),
            deadline: Deadline::load(&state_dir),
            jupyter: Supervisor::load(&state_dir, &home, jupyter_port),
            quiesce: Arc::new(Quiesce { state_dir: state_dir.clone(), home, pre_stop }),
            server: if server.is_empty() { "NAME".to_owned() } else { server },
            state_dir,
            idle: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub fn set_deadline(&self, remaining: Option<Duration>, idle: Option<IdlePolicy>) {
        self.deadline.set(remaining, idle, boot_time::since_boot());
        self.changed.notify_one();
    }

    /// Sets or clears a notice. Returns the text to broadcast to terminals, if it is new.
    pub fn notify(&self, requested: odc_control::NoticeKind, text: Option<&Text>) -> Option<String> {
        let (kind, file) = match requested {
            odc_control::NoticeKind::Idle => (NoticeKind::Idle, Some(IDLE_WARNING_FILE)),
            odc_control::NoticeKind::Message => (NoticeKind::Message, None),
        };
        if kind == NoticeKind::Idle {
            self.idle().warned_at = text.map(|_| boot_time::since_boot());
        }
        let notice = text.map(|text| Notice {
            line: Some(text.to_string()),
            file: file.map(|name| (name, format!("{}\n", text.trim_end()))),
        });
        let changed = self.notices.set(kind, notice);
        self.changed.notify_one();
        text.filter(|_| changed).map(ToString::to_string)
    }

    pub fn set_idle_status(&self, status: Text) {
        self.idle().status = Some((status, boot_time::since_boot()));
    }

    /// Returns the idle status set by the operator, and when it arrived.
    pub fn idle_status(&self) -> Option<(Text, Duration)> {
        self.idle().status.clone()
    }

    /// Starts a keep-alive, or cancels it if `seconds` is 0. A restarted `serve` continues it.
    pub fn keep_alive(&self, activity: &Activity, seconds: u64, reason: Option<Line>) -> Result<(), KeepAliveTooLong> {
        let time = Duration::from_secs(seconds);
        if time > MAX_KEEP_ALIVE {
            return Err(KeepAliveTooLong);
        }
        let until = boot_time::since_boot() + time;
        let until_milliseconds = u64::try_from(until.as_millis()).unwrap_or_default();
        let persisted = PersistedKeepAlive { until_milliseconds, reason: reason.clone() };
        // On failure the keep-alive is lost if `serve` restarts.
        let _ = persisted_state::store(&self.state_dir.join(KEEP_ALIVE_FILE), &persisted);
        activity.set_keep_alive((!time.is_zero()).then_some((until, reason)));
        self.changed.notify_one();
        Ok(())
    }

    /// Continues the keep-alive of a previous `serve`.
    pub fn restore_keep_alive(&self, activity: &Activity) {
        let persisted = persisted_state::load(&self.state_dir.join(KEEP_ALIVE_FILE));
        if let Some(PersistedKeepAlive { until_milliseconds, reason }) = persisted {
            activity.set_keep_alive(Some((Duration::from_millis(until_milliseconds), reason)));
        }
    }

    /// Gives a warning that is due, updates the notices, and clears those that no longer apply.
    pub fn update_warnings(&self, activity: &Activity, broadcast: impl Fn(&str)) {
        let now = boot_time::since_boot();
        let (warning, is_due) = self.deadline.poll_warning(now);
        let remaining = self.deadline.remaining(now).unwrap_or_default();
        let message = expiry_warning::message(&self.server, remaining);
        if is_due {
            broadcast(&message);
        }
        let notice = warning.map(|warning| Notice {
            line: Some(expiry_warning::prompt_line(&self.server, remaining)),
            file: Some((warning.file(), message)),
        });
        self.notices.set(NoticeKind::Expiry, notice);
        let warned_at = self.idle().warned_at;
        let is_active =
            warned_at.is_some_and(|warned_at| activity.is_kept_alive() || activity.last_active() > Some(warned_at));
        if is_active {
            self.idle().warned_at = None;
            self.notices.set(NoticeKind::Idle, None);
        }
    }

    /// Waits until the warnings may have to be updated.
    pub async fn wait_for_change(&self) {
        let next_change = expiry_warning::next_change_in(self.deadline.remaining(boot_time::since_boot()));
        let max_wait = if self.notices.contains(NoticeKind::Idle) { IDLE_WARNING_POLL_INTERVAL } else { MAX_WAIT };
        let wait = next_change.map_or(max_wait, |next_change| next_change.min(max_wait));
        let _ = timeout(wait, self.changed.notified()).await;
    }

    /// Leaves a notice about OOM kills and returns its text.
    pub fn report_oom(&self, kills: u64) -> String {
        let text = oom::notice(kills);
        let notice = Notice { line: None, file: Some((OOM_NOTICE_FILE, format!("{text}\n"))) };
        self.notices.set(NoticeKind::Oom, Some(notice));
        let _ = persisted_state::store(&self.state_dir.join(OOM_COUNT_FILE), &kills);
        text
    }

    /// Returns the number of OOM kills that were already reported. On first use that is `current`, which is stored at
    /// once so that a restarted `serve` recognizes later kills.
    pub fn reported_oom_kills(&self, current: impl FnOnce() -> u64) -> u64 {
        let file = self.state_dir.join(OOM_COUNT_FILE);
        persisted_state::load(&file).unwrap_or_else(|| {
            let current = current();
            let _ = persisted_state::store(&file, &current);
            current
        })
    }

    fn idle(&self) -> MutexGuard<'_, IdleState> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
