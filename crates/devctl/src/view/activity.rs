//! What a server says about itself (`odc-status -o json`): who uses it, what follows, where its notebooks are.
//!
//! Read as it comes, because the server may be of another version than this devctl: what is not understood is left out.

use serde::Serialize;
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// The newest sign that somebody uses the server.
    pub last_signal: Option<Signal>,
    /// What was last decided from the signals.
    pub verdict: Option<String>,
    /// When idleness stops it if nothing more is seen; null if it never does.
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

/// Where each signal is, and what people call it.
const SIGNALS: &[(&str, &str)] = &[
    ("/terminalInput", "terminal input"),
    ("/terminalOutput", "terminal output"),
    ("/transfer", "files and commands"),
    ("/busy/sessions", "processes of sessions"),
    ("/busy/entrypoint", "the image's own program"),
    ("/busy/others", "other processes"),
    ("/gpu", "GPU"),
    ("/jupyter", "Jupyter"),
    ("/heartbeat", "heartbeat"),
];

impl Activity {
    pub fn read(status: &Value) -> Self {
        let signals = &status["signals"];
        let newest = newest(signals);
        let action = status.pointer("/idle/action").and_then(Value::as_str).map(str::to_owned);
        let limit = status.pointer("/idle/limitSeconds").and_then(Value::as_u64);
        let stops = action.as_deref().is_some_and(|action| action != "none");
        let kept = signals.pointer("/keepAlive/remainingSeconds").and_then(Value::as_u64).unwrap_or(0);
        let quiet = newest.as_ref().map(|signal| signal.seconds_ago).or_else(|| signals["upSeconds"].as_u64());
        let idle_stop_in_seconds = match (stops, limit, quiet) {
            // Keeping it alive counts as use until its time is over.
            (true, Some(limit), _) if kept > 0 => Some(kept + limit),
            (true, Some(limit), Some(quiet)) => Some(limit.saturating_sub(quiet)),
            _ => None,
        };
        let text = |pointer: &str| status.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let notices = status["notices"].as_array().into_iter().flatten();
        Self {
            last_signal: newest,
            verdict: text("/verdict"),
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
    /// Where a browser finds it once its port is forwarded to this machine.
    pub fn url(&self) -> Option<String> {
        let (port, token) = (self.port?, self.token.as_deref()?);
        Some(format!("http://127.0.0.1:{port}{}?token={token}", self.path.as_deref().unwrap_or("/lab")))
    }
}

fn newest(signals: &Value) -> Option<Signal> {
    let seen = |value: &Value| value["lastSeenSecondsAgo"].as_u64();
    let plain = SIGNALS.iter().filter_map(|(place, kind)| Some((seen(signals.pointer(place)?)?, *kind)));
    let forwarded = signals["forwarded"].as_array().into_iter().flatten();
    let forwarded = forwarded.filter_map(|port| Some((seen(port)?, "forwarded ports")));
    let kept = signals.pointer("/keepAlive/remainingSeconds").and_then(Value::as_u64).map(|_| (0, "odc-keep-alive"));
    let newest = plain.chain(forwarded).chain(kept).min_by_key(|(ago, _)| *ago);
    newest.map(|(seconds_ago, kind)| Signal { kind: kind.to_owned(), seconds_ago })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> Value {
        json!({
            "idle": {"limitSeconds": 1800, "action": "hibernate"},
            "verdict": "Somebody typed.",
            "notices": ["Ends in 5 minutes."],
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
    fn the_newest_signal_counts_and_open_sessions_do_not() {
        let activity = Activity::read(&status());
        assert_eq!(activity.last_signal, Some(Signal { kind: "processes of sessions".into(), seconds_ago: 120 }));
        assert_eq!((activity.idle_stop_in_seconds, activity.open_sessions), (Some(1680), 2));
        assert_eq!(activity.jupyter.unwrap().url().unwrap(), "http://127.0.0.1:8888/lab?token=abc");
    }

    #[test]
    fn a_server_that_is_kept_alive_or_never_stopped_says_so() {
        let mut kept = status();
        kept["signals"]["keepAlive"] = json!({"remainingSeconds": 60});
        assert_eq!(Activity::read(&kept).idle_stop_in_seconds, Some(1860));
        let mut never = status();
        never["idle"]["action"] = json!("none");
        assert_eq!(Activity::read(&never).idle_stop_in_seconds, None);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let activity = Activity::read(&json!({"signals": 7, "jupyter": "yes", "notices": null}));
        assert_eq!((activity.last_signal, activity.jupyter, activity.idle_stop_in_seconds), (None, None, None));
    }
}
