//! What an agent answers.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Listing, Text};
use crate::outcome::Outcome;
use crate::signals::Signals;
use crate::status::Status;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// It was done, and there is nothing to tell.
    Done,
    /// It was not done, and this is why.
    Refused {
        reason: Text,
    },
    /// It was set, but for these lines, each with its reason.
    AccessSet {
        unusable: Vec<Line>,
    },
    Signals(Box<Signals>),
    Jupyter(Jupyter),
    Quiesced(Box<Quiesced>),
    Stats(Stats),
    Status(Box<Status>),
}

impl Reply {
    pub fn refused(reason: impl AsRef<str>) -> Self {
        Self::Refused { reason: Text::new(reason) }
    }
}

/// The server's notebook server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Jupyter {
    pub state: JupyterState,
    /// On the server's own loopback address.
    pub port: Option<u16>,
    /// What follows host and port in a URL, such as `/lab`.
    pub path: Option<Line>,
    pub token: Option<Line>,
    /// Why it is not running, if somebody wanted it.
    pub error: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JupyterState {
    /// Nobody wanted it.
    Off,
    /// It was started and does not answer yet.
    Starting,
    Running,
    /// It died, and is started again after a pause.
    Restarting,
    /// The image has none.
    Absent,
}

/// How the server was made fit to be put away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quiesced {
    /// Absent if the server has no preStop script.
    pub pre_stop: Option<Outcome>,
    /// The end of what it printed, if it failed.
    #[serde(default)]
    pub pre_stop_log: Option<Text>,
    /// Everything is on disk.
    pub synced: bool,
    /// Why not, as far as that is known.
    #[serde(default)]
    pub not_synced: Option<Text>,
    /// What the home holds, one line for each entry. Absent if it could not be read at all.
    pub listing: Option<Listing>,
    /// Time or room ended before the listing did.
    pub listing_cut: bool,
}

/// What the agent costs the server.
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
