//! A real notebook server, as people install it.

use std::env::{join_paths, split_paths, var_os};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use odc_control::{Jupyter, JupyterState, Request};
use serde_json::Value;

use crate::control::{Operator, plan, status};
use crate::python;
use crate::server::{Running, Server, within};

/// It is asked about its kernels every half a minute, and starts slowly on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

fn beside() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/care/jupyter")
}

fn until(server: &Server, state: JupyterState) -> Jupyter {
    let look = || status(server).map(|status| status.jupyter).filter(|jupyter| jupyter.state == state);
    within(LIMIT, &format!("the notebook server is {state:?}"), look)
}

/// As its server numbers processes.
fn process(server: &Server) -> Option<u64> {
    let kept: Value = serde_json::from_str(&server.text("state/jupyter.json")).ok()?;
    kept["kept"]["running"]["process"]["pid"].as_u64()
}

#[test]
fn it_is_started_watched_started_again_and_ended() {
    let python = python::environment("jupyter", &beside().join("requirements.txt"));
    // It has the same port in every server, and here they share one network.
    let _port = python::lock("jupyter-port");
    let programs = python.parent().unwrap().to_owned();
    let path = join_paths([programs].into_iter().chain(split_paths(&var_os("PATH").unwrap()))).unwrap();
    let server = plan().env("PATH", path).start();
    let mut operator = Operator::dial(&server);
    operator.ask(&Request::Jupyter { on: true });
    let first = until(&server, JupyterState::Running);
    assert_eq!((first.path.as_deref(), first.error), (Some("/"), None));
    let (port, token) = (first.port.unwrap().to_string(), first.token.unwrap());

    // Somebody opens a notebook, and it computes.
    let mut person = Command::new(&python);
    person.arg(beside().join("look.py")).args([port.as_str(), token.as_str()]).env("no_proxy", "127.0.0.1");
    let mut person = Running::start(person.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut said = String::new();
    BufReader::new(person.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "busy\n");
    let seen = within(LIMIT, "the kernel is seen", || {
        operator.signals().jupyter.filter(|seen| seen.busy_kernels == Some(1) && seen.connections == Some(1))
    });
    assert!(seen.last_seen_seconds_ago.is_some_and(|ago| ago < 60), "{seen:?}");

    // It dies, and is back as people know it.
    let killed = process(&server).unwrap();
    server.said(&format!("kill -KILL {killed}"));
    within(LIMIT, "another one is started", || process(&server).filter(|process| *process != killed));
    let second = until(&server, JupyterState::Running);
    assert_eq!(second.token, Some(token));
    assert!(second.error.unwrap().contains("ended by itself"));

    let ended = process(&server).unwrap();
    operator.ask(&Request::Jupyter { on: false });
    until(&server, JupyterState::Off);
    within(LIMIT, "its process is gone", || (!server.run(&format!("kill -0 {ended}")).status.success()).then_some(()));
}
