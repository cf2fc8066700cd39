//! Requests to the agent.

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded::{Line, Text};

/// All requests are idempotent: they describe the desired state, not a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Request {
    /// Returns the activity signals. Answered by `signals`.
    Signals,
    /// Sets the remaining lifetime and the idle policy. The agent only displays them and warns users; the operator
    /// decides. Cancels a prepared stop: the next stop runs the preStop script again.
    SetDeadline {
        /// Absent if the lifetime is unlimited.
        remaining_seconds: Option<u64>,
        idle: Option<IdlePolicy>,
    },
    /// Shows a notice to the users of the server, or clears it if `text` is absent.
    Notify { kind: NoticeKind, text: Option<Text> },
    /// Replaces the list of keys that may log in. Sessions of removed keys are closed. Answered by `accessSet`.
    SetAccess(Access),
    /// Starts or stops the Jupyter server. Answered by `jupyter`.
    Jupyter { on: bool },
    /// Prepares a stop: runs the preStop script if it has not run for this stop, syncs the home to disk and lists it.
    /// Answered by `quiesced` within the given time.
    Quiesce { within_seconds: u64 },
    /// Syncs the home of a running server to disk and lists it, before a snapshot of its volume. Answered by `flushed`
    /// within the given time.
    Flush { within_seconds: u64 },
    /// Returns the resource usage of the agent. Answered by `stats`. Reserved for the service; the operator does not
    /// send it.
    Stats,
    /// Sets the idle state that `odc-status` shows.
    SetIdleStatus { status: Text },
    /// Treats the server as active for this time; 0 cancels it.
    KeepAlive { seconds: u64, reason: Option<Line> },
    /// Reports activity that the agent cannot observe.
    Heartbeat,
    /// Returns the status for users. Answered by `status`.
    Status,
}

/// The `type` of each request in JSON.
pub(crate) const NAMES: [&str; 12] = [
    "signals",
    "setDeadline",
    "notify",
    "setAccess",
    "jupyter",
    "quiesce",
    "flush",
    "stats",
    "setIdleStatus",
    "keepAlive",
    "heartbeat",
    "status",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IdlePolicy {
    pub limit_seconds: u64,
    pub action: IdleAction,
}

/// What happens to an idle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdleAction {
    Hibernate,
    End,
    None,
}

/// The kind of a notice. At most one notice of each kind is shown; a newer one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NoticeKind {
    /// The server will be stopped because it is idle. Any activity clears the notice.
    Idle,
    /// Any other message, such as the notice of a preemption. Activity does not clear it.
    Message,
}

/// The keys that may log in: lines as in an `authorized_keys` file, without options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    #[serde(deserialize_with = "key_lines")]
    pub keys: Vec<String>,
    /// Certificate authorities trusted for the principal `user:<uid>`.
    #[serde(default, deserialize_with = "key_lines")]
    pub user_cas: Vec<String>,
    /// Certificate authorities trusted for the principal `control:<uid>`.
    #[serde(default, deserialize_with = "key_lines")]
    pub control_cas: Vec<String>,
}

impl Access {
    pub const MAX_KEYS: usize = 2000;
    /// An RSA key of 16,384 bits takes less than 3 KiB.
    pub const MAX_KEY_BYTES: usize = 8 << 10;
}

fn key_lines<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let lines = Vec::<String>::deserialize(deserializer)?;
    if lines.len() > Access::MAX_KEYS {
        let limit = Access::MAX_KEYS;
        return Err(serde::de::Error::custom(format!("{} keys exceed the limit of {limit}", lines.len())));
    }
    if lines.iter().any(|line| line.len() > Access::MAX_KEY_BYTES) {
        let limit = Access::MAX_KEY_BYTES;
        return Err(serde::de::Error::custom(format!("key exceeds {limit} bytes")));
    }
    Ok(lines)
}
