//! Pseudo terminals with asynchronous I/O.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use russh::Pty as PtyMode;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize};
use tokio::io::unix::AsyncFd;

use crate::serve::session::termios;

#[derive(Debug)]
pub struct Pty {
    master: AsyncFd<OwnedFd>,
    /// The client's value of `TERM`.
    pub term: String,
    pub path: OsString,
}

/// In characters and pixels. Clients without a terminal send 0, which is passed on.
#[derive(Clone, Copy, Debug)]
pub struct WindowSize {
    pub columns: u32,
    pub rows: u32,
    pub width: u32,
    pub height: u32,
}

impl WindowSize {
    fn winsize(self) -> Winsize {
        let clamp = |size: u32| u16::try_from(size).unwrap_or(u16::MAX);
        Winsize {
            ws_row: clamp(self.rows),
            ws_col: clamp(self.columns),
            ws_xpixel: clamp(self.width),
            ws_ypixel: clamp(self.height),
        }
    }
}

impl Pty {
    /// Opens a terminal and returns the process's side too.
    pub fn open(term: &str, size: WindowSize, modes: &[(PtyMode, u32)]) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        unlockpt(&master)?;
        let path = OsStr::from_bytes(ptsname(&master, Vec::new())?.as_bytes()).to_owned();
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        let mut settings = tcgetattr(&slave)?;
        termios::apply(&mut settings, modes);
        tcsetattr(&slave, OptionalActions::Now, &settings)?;
        tcsetwinsize(&master, size.winsize())?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "unsound only with types that change their descriptor; its successor is unsafe to call"
        )]
        let master = AsyncFd::new(master)?;
        Ok((Self { master, term: term.to_owned(), path }, slave))
    }

    pub fn resize(&self, size: WindowSize) {
        // Fails only if the process has exited.
        let _ = tcsetwinsize(self.master.get_ref(), size.winsize());
    }

    /// Returns the foreground process group.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.master.get_ref()).ok()
    }

    /// Returns the number of bytes read; 0 if no process has the terminal open any more.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.master.readable().await?;
            match ready.try_io(|master| rustix::io::read(master.get_ref(), &mut *buffer).map_err(io::Error::from)) {
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return Ok(0),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }

    pub async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.master.writable().await?;
            match ready.try_io(|master| rustix::io::write(master.get_ref(), data).map_err(io::Error::from)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => data = &data[done?..],
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}
