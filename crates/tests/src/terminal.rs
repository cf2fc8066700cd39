//! A program on a pseudo-terminal: an emulator renders its screen, and tests type into it.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Bounds the wait for remaining output if a background process keeps the terminal open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub const UP: &str = "\x1b[A";
pub const DOWN: &str = "\x1b[B";
pub const ENTER: &str = "\r";
pub const CTRL_C: &str = "\x03";
pub const CTRL_BACKSLASH: &str = "\x1c";

pub struct Terminal {
    child: Child,
    keyboard: std::fs::File,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Every byte of output.
    raw: Vec<u8>,
}

/// Result of a finished program.
pub struct Exit {
    pub code: Option<i32>,
    /// Text of the last screen.
    pub screen: String,
    /// Every byte of output, including escape sequences.
    pub drawn: String,
}

impl Terminal {
    /// Starts a program in a new session on a terminal of this size, so that Ctrl-C reaches it as a signal.
    pub fn start(command: &Command, columns: u16, rows: u16) -> anyhow::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = std::fs::File::options().read(true).write(true).open(std::str::from_utf8(name.as_bytes())?)?;
        tcsetwinsize(&slave, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?;
        // setsid(1) sets the controlling terminal without unsafe code here.
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        // A command may set another terminal type.
        if !command.get_envs().any(|(name, _)| name == "TERM") {
            session.env("TERM", "xterm-256color");
        }
        session.stdin(Stdio::from(OwnedFd::from(slave.try_clone()?)));
        session.stdout(Stdio::from(OwnedFd::from(slave.try_clone()?)));
        session.stderr(Stdio::from(OwnedFd::from(slave)));
        let child = session.spawn().context("starting setsid")?;
        let keyboard = std::fs::File::from(master);
        let mut reader = keyboard.try_clone()?;
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A read fails with EIO once the other side is closed.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let size = |cells: u16| std::num::NonZero::new(cells).context("the terminal has no cells");
        let screen = vt100::Parser::new(size(rows)?, size(columns)?, 0);
        Ok(Self { child, keyboard, output, screen, raw: Vec::new() })
    }

    pub fn type_keys(&mut self, keys: &str) -> anyhow::Result<()> {
        self.keyboard.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// Returns the text of the screen.
    pub fn screen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen contains `text`, and returns the screen.
    pub fn wait_for(&mut self, text: &str) -> anyhow::Result<String> {
        self.wait_for_screen(text, |screen| screen.contains(text))
    }

    /// Waits until the screen meets `condition`, which failures report as `expected`.
    pub fn wait_for_screen(&mut self, expected: &str, condition: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return Ok(screen);
            }
            let remaining = TIMEOUT.saturating_sub(started.elapsed());
            match self.output.recv_timeout(remaining) {
                Ok(bytes) => self.process(&bytes)?,
                Err(_) => anyhow::bail!(
                    "the terminal does not show {expected:?}:\n{screen}\n--- output:\n{}",
                    self.output_text()
                ),
            }
        }
    }

    /// Waits until the program exits, and returns its exit code and the last screen.
    pub fn wait_exit(self) -> anyhow::Result<(Option<i32>, String)> {
        self.wait_exit_with_output().map(|exit| (exit.code, exit.screen))
    }

    /// Waits until the program exits, and returns all its output.
    pub fn wait_exit_with_output(mut self) -> anyhow::Result<Exit> {
        let started = Instant::now();
        let status = loop {
            while let Ok(bytes) = self.output.recv_timeout(POLL_INTERVAL) {
                self.process(&bytes)?;
            }
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            anyhow::ensure!(started.elapsed() < TIMEOUT, "the program does not exit:\n{}", self.output_text());
        };
        // Output may still be in the terminal's buffer. The channel closes once no process has the terminal open.
        while let Ok(bytes) = self.output.recv_timeout(DRAIN_TIMEOUT) {
            self.process(&bytes)?;
        }
        Ok(Exit { code: status.code(), screen: self.screen(), drawn: self.output_text() })
    }

    fn process(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.screen.process(bytes);
        self.raw.extend_from_slice(bytes);
        // Answer a request for the cursor position, as a terminal does.
        if bytes.windows(4).any(|window| window == b"\x1b[6n") {
            let (row, column) = self.screen.screen().cursor_position();
            self.type_keys(&format!("\x1b[{};{}R", row + 1, column + 1))?;
        }
        Ok(())
    }

    fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if the program has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
