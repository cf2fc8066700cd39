//! A real terminal: a program runs on a pseudo terminal, what it draws is kept as a screen, keys are typed into it.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

const LIMIT: Duration = Duration::from_secs(60);

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
    /// Everything that was ever drawn, for messages.
    drawn: Vec<u8>,
}

impl Terminal {
    /// Starts a program on a terminal of this size. Its session is its own, so that keys reach it as signals.
    pub fn start(command: &Command, columns: u16, rows: u16) -> anyhow::Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let name = ptsname(&master, Vec::new())?;
        let slave = std::fs::File::options().read(true).write(true).open(std::str::from_utf8(name.as_bytes())?)?;
        tcsetwinsize(&slave, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?;
        // setsid gives it the terminal as its controlling one, without a line of unsafe code here.
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
        // Whoever asks for another kind gets it.
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
            // An error is how a pseudo terminal says that the other side is gone.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let size = |cells: u16| std::num::NonZero::new(cells).context("a terminal has cells");
        let screen = vt100::Parser::new(size(rows)?, size(columns)?, 0);
        Ok(Self { child, keyboard, output, screen, drawn: Vec::new() })
    }

    pub fn type_keys(&mut self, keys: &str) -> anyhow::Result<()> {
        self.keyboard.write_all(keys.as_bytes())?;
        Ok(())
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Waits until the screen shows this.
    pub fn until(&mut self, what: &str) -> anyhow::Result<String> {
        self.until_screen(what, |screen| screen.contains(what))
    }

    pub fn until_screen(&mut self, what: &str, holds: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let started = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return Ok(screen);
            }
            let left = LIMIT.saturating_sub(started.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes)?,
                Err(_) => anyhow::bail!("the terminal does not show {what:?}:\n{screen}\n--- drawn:\n{}", self.all()),
            }
        }
    }

    /// Waits until the program has ended; gives its exit code and the last screen.
    pub fn end(mut self) -> anyhow::Result<(Option<i32>, String)> {
        let started = Instant::now();
        let status = loop {
            while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(50)) {
                self.take(&bytes)?;
            }
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            anyhow::ensure!(started.elapsed() < LIMIT, "it does not end:\n{}", self.all());
        };
        // The rest comes at once, or never if something it left behind keeps the terminal; on a busy machine later.
        while let Ok(bytes) = self.output.recv_timeout(Duration::from_secs(2)) {
            self.take(&bytes)?;
        }
        Ok((status.code(), self.screen()))
    }

    fn take(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.screen.process(bytes);
        self.drawn.extend_from_slice(bytes);
        // A program asks where the cursor is; a terminal answers.
        if bytes.windows(4).any(|window| window == b"\x1b[6n") {
            let (row, column) = self.screen.screen().cursor_position();
            self.type_keys(&format!("\x1b[{};{}R", row + 1, column + 1))?;
        }
        Ok(())
    }

    fn all(&self) -> String {
        String::from_utf8_lossy(&self.drawn).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ended already, most of the time.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
