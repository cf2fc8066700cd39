//! Fixtures shared by tests.

use odc_control::{Jupyter, JupyterState, Signals, Status};

/// Returns the status of an idle server.
pub fn status() -> Status {
    Status {
        server: "ada-1".into(),
        owner: "ada".into(),
        flavor: "h100".into(),
        remaining_seconds: None,
        idle: None,
        idle_status: None,
        idle_status_seconds_ago: None,
        notices: vec![],
        jupyter: Jupyter { state: JupyterState::Off, port: None, path: None, token: None, error: None },
        signals: Signals::default(),
    }
}

/// Returns the status of a running Jupyter server.
pub fn jupyter() -> Jupyter {
    Jupyter {
        state: JupyterState::Running,
        port: Some(8888),
        path: Some("/lab".into()),
        token: Some("abc".into()),
        error: None,
    }
}
