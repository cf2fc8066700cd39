//! What can be seen of somebody working. Nothing here says what counts; see `odc_core::activity`.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Text};

/// All that the agent saw, with how many seconds ago it last did; absent if never since the agent started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signals {
    /// Random, another one after each start of the agent: it may have forgotten what it was told.
    pub agent_boot: Line,
    /// Another one after each start of the container.
    pub container_boot: Line,
    /// Since the agent started. It knows of nothing that is older.
    pub up_seconds: u64,
    pub sessions: Sessions,
    pub terminal_input: Seen,
    pub terminal_output: Seen,
    /// Files copied, and bytes to or from a command without a terminal.
    #[serde(default)]
    pub transfer: Seen,
    /// Connections carried to a port of the server or from one.
    #[serde(default)]
    pub forwarded: Vec<Forwarded>,
    pub busy: Busy,
    /// Absent if there is no GPU to ask about.
    pub gpu: Option<Gpu>,
    /// Absent if none runs.
    pub jupyter: Option<JupyterSignal>,
    /// Absent if nobody asked for it, or its time is over.
    pub keep_alive: Option<KeepAlive>,
    pub heartbeat: Seen,
    /// Processes the kernel killed for want of memory since the container started.
    pub oom_kills: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    pub last_seen_seconds_ago: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    pub open: u32,
    /// When the last one was open; 0 while one is.
    pub last_seen_seconds_ago: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forwarded {
    /// 0 for Unix sockets.
    pub port: u16,
    pub bytes: u64,
    pub last_seen_seconds_ago: Option<u64>,
}

/// Processes that used more than a little CPU, by where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Busy {
    /// Started from a session, also if it is long closed.
    pub sessions: BusyTree,
    /// The image's own program and what it started.
    pub entrypoint: BusyTree,
    /// All the rest, such as what `kubectl exec` brought in.
    pub others: BusyTree,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyTree {
    pub last_seen_seconds_ago: Option<u64>,
    /// The busiest one of that time.
    pub process: Option<Line>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Of the busiest one, at the last look.
    pub percent: Option<u32>,
    /// Of all together, at the last look.
    pub memory_bytes: Option<u64>,
    /// When one was last busy.
    pub last_seen_seconds_ago: Option<u64>,
    /// Why nothing is known.
    pub error: Option<Text>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JupyterSignal {
    pub busy_kernels: Option<u32>,
    /// Browsers that look at a kernel.
    pub connections: Option<u32>,
    /// When a kernel was last busy, or one that somebody looks at did anything.
    pub last_seen_seconds_ago: Option<u64>,
    /// Why nothing is known.
    pub error: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeepAlive {
    pub remaining_seconds: u64,
    pub reason: Option<Line>,
}
