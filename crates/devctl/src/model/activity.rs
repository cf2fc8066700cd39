//! The activity of a server as reported by its agent (`odc-status -o json`).
//!
//! The agent may have another version than devctl, so unknown or malformed fields are ignored.

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// The most recent sign of use.
    pub last_signal: Option<Signal>,
    /// The last idle check of the operator.
    pub idle_status: Option<String>,
    /// The time until the idle action if there is no more activity; null if it never runs.
    pub idle_stop_in_seconds: Option<u64>,
    pub idle_action: Option<String>,
    pub open_sessions: u64,
    pub notices: Vec<String>,
    pub jupyter: Option<Jupyter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Signal {
    pub kind: String,
    pub seconds_ago: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Jupyter {
    pub state: String,
    pub port: Option<u16>,
    pub path: Option<String>,
    pub token: Option<String>,
    pub error: Option<String>,
}

/// The JSON pointer and name of each signal.
const SIGNALS: &[(&str, &str)] = &[
    ("/terminalInput", "terminal input"),
    ("/terminalOutput", "terminal output"),
    ("/transfer", "file transfers and commands"),
    ("/busy/sessions", "session processes"),
    ("/busy/entrypoint", "image entrypoint"),
    ("/busy/others", "other processes"),
    ("/gpu", "GPU"),
    ("/jupyter", "Jupyter"),
    ("/heartbeat", "heartbeat"),
];

impl Activity {
    pub fn from_status(status: &Value) -> Self {
        let signals = &status["signals"];
        let last_signal = last_signal(signals);
        let action = status.pointer("/idle/action").and_then(Value::as_str).map(str::to_owned);
        let limit = status.pointer("/idle/limitSeconds").and_then(Value::as_u64);
        let stops = action.as_deref().is_some_and(|action| action != "none");
        let keep_alive = signals.pointer("/keepAlive/remainingSeconds").and_then(Value::as_u64).unwrap_or(0);
        let idle = last_signal.as_ref().map(|signal| signal.seconds_ago).or_else(|| signals["upSeconds"].as_u64());
        let idle_stop_in_seconds = match (stops, limit, idle) {
            // A keep-alive counts as activity until it expires.
            (true, Some(limit), _) if keep_alive > 0 => Some(keep_alive + limit),
            (true, Some(limit), Some(idle)) => Some(limit.saturating_sub(idle)),
            _ => None,
        };
        let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let notices = status["notices"].as_array().into_iter().flatten();
        Self {
            last_signal,
            idle_status: text("/idleStatus"),
            idle_stop_in_seconds,
            idle_action: action,
            open_sessions: signals.pointer("/sessions/open").and_then(Value::as_u64).unwrap_or(0),
            notices: notices.filter_map(Value::as_str).map(str::to_owned).collect(),
            jupyter: text("/jupyter/state").map(|state| Jupyter {
                state,
                port: status.pointer("/jupyter/port").and_then(Value::as_u64).and_then(|port| port.try_into().ok()),
                path: text("/jupyter/path"),
                token: text("/jupyter/token"),
                error: text("/jupyter/error"),
            }),
        }
    }
}

impl Jupyter {
    /// Returns the local URL once the port is forwarded.
    pub fn url(&self) -> Option<String> {
        let (port, token) = (self.port?, self.token.as_deref()?);
        Some(format!("http://127.0.0.1:{port}{}?token={token}", self.path.as_deref().unwrap_or("/lab")))
    }
}

fn last_signal(signals: &Value) -> Option<Signal> {
    let seconds_ago = |value: &Value| value["lastSeenSecondsAgo"].as_u64();
    let plain = SIGNALS.iter().filter_map(|(pointer, kind)| Some((seconds_ago(signals.pointer(pointer)?)?, *kind)));
    let forwarded = signals["forwarded"].as_array().into_iter().flatten();
    let forwarded = forwarded.filter_map(|port| Some((seconds_ago(port)?, "forwarded ports")));
    let keep_alive =
        signals.pointer("/keepAlive/remainingSeconds").and_then(Value::as_u64).map(|_| (0, "odc-keep-alive"));
    let newest = plain.chain(forwarded).chain(keep_alive).min_by_key(|(ago, _)| *ago);
    newest.map(|(seconds_ago, kind)| Signal { kind: kind.to_owned(), seconds_ago })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        json!({
            "idle": {"limitSeconds": 1800, "action": "hibernate"},
            "idleStatus": "Terminal input.",
            "notices": ["Expires in 5m."],
            "jupyter": {"state": "running", "port": 8888, "path": "/lab", "token": "abc"},
            "signals": {
                "upSeconds": 4000,
                "sessions": {"open": 2, "lastSeenSecondsAgo": 0},
                "terminalInput": {"lastSeenSecondsAgo": 300},
                "busy": {"sessions": {"lastSeenSecondsAgo": 120}},
                "forwarded": [{"port": 80, "bytes": 1, "lastSeenSecondsAgo": 600}],
            },
        })
    }

    #[test]
    fn last_signal_ignores_open_sessions() {
        let activity = Activity::from_status(&status());
        assert_eq!(activity.last_signal, Some(Signal { kind: "session processes".into(), seconds_ago: 120 }));
        assert_eq!((activity.idle_stop_in_seconds, activity.open_sessions), (Some(1680), 2));
        assert_eq!(activity.jupyter.unwrap().url().unwrap(), "http://127.0.0.1:8888/lab?token=abc");
    }

    #[test]
    fn keep_alive_and_disabled_idle_action_change_the_idle_stop() {
        let mut keep_alive = status();
        keep_alive["signals"]["keepAlive"] = json!({"remainingSeconds": 60});
        assert_eq!(Activity::from_status(&keep_alive).idle_stop_in_seconds, Some(1860));
        let mut never = status();
        never["idle"]["action"] = json!("none");
        assert_eq!(Activity::from_status(&never).idle_stop_in_seconds, None);
    }

    #[test]
    fn malformed_status_is_ignored() {
        let activity = Activity::from_status(&json!({"signals": 7, "jupyter": "yes", "notices": null}));
        assert_eq!((activity.last_signal, activity.jupyter, activity.idle_stop_in_seconds), (None, None, None));
    }
}
