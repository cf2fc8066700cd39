//! What an agent can be asked.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded::{Line, Text};

/// Each is safe to repeat: it says how things should be, not what to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// What was last seen of anybody working. Answered by `signals`.
    Signals,
    /// How long the server has, and what happens if nobody uses it. Both are only shown to people and warned of; the
    /// operator decides. It goes on until then: a stop that was prepared does not take place, and the next one runs the
    /// preStop script again.
    SetDeadline {
        /// Absent if it has no end.
        remaining_seconds: Option<u64>,
        idle: Option<IdleTerms>,
    },
    /// Something people in the server should read, or, without a text, that it no longer holds.
    Notify { about: About, text: Option<Text> },
    /// Who may log in from now on. Whoever is not in it any more is cut off. Answered by `accessSet`.
    SetAccess(Access),
    /// Run a notebook server, or none. Answered by `jupyter`.
    Jupyter { on: bool },
    /// Make the home fit to be put away: the preStop script if it has not run for this stop, everything written to disk, a list of what
    /// is there. Answered by `quiesced`, within the time.
    Quiesce { within_seconds: u64 },
    /// What the agent itself costs. Answered by `stats`.
    Stats,
    /// What was decided from the signals, in words, for `odc-status`.
    TellIdle { verdict: Text },
    /// Count the server as used for so long, whatever else is seen; 0 takes it back.
    KeepAlive { seconds: u64, reason: Option<Line> },
    /// Somebody who cannot be seen from here is working.
    Heartbeat { source: Option<Line> },
    /// Everything a person wants to know. Answered by `status`.
    Status,
}

/// As they are written in JSON.
pub(crate) const NAMES: [&str; 11] = [
    "signals",
    "setDeadline",
    "notify",
    "setAccess",
    "jupyter",
    "quiesce",
    "stats",
    "tellIdle",
    "keepAlive",
    "heartbeat",
    "status",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdleTerms {
    pub limit_seconds: u64,
    pub action: IdleAction,
}

/// What happens to a server that nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdleAction {
    Hibernate,
    End,
    None,
}

/// What a notice is about. One of each can hold at a time; a newer one takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum About {
    /// It will be stopped because nobody uses it. Any use takes it back.
    Idle,
    /// Anything else.
    Message,
}

/// Everybody who may log in: lines as in an `authorized_keys` file, without options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    #[serde(deserialize_with = "key_lines")]
    pub keys: Vec<String>,
    /// Whose certificates for `user:<uid>` are good.
    #[serde(default, deserialize_with = "key_lines")]
    pub user_cas: Vec<String>,
    /// Whose certificates for `control:<uid>` are good.
    #[serde(default, deserialize_with = "key_lines")]
    pub control_cas: Vec<String>,
}

impl Access {
    pub const MOST_LINES: usize = 2000;
    /// An RSA key of 16,384 bits takes less than 3 KiB.
    pub const LONGEST_LINE: usize = 8 << 10;
}

fn key_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let lines = Vec::<String>::deserialize(deserializer)?;
    if lines.len() > Access::MOST_LINES {
        let most = Access::MOST_LINES;
        return Err(serde::de::Error::custom(format!("{} keys, where {most} are allowed", lines.len())));
    }
    if lines.iter().any(|line| line.len() > Access::LONGEST_LINE) {
        let longest = Access::LONGEST_LINE;
        return Err(serde::de::Error::custom(format!("a key of more than {longest} bytes")));
    }
    Ok(lines)
}
