//! The operator's side of `odc-control`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use odc_control::{LineDecoder, Reply, Request, Signals, Status, read_reply, write_request};

use crate::server::client::client;
use crate::server::{AGENT, Server, ServerBuilder, UID, keygen};

/// Returns a server with a control CA and a certificate for the operator.
pub fn builder() -> ServerBuilder {
    let builder = ServerBuilder::new();
    keygen(builder.dir_path(), "ca");
    keygen(builder.dir_path(), "operator");
    fs::copy(builder.path("ca.pub"), builder.path("keys/control_ca.pub")).unwrap();
    let principal = format!("control:{UID}");
    let signed = Command::new("ssh-keygen")
        .current_dir(builder.dir_path())
        .args(["-q", "-s", "ca", "-I", "operator", "-n", &principal, "-V", "-5m:+1h", "operator.pub"])
        .status();
    assert!(signed.unwrap().success());
    for name in ["odc-status", "odc-keep-alive"] {
        symlink(AGENT, builder.path(name)).unwrap();
    }
    builder
}

pub struct Operator {
    ssh: Child,
    input: ChildStdin,
    output: ChildStdout,
    decoder: LineDecoder,
}

impl Operator {
    pub fn connect(server: &Server) -> Self {
        let dir = server.dir.path();
        let mut command = client("ssh", server.address.port(), dir, "operator");
        command.arg(format!("-oCertificateFile={}", dir.join("operator-cert.pub").display()));
        command.args(["-s", "control@127.0.0.1", "odc-control"]);
        let mut ssh = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (ssh.stdin.take().unwrap(), ssh.stdout.take().unwrap());
        Self { ssh, input, output, decoder: LineDecoder::default() }
    }

    pub fn send(&mut self, request: &Request) {
        self.input.write_all(&write_request(request).unwrap()).unwrap();
    }

    pub fn receive(&mut self) -> Reply {
        let mut chunk = [0; 4096];
        loop {
            if let Some(line) = self.decoder.next_line().unwrap() {
                return read_reply(&line).unwrap();
            }
            let count = self.output.read(&mut chunk).unwrap();
            assert!(count > 0, "the agent closed the connection");
            self.decoder.push(&chunk[..count]);
        }
    }

    pub fn request(&mut self, request: &Request) -> Reply {
        self.send(request);
        self.receive()
    }

    pub fn signals(&mut self) -> Signals {
        let Reply::Signals(signals) = self.request(&Request::Signals) else { panic!("no signals") };
        *signals
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

/// Returns the output of `odc-status -o json` in a session.
pub fn status(server: &Server) -> Option<Status> {
    let line = format!("{} --state-dir {} -o json", path(server, "odc-status"), path(server, "state"));
    let output = server.run(&line);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

pub fn path(server: &Server, name: &str) -> String {
    server.path(name).display().to_string()
}

#[test]
fn operator_requests_are_answered() {
    let server = builder().serve_only().start();
    let mut operator = Operator::connect(&server);
    let first = operator.signals();
    assert_eq!((first.sessions.open, first.oom_kills), (0, 0), "the operator's connection is not a session");
    assert!(matches!(operator.request(&Request::Stats), Reply::Stats(stats) if stats.memory_bytes > 0));
    let Reply::Status(status) = operator.request(&Request::Status) else { panic!() };
    assert_eq!((status.server.as_str(), status.flavor.as_str()), ("ada-1", "h100"));
    // A second connection reaches the same agent.
    assert_eq!(Operator::connect(&server).signals().agent_boot_id, first.agent_boot_id);
}
