//! The operator's side of `odc-control`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use odc_control::{Frames, Reply, Request, Signals, Status, read_reply, write_request};

use crate::server::client::client;
use crate::server::{AGENT, Plan, Server, UID, keygen};

/// With a control CA, and a certificate of it.
pub fn plan() -> Plan {
    let plan = Plan::new();
    keygen(plan.place_path(), "ca");
    keygen(plan.place_path(), "operator");
    fs::copy(plan.path("ca.pub"), plan.path("keys/control_ca.pub")).unwrap();
    let principal = format!("control:{UID}");
    let signed = Command::new("ssh-keygen")
        .current_dir(plan.place_path())
        .args(["-q", "-s", "ca", "-I", "operator", "-n", &principal, "-V", "-5m:+1h", "operator.pub"])
        .status();
    assert!(signed.unwrap().success());
    for helper in ["odc-status", "odc-keep-alive"] {
        symlink(AGENT, plan.path(helper)).unwrap();
    }
    plan
}

pub struct Operator {
    ssh: Child,
    input: ChildStdin,
    output: ChildStdout,
    frames: Frames,
}

impl Operator {
    pub fn dial(server: &Server) -> Self {
        let place = server.place.path();
        let mut command = client("ssh", server.address.port(), place, "operator");
        command.arg(format!("-oCertificateFile={}", place.join("operator-cert.pub").display()));
        command.args(["-s", "control@127.0.0.1", "odc-control"]);
        let mut ssh = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (ssh.stdin.take().unwrap(), ssh.stdout.take().unwrap());
        Self { ssh, input, output, frames: Frames::default() }
    }

    pub fn say(&mut self, request: &Request) {
        self.input.write_all(&write_request(request).unwrap()).unwrap();
    }

    pub fn hear(&mut self) -> Reply {
        let mut piece = [0; 4096];
        loop {
            if let Some(line) = self.frames.take().unwrap() {
                return read_reply(&line).unwrap();
            }
            let count = self.output.read(&mut piece).unwrap();
            assert!(count > 0, "the agent hung up");
            self.frames.push(&piece[..count]);
        }
    }

    pub fn ask(&mut self, request: &Request) -> Reply {
        self.say(request);
        self.hear()
    }

    pub fn signals(&mut self) -> Signals {
        let Reply::Signals(signals) = self.ask(&Request::Signals) else { panic!("no signals") };
        *signals
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// As `odc-status -o json` gives it to somebody in a session.
pub fn status(server: &Server) -> Option<Status> {
    let line = format!("{} --state-dir {} -o json", path(server, "odc-status"), path(server, "state"));
    let output = server.run(&line);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

pub fn path(server: &Server, name: &str) -> String {
    server.path(name).display().to_string()
}

#[test]
fn the_operator_asks_and_is_answered() {
    let server = plan().alone().start();
    let mut operator = Operator::dial(&server);
    let first = operator.signals();
    assert_eq!((first.sessions.open, first.oom_kills), (0, 0), "the operator's own connection is nobody's session");
    assert!(matches!(operator.ask(&Request::Stats), Reply::Stats(stats) if stats.memory_bytes > 0));
    let Reply::Status(status) = operator.ask(&Request::Status) else { panic!() };
    assert_eq!((status.server.as_str(), status.flavor.as_str()), ("ada-1", "h100"));
    // Another connection talks to the same agent.
    assert_eq!(Operator::dial(&server).signals().agent_boot, first.agent_boot);
}
