//! The status of a server, as shown to users inside it.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Text};
use crate::reply::Jupyter;
use crate::request::IdlePolicy;
use crate::signals::Signals;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub server: Line,
    pub owner: Line,
    pub flavor: Line,
    /// Absent if the lifetime is unlimited, or not known yet.
    pub remaining_seconds: Option<u64>,
    pub idle: Option<IdlePolicy>,
    /// The idle state decided by the operator, and how long ago it was set.
    pub idle_status: Option<Text>,
    pub idle_status_seconds_ago: Option<u64>,
    /// Current notices: warnings and messages.
    pub notices: Vec<Text>,
    pub jupyter: Jupyter,
    pub signals: Signals,
}
