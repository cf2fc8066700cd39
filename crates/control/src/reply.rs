//! Replies of the agent.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Text};
use crate::listing::HomeContent;
use crate::outcome::Outcome;
use crate::signals::Signals;
use crate::status::Status;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// The request was performed; there is no result.
    Done,
    /// The request was not performed.
    Refused {
        reason: Text,
    },
    /// The access list was set, except for these lines, each with a reason.
    AccessSet {
        invalid: Vec<Line>,
    },
    Signals(Box<Signals>),
    Jupyter(Jupyter),
    Quiesced(Box<Quiesced>),
    Flushed(Box<Flushed>),
    Stats(Stats),
    Status(Box<Status>),
}

impl Reply {
    pub fn refused(reason: impl AsRef<str>) -> Self {
        Self::Refused { reason: Text::new(reason) }
    }
}

/// The Jupyter server of a dev server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Jupyter {
    pub state: JupyterState,
    /// Port on the loopback address.
    pub port: Option<u16>,
    /// Path of the URL, such as `/lab`.
    pub path: Option<Line>,
    pub token: Option<Line>,
    /// Why it is not running although it was requested.
    pub error: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JupyterState {
    /// Not requested.
    Off,
    /// Started, not responding yet.
    Starting,
    Running,
    /// Exited; restarted after a delay.
    Restarting,
    /// Not installed in the image.
    Absent,
}

/// The result of quiescing a server before a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quiesced {
    /// Absent if the server has no preStop script.
    pub pre_stop: Option<Outcome>,
    /// The tail of the script's output, if it failed.
    #[serde(default)]
    pub pre_stop_log: Option<Text>,
    /// All data was synced to disk.
    pub synced: bool,
    /// Why syncing failed, if known.
    #[serde(default)]
    pub sync_error: Option<Text>,
    /// Absent if the home could not be listed in time.
    #[serde(default)]
    pub home: Option<HomeContent>,
}

/// The result of writing the data of a running server to disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flushed {
    /// All data was synced to disk.
    pub synced: bool,
    /// Why syncing failed, if known.
    #[serde(default)]
    pub sync_error: Option<Text>,
    /// Absent if the home could not be listed in time.
    #[serde(default)]
    pub home: Option<HomeContent>,
}

/// Resource usage of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    pub version: Line,
    pub up_seconds: u64,
    pub memory_bytes: u64,
    pub cpu_milliseconds: u64,
    pub open_files: u32,
    pub sessions: u32,
}
