//! Shells and commands on a terminal. Ours is a pseudo terminal too, so that the client has one to hand on.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::server::{Running, Server, eventually};

struct Screen {
    terminal: File,
    seen: Arc<Mutex<Vec<u8>>>,
    client: Running,
}

impl Screen {
    /// Runs a client whose terminal this is.
    fn start(client: &Command, rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        unlockpt(&ours).unwrap();
        let line: OwnedFd = ioctl_tiocgptpeer(&ours, flags).unwrap();
        tcsetwinsize(&ours, winsize(rows, columns)).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(client.get_program()).args(client.get_args());
        command.env("TERM", "vt220").env_remove("SSH_AUTH_SOCK");
        command.stdin(line.try_clone().unwrap()).stdout(line.try_clone().unwrap()).stderr(Stdio::from(line));
        let client = Running::start(&mut command);
        drop(command);
        let terminal = File::from(ours);
        let (mut reader, seen) = (terminal.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let put = Arc::clone(&seen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                put.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { terminal, seen, client }
    }

    fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    fn sees(&self, text: &str) {
        eventually(&format!("{text:?} is seen"), || self.seen().contains(text).then_some(()));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("on the screen:\n{}", self.seen());
        }
    }
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn a_shell_has_a_terminal_of_the_right_kind_and_size_and_follows_its_window() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 33, 101);
    // What is typed is shown too, so the answer must differ from the question.
    screen.types("echo $(stty size) $TERM $0 $((6*7))\n");
    screen.sees("33 101 vt220 -");
    screen.sees(" 42\r\n");
    screen.types("trap 'echo now $(stty size)' WINCH; echo re''ady\n");
    screen.sees("ready\r\n");
    tcsetwinsize(&screen.terminal, winsize(50, 200)).unwrap();
    screen.sees("now 50 200");
    screen.types("exit 5\n");
    assert_eq!(screen.client.code(), Some(5));
}

#[test]
fn people_are_greeted_unless_they_want_silence() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    screen.sees("ada-1, flavor h100\r\n");
    screen.types("exit\n");
    assert_eq!(screen.client.code(), Some(0));

    std::fs::write(server.path("home/.hushlogin"), "").unwrap();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    screen.types("echo re''ady; exit\n");
    assert_eq!(screen.client.code(), Some(0));
    screen.sees("ready");
    assert!(!screen.seen().contains("ada-1, flavor"), "{}", screen.seen());
}

#[test]
fn an_interrupt_reaches_the_command_and_not_the_shell() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    // It is in the foreground when it says so; a list of commands would not be yet.
    screen.types("sh -c 'echo slee\"\"ps; exec sleep 1000'\n");
    screen.sees("sleeps\r\n");
    screen.types("\x03");
    screen.types("echo st''ill\n");
    screen.sees("still\r\n");
    screen.types("exit\n");
    screen.client.code();
}

#[test]
fn a_window_of_no_size_is_one_too() {
    let server = Server::start();
    let output = server.ssh(&["-tt"]).arg("stty size; tty; exit 3").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("0 0\r\n/dev/pts/"), "{said:?}");
}

#[test]
fn all_that_was_said_is_seen_though_the_command_ended_and_others_have_its_terminal() {
    let server = Server::start();
    let output = server.ssh(&["-tt"]).arg("trap '' HUP; sleep 1000 & seq 1 20000; exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().filter(|line| line.parse::<u32>().is_ok()).count(), 20000);
}

#[test]
fn who_hangs_up_hangs_up_on_the_shell() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    let mark = server.path("hung-up").display().to_string();
    screen
        .types(&format!("sh -c 'trap \"echo yes > {mark}; exit\" HUP; echo re\"\"ady; while :; do sleep 0.1; done'\n"));
    screen.sees("ready\r\n");
    drop(screen);
    server.wait_for_text("hung-up", "yes");
}

#[test]
fn modes_of_the_client_s_terminal_are_kept() {
    let server = Server::start();
    let client = server.ssh(&["-t"]);
    let mut ssh = Command::new("sh");
    ssh.arg("-c").arg("stty intr ^G; exec \"$@\"").arg("sh").arg(client.get_program()).args(client.get_args());
    ssh.arg("stty -a | head -4");
    let mut screen = Screen::start(&ssh, 24, 80);
    screen.client.code();
    screen.sees("intr = ^G");
}
