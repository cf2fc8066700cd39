//! State shared by all connections and background tasks of `serve`.

use std::path::PathBuf;
use std::sync::Arc;

use odc_control::{Line, Status};

use crate::boot_time;
use crate::log::Logger;
use crate::serve::activity::Activity;
use crate::serve::auth::access_list::Access;
use crate::serve::blocking::BlockingPool;
use crate::serve::expiry_and_idle::Lifecycle;
use crate::serve::notify::broadcast::TerminalBroadcast;

pub struct Context {
    pub activity: Arc<Activity>,
    pub access: Access,
    pub broadcast: TerminalBroadcast,
    pub identity: Identity,
    pub state_dir: PathBuf,
    pub logger: Arc<Logger>,
    pub lifecycle: Lifecycle,
    pub blocking: BlockingPool,
}

/// Names of the server, from the environment of the container. Any of them may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub server: String,
    pub owner: String,
    pub flavor: String,
    pub uid: String,
    /// Shown before authentication, as `Banner` in `sshd_config(5)`.
    pub banner: String,
}

impl Context {
    /// Returns the status that `odc-status` shows.
    pub fn status(&self) -> Status {
        let now = boot_time::since_boot();
        let lifecycle = &self.lifecycle;
        let (idle_status, idle_status_at) = lifecycle.idle_status().unzip();
        Status {
            server: Line::new(&self.identity.server),
            owner: Line::new(&self.identity.owner),
            flavor: Line::new(&self.identity.flavor),
            remaining_seconds: lifecycle.deadline.remaining(now).map(|remaining| remaining.as_secs()),
            idle: lifecycle.deadline.idle_policy(),
            idle_status,
            idle_status_seconds_ago: idle_status_at.map(|at| now.saturating_sub(at).as_secs()),
            notices: lifecycle.notices.lines(),
            jupyter: lifecycle.jupyter.status(),
            signals: self.activity.signals(),
        }
    }
}

impl Identity {
    pub fn from_env(uid: &str) -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        Self {
            server: variable("ODC_SERVER"),
            owner: variable("ODC_OWNER"),
            flavor: variable("ODC_FLAVOR"),
            uid: uid.to_owned(),
            banner: variable("ODC_BANNER"),
        }
    }
}
