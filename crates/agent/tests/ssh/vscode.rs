//! The bootstrap of VS Code's Remote-SSH extension, replayed with the OpenSSH client.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;

use crate::forwarding::{assert_echo, connect_socks};
use crate::server::{Running, Server, free_port, wait_until};

/// A window of the editor.
struct Window {
    client: Running,
    stdout: BufReader<ChildStdout>,
    id: &'static str,
    socks: u16,
    /// PID in the server.
    shell: String,
}

/// What the bootstrap script reported.
#[derive(Debug, PartialEq, Eq)]
struct Bootstrap {
    port: u16,
    started: bool,
    requested_upload: bool,
}

impl Window {
    /// Starts a shell without a terminal, with SOCKS forwarding on the same connection and the script as its input,
    /// which stays open until the window is closed.
    fn open(server: &Server, id: &'static str) -> Self {
        let socks = free_port();
        let mut command = server.client("ssh");
        command.args(["-T", "-D", &socks.to_string(), "-o", "ConnectTimeout=15", "dev@127.0.0.1", "sh"]);
        let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let script = format!("ID={id}\n{}", include_str!("vscode/bootstrap.sh"));
        client.0.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let stdout = BufReader::new(client.0.stdout.take().unwrap());
        let mut window = Self { client, stdout, id, socks, shell: String::new() };
        let running = window.line();
        running.strip_prefix(&format!("{id}: running ")).expect("the first line").clone_into(&mut window.shell);
        window
    }

    /// Reads until the script has finished, and uploads the editor's server if requested.
    fn bootstrap(&mut self, server: &Server) -> Bootstrap {
        let mut found = Bootstrap { port: 0, started: false, requested_upload: false };
        let mut values = Vec::new();
        loop {
            let line = self.line();
            match line.strip_prefix(self.id).and_then(|rest| rest.strip_prefix(": ")) {
                Some("end") => break,
                Some("started") => found.started = true,
                Some(words) if words.starts_with("send ") => {
                    found.requested_upload = true;
                    upload(server, words.trim_start_matches("send "));
                }
                Some(_) => {}
                None => values.extend(
                    line.strip_suffix("==")
                        .and_then(|line| line.split_once("=="))
                        .map(|(name, value)| (name.to_owned(), value.to_owned())),
                ),
            }
        }
        let value = |name: &str| &values.iter().find(|(key, _)| key == name).unwrap_or_else(|| panic!("{values:?}")).1;
        assert_eq!(value("platform"), "Linux");
        assert_eq!(value("arch"), std::env::consts::ARCH);
        found.port = value("listeningOn").parse().unwrap();
        found
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.stdout.read_line(&mut line).unwrap();
        assert_ne!(count, 0, "the script exited early: {:?}", self.client.code());
        line.trim_end().to_owned()
    }
}

/// Uploads on a separate connection as the input of a command, and renames when complete.
fn upload(server: &Server, to: &str) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh/vscode");
    let mut tar = Command::new("tar");
    tar.args(["-C", source, "-cz", "server.py"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tar = Running::start(&mut tar);
    let line = format!("cat > '{to}.part' && mv '{to}.part' '{to}'");
    let output = server.ssh(&["-T"]).arg(line).stdin(tar.0.stdout.take().unwrap()).output().unwrap();
    assert!(output.status.success() && tar.code() == Some(0), "{output:?}");
}

#[test]
fn editor_uploads_its_server_and_reuses_it() {
    let server = Server::start();
    let mut first = Window::open(&server, "c1f0a1f6-7d52-4a3e-b3a5-6f6a2f0b9a11");
    let found = first.bootstrap(&server);
    assert!(found.requested_upload && found.started, "{found:?}");
    let connections: Vec<_> = (0..4).map(|_| connect_socks(first.socks, found.port)).collect();
    let threads: Vec<_> = connections.into_iter().map(|stream| thread::spawn(move || assert_echo(stream))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let lock = server.text("home/.vscode-server/bin/0123456789abcdef/lock");
    let has_exited = format!("! kill -0 {}", first.shell);
    drop(first);
    wait_until("its shell has exited", || server.run(&has_exited).status.success().then_some(()));

    let mut second = Window::open(&server, "5b8e9b0c-94a9-4a2c-8a68-0d1a3f5e7c22");
    assert_eq!(second.bootstrap(&server), Bootstrap { port: found.port, started: false, requested_upload: false });
    assert_echo(connect_socks(second.socks, found.port));
    assert_eq!(server.text("home/.vscode-server/bin/0123456789abcdef/lock"), lock);
    assert_eq!(fs::read_dir(server.path("home/.vscode-server/bin")).unwrap().count(), 1);
}
