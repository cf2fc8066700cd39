//! A real Jupyter server.

use std::env::{join_paths, split_paths, var_os};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use odc_control::{Jupyter, JupyterState, Request};
use serde_json::Value;

use crate::control::{Operator, builder, status};
use crate::python;
use crate::server::{Running, Server, wait_timeout};

/// Kernels are polled every 30 seconds, and Jupyter starts slowly on a busy machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

fn jupyter_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/jupyter")
}

fn wait_for_state(server: &Server, state: JupyterState) -> Jupyter {
    let poll = || status(server).map(|status| status.jupyter).filter(|jupyter| jupyter.state == state);
    wait_timeout(WAIT_TIMEOUT, &format!("Jupyter is {state:?}"), poll)
}

/// Returns the PID in the server.
fn jupyter_pid(server: &Server) -> Option<u64> {
    let persisted: Value = serde_json::from_str(&server.text("state/jupyter.json")).ok()?;
    persisted["value"]["running"]["process"]["pid"].as_u64()
}

#[test]
fn jupyter_is_started_polled_restarted_and_stopped() {
    let python = python::environment("jupyter", &jupyter_dir().join("requirements.txt"));
    // The port is the same in every server, and tests share one network namespace.
    let _port = python::lock("jupyter-port");
    let bin_dir = python.parent().unwrap().to_owned();
    let path = join_paths([bin_dir].into_iter().chain(split_paths(&var_os("PATH").unwrap()))).unwrap();
    let server = builder().env("PATH", path).start();
    let mut operator = Operator::connect(&server);
    operator.request(&Request::Jupyter { on: true });
    let first = wait_for_state(&server, JupyterState::Running);
    assert_eq!((first.path.as_deref(), first.error), (Some("/"), None));
    let (port, token) = (first.port.unwrap().to_string(), first.token.unwrap());

    // A client opens a kernel and runs code.
    let mut client = Command::new(&python);
    client.arg(jupyter_dir().join("run_kernel.py")).args([port.as_str(), token.as_str()]).env("no_proxy", "127.0.0.1");
    let mut client = Running::start(client.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(client.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "busy\n");
    let signal = wait_timeout(WAIT_TIMEOUT, "the kernel is reported", || {
        operator.signals().jupyter.filter(|signal| signal.busy_kernels == Some(1) && signal.connections == Some(1))
    });
    assert!(signal.last_seen_seconds_ago.is_some_and(|ago| ago < 60), "{signal:?}");

    // It is killed, and restarted with the same token.
    let killed = jupyter_pid(&server).unwrap();
    server.stdout(&format!("kill -KILL {killed}"));
    wait_timeout(WAIT_TIMEOUT, "it is restarted", || jupyter_pid(&server).filter(|process| *process != killed));
    let second = wait_for_state(&server, JupyterState::Running);
    assert_eq!(second.token, Some(token));
    assert!(second.error.unwrap().contains("exited unexpectedly"));

    let stopped = jupyter_pid(&server).unwrap();
    operator.request(&Request::Jupyter { on: false });
    wait_for_state(&server, JupyterState::Off);
    wait_timeout(WAIT_TIMEOUT, "its process has exited", || {
        (!server.run(&format!("kill -0 {stopped}")).status.success()).then_some(())
    });
}
