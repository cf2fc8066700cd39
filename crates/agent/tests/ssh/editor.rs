//! How VS Code's Remote-SSH gets its server into a machine and talks to it, replayed with OpenSSH's client.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdout, Command, Stdio};
use std::thread;

use crate::forwarding::{free_port, socks, through};
use crate::server::{Running, Server, eventually};

/// One window of the editor.
struct Window {
    client: Running,
    said: BufReader<ChildStdout>,
    id: &'static str,
    socks: u16,
    /// Process number in the server.
    shell: String,
}

/// What the script found or made.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    port: u16,
    started: bool,
    wanted: bool,
}

impl Window {
    /// A shell without a terminal, ports by SOCKS on the same connection, and the script as its input. That stays open, as
    /// long as the window does.
    fn open(server: &Server, id: &'static str) -> Self {
        let socks = free_port();
        let mut command = server.client("ssh");
        command.args(["-T", "-D", &socks.to_string(), "-o", "ConnectTimeout=15", "dev@127.0.0.1", "sh"]);
        let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let script = format!("ID={id}\n{}", include_str!("editor/bootstrap.sh"));
        client.0.stdin.as_mut().unwrap().write_all(script.as_bytes()).unwrap();
        let said = BufReader::new(client.0.stdout.take().unwrap());
        let mut window = Self { client, said, id, socks, shell: String::new() };
        let running = window.line();
        running.strip_prefix(&format!("{id}: running ")).expect("its first word").clone_into(&mut window.shell);
        window
    }

    /// Reads until the script has come to its end, and sends the editor's server if it is asked to.
    fn found(&mut self, server: &Server) -> Found {
        let mut found = Found { port: 0, started: false, wanted: false };
        let mut facts = Vec::new();
        loop {
            let line = self.line();
            match line.strip_prefix(self.id).and_then(|rest| rest.strip_prefix(": ")) {
                Some("end") => break,
                Some("started") => found.started = true,
                Some(words) if words.starts_with("send ") => {
                    found.wanted = true;
                    send(server, words.trim_start_matches("send "));
                }
                Some(_) => {}
                None => facts.extend(
                    line.strip_suffix("==")
                        .and_then(|line| line.split_once("=="))
                        .map(|(name, value)| (name.to_owned(), value.to_owned())),
                ),
            }
        }
        let fact = |name: &str| &facts.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{facts:?}")).1;
        assert_eq!(fact("platform"), "Linux");
        assert_eq!(fact("arch"), std::env::consts::ARCH);
        found.port = fact("listeningOn").parse().unwrap();
        found
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let count = self.said.read_line(&mut line).unwrap();
        assert_ne!(count, 0, "the script ended too soon: {:?}", self.client.code());
        line.trim_end().to_owned()
    }
}

/// On a connection of its own, as the input of a command. Under its name when it is whole.
fn send(server: &Server, to: &str) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ssh/editor");
    let mut tar = Command::new("tar");
    tar.args(["-C", source, "-cz", "server.py"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut tar = Running::start(&mut tar);
    let line = format!("cat > '{to}.part' && mv '{to}.part' '{to}'");
    let output = server.ssh(&["-T"]).arg(line).stdin(tar.0.stdout.take().unwrap()).output().unwrap();
    assert!(output.status.success() && tar.code() == Some(0), "{output:?}");
}

#[test]
fn an_editor_brings_its_server_talks_to_it_and_finds_it_again() {
    let server = Server::start();
    let mut first = Window::open(&server, "c1f0a1f6-7d52-4a3e-b3a5-6f6a2f0b9a11");
    let found = first.found(&server);
    assert!(found.wanted && found.started, "{found:?}");
    let conversations: Vec<_> = (0..4).map(|_| socks(first.socks, found.port)).collect();
    let talking: Vec<_> = conversations.into_iter().map(|stream| thread::spawn(move || through(stream))).collect();
    for talk in talking {
        talk.join().unwrap();
    }
    let lock = server.text("home/.vscode-server/bin/0123456789abcdef/lock");
    let gone = format!("! kill -0 {}", first.shell);
    drop(first);
    eventually("its shell has ended", || server.run(&gone).status.success().then_some(()));

    let mut second = Window::open(&server, "5b8e9b0c-94a9-4a2c-8a68-0d1a3f5e7c22");
    assert_eq!(second.found(&server), Found { port: found.port, started: false, wanted: false });
    through(socks(second.socks, found.port));
    assert_eq!(server.text("home/.vscode-server/bin/0123456789abcdef/lock"), lock);
    assert_eq!(fs::read_dir(server.path("home/.vscode-server/bin")).unwrap().count(), 1);
}
