//! A pseudo terminal: a process has one side, we have the other. No thread waits for it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use russh::Pty;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize};
use tokio::io::unix::AsyncFd;

use crate::serve::session::modes;

#[derive(Debug)]
pub struct Terminal {
    ours: AsyncFd<OwnedFd>,
    /// As the client calls its kind.
    pub kind: String,
    pub file: OsString,
}

/// In characters and pixels. Clients without a screen say 0, and so do we.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub columns: u32,
    pub rows: u32,
    pub width: u32,
    pub height: u32,
}

impl Size {
    fn winsize(self) -> Winsize {
        let short = |size: u32| u16::try_from(size).unwrap_or(u16::MAX);
        Winsize {
            ws_row: short(self.rows),
            ws_col: short(self.columns),
            ws_xpixel: short(self.width),
            ws_ypixel: short(self.height),
        }
    }
}

impl Terminal {
    /// Gives the process's side too.
    pub fn open(kind: &str, size: Size, modes: &[(Pty, u32)]) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        unlockpt(&ours)?;
        let file = OsStr::from_bytes(ptsname(&ours, Vec::new())?.as_bytes()).to_owned();
        let line = ioctl_tiocgptpeer(&ours, flags)?;
        let mut settings = tcgetattr(&line)?;
        modes::apply(&mut settings, modes);
        tcsetattr(&line, OptionalActions::Now, &settings)?;
        tcsetwinsize(&ours, size.winsize())?;
        fcntl_setfl(&ours, fcntl_getfl(&ours)? | OFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "unsound only with types that change their descriptor; its successor is unsafe to call"
        )]
        let ours = AsyncFd::new(ours)?;
        Ok((Self { ours, kind: kind.to_owned(), file }, line))
    }

    pub fn resize(&self, size: Size) {
        // Nobody is left to see it.
        let _ = tcsetwinsize(self.ours.get_ref(), size.winsize());
    }

    /// Who would be hit by a Ctrl-C.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(self.ours.get_ref()).ok()
    }

    /// The number of bytes that were put into the buffer; 0 if no process has the terminal open any more.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.ours.readable().await?;
            match ready.try_io(|ours| rustix::io::read(ours.get_ref(), &mut *buffer).map_err(io::Error::from)) {
                Ok(Err(error)) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return Ok(0),
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return done,
                Err(_would_block) => {}
            }
        }
    }

    pub async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let mut ready = self.ours.writable().await?;
            match ready.try_io(|ours| rustix::io::write(ours.get_ref(), data).map_err(io::Error::from)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => data = &data[done?..],
                Err(_would_block) => {}
            }
        }
        Ok(())
    }
}
