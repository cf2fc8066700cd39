//! What several tests begin with.

use odc_control::{Jupyter, JupyterState, Signals, Status};

/// Of a server in which nothing happens.
pub fn status() -> Status {
    Status {
        server: "ada-1".into(),
        owner: "ada".into(),
        flavor: "h100".into(),
        remaining_seconds: None,
        idle: None,
        verdict: None,
        verdict_seconds_ago: None,
        notices: vec![],
        jupyter: Jupyter { state: JupyterState::Off, port: None, path: None, token: None, error: None },
        signals: Signals::default(),
    }
}

/// One that runs.
pub fn jupyter() -> Jupyter {
    Jupyter {
        state: JupyterState::Running,
        port: Some(8888),
        path: Some("/lab".into()),
        token: Some("abc".into()),
        error: None,
    }
}
