//! Shells and commands with a terminal. The client runs on a pseudo terminal of the test.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::server::{Running, Server, wait_until};

struct Screen {
    terminal: File,
    output: Arc<Mutex<Vec<u8>>>,
    client: Running,
}

impl Screen {
    /// Runs a client on a new terminal.
    fn start(client: &Command, rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        unlockpt(&master).unwrap();
        let slave: OwnedFd = ioctl_tiocgptpeer(&master, flags).unwrap();
        tcsetwinsize(&master, winsize(rows, columns)).unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(client.get_program()).args(client.get_args());
        command.env("TERM", "vt220").env_remove("SSH_AUTH_SOCK");
        command.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(Stdio::from(slave));
        let client = Running::start(&mut command);
        drop(command);
        let terminal = File::from(master);
        let (mut reader, screen) = (terminal.try_clone().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let output = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                output.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { terminal, output: screen, client }
    }

    fn type_text(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} is shown"), || self.text().contains(text).then_some(()));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("screen:\n{}", self.text());
        }
    }
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn shell_has_terminal_type_and_size_and_follows_resizes() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 33, 101);
    // Input is echoed, so the output must differ from it.
    screen.type_text("echo $(stty size) $TERM $0 $((6*7))\n");
    screen.wait_for("33 101 vt220 -");
    screen.wait_for(" 42\r\n");
    tcsetwinsize(&screen.terminal, winsize(50, 200)).unwrap();
    screen.type_text("until [ \"$(stty size)\" = '50 200' ]; do sleep 0.1; done; echo re''sized\n");
    screen.wait_for("resized\r\n");
    screen.type_text("exit 5\n");
    assert_eq!(screen.client.code(), Some(5));
}

#[test]
fn motd_is_shown_without_hushlogin() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    screen.wait_for("ada-1, flavor h100\r\n");
    screen.type_text("exit\n");
    assert_eq!(screen.client.code(), Some(0));

    std::fs::write(server.path("home/.hushlogin"), "").unwrap();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    screen.type_text("echo re''ady; exit\n");
    assert_eq!(screen.client.code(), Some(0));
    screen.wait_for("ready");
    assert!(!screen.text().contains("ada-1, flavor"), "{}", screen.text());
}

#[test]
fn interrupt_reaches_the_foreground_command() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    // The command prints when it is in the foreground; a list of commands would not be yet.
    screen.type_text("sh -c 'echo slee\"\"ps; exec sleep 1000'\n");
    screen.wait_for("sleeps\r\n");
    screen.type_text("\x03");
    screen.type_text("echo st''ill\n");
    screen.wait_for("still\r\n");
    screen.type_text("exit\n");
    screen.client.code();
}

#[test]
fn window_without_size_is_supported() {
    let server = Server::start();
    let output = server.ssh(&["-tt"]).arg("stty size; tty; exit 3").output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.starts_with("0 0\r\n/dev/pts/"), "{stdout:?}");
}

#[test]
fn remaining_output_is_shown_after_exit_with_a_background_process() {
    let server = Server::start();
    let output = server.ssh(&["-tt"]).arg("trap '' HUP; sleep 1000 & seq 1 20000; exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().filter(|line| line.parse::<u32>().is_ok()).count(), 20000);
}

#[test]
fn disconnect_sends_sighup() {
    let server = Server::start();
    let mut screen = Screen::start(&server.ssh(&[]), 24, 80);
    let mark = server.path("hung-up").display().to_string();
    screen.type_text(&format!(
        "sh -c 'trap \"echo yes > {mark}; exit\" HUP; echo re\"\"ady; while :; do sleep 0.1; done'\n"
    ));
    screen.wait_for("ready\r\n");
    drop(screen);
    server.wait_for_text("hung-up", "yes");
}

#[test]
fn terminal_modes_of_the_client_are_applied() {
    let server = Server::start();
    let client = server.ssh(&["-t"]);
    let mut ssh = Command::new("sh");
    ssh.arg("-c").arg("stty intr ^G; exec \"$@\"").arg("sh").arg(client.get_program()).args(client.get_args());
    ssh.arg("stty -a | head -4");
    let mut screen = Screen::start(&ssh, 24, 80);
    screen.client.code();
    screen.wait_for("intr = ^G");
}
