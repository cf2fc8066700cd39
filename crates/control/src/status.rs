//! Everything a person in the server wants to know about it.

use serde::{Deserialize, Serialize};

use crate::bounded::{Line, Text};
use crate::reply::Jupyter;
use crate::request::IdleTerms;
use crate::signals::Signals;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub server: Line,
    pub owner: Line,
    pub flavor: Line,
    /// Absent if it has no end, or nobody has told it yet.
    pub remaining_seconds: Option<u64>,
    pub idle: Option<IdleTerms>,
    /// What was last decided from the signals, and how long ago.
    pub verdict: Option<Text>,
    pub verdict_seconds_ago: Option<u64>,
    /// What people should read now: warnings and messages.
    pub notices: Vec<Text>,
    pub jupyter: Jupyter,
    pub signals: Signals,
}
