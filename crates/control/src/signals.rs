//! Activity signals of a server. `odc_core::activity` decides which of them count as use.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Text};

/// The signals the agent observed. `last_seen_seconds_ago` is absent if a signal was not observed since the agent
/// started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signals {
    /// Random identifier of this agent process. After a restart the agent may have lost its configuration.
    pub agent_boot_id: Line,
    /// Random identifier of this start of the container.
    pub container_boot_id: Line,
    /// Seconds since the agent started. It has no older observations.
    pub up_seconds: u64,
    pub sessions: Sessions,
    pub terminal_input: LastSeen,
    pub terminal_output: LastSeen,
    /// File transfers, and input or output of commands without a terminal.
    #[serde(default)]
    pub transfer: LastSeen,
    /// Forwarded connections, by port of the server.
    #[serde(default)]
    pub forwarded: Vec<Forwarded>,
    pub busy: Busy,
    /// Absent if the server has no GPU.
    pub gpu: Option<Gpu>,
    /// Absent if Jupyter is not running.
    pub jupyter: Option<JupyterSignal>,
    /// Absent if no keep-alive is in effect.
    pub keep_alive: Option<KeepAlive>,
    pub heartbeat: LastSeen,
    /// Processes killed by the kernel's OOM killer since the container started.
    pub oom_kills: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastSeen {
    pub last_seen_seconds_ago: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sessions {
    pub open: u32,
    /// 0 while a session is open.
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

/// Processes that used CPU above the threshold, by origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Busy {
    /// Started from a session, even if the session is closed.
    pub sessions: BusyTree,
    /// The entrypoint of the image and its descendants.
    pub entrypoint: BusyTree,
    /// All other processes, such as those of `kubectl exec`.
    pub others: BusyTree,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyTree {
    pub last_seen_seconds_ago: Option<u64>,
    /// Name of the process with the highest CPU usage at that time.
    pub process: Option<Line>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    /// Highest utilization of any GPU at the last sample.
    pub percent: Option<u32>,
    /// Memory in use on all GPUs at the last sample.
    pub memory_bytes: Option<u64>,
    /// When a GPU was last busy.
    pub last_seen_seconds_ago: Option<u64>,
    /// Why no sample is available.
    pub error: Option<Text>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JupyterSignal {
    pub busy_kernels: Option<u32>,
    /// Browser connections to kernels.
    pub connections: Option<u32>,
    /// When a kernel was last busy, or a kernel with a connection last had activity.
    pub last_seen_seconds_ago: Option<u64>,
    /// Why no sample is available.
    pub error: Option<Text>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeepAlive {
    pub remaining_seconds: u64,
    pub reason: Option<Line>,
}
