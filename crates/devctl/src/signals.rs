//! The Unix signals devctl handles.

use futures_util::FutureExt as _;
use tokio::signal::unix::{self, SignalKind};

use crate::error::{Error, Result};

/// Receives SIGINT, SIGQUIT, SIGTERM and SIGHUP. Once created, they no longer terminate the process.
pub struct Signals {
    interrupt: unix::Signal,
    quit: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-\.
    Quit,
    Terminate,
    Hangup,
}

impl Signal {
    pub const fn number(self) -> u8 {
        match self {
            Self::Hangup => 1,
            Self::Interrupt => 2,
            Self::Quit => 3,
            Self::Terminate => 15,
        }
    }
}

impl Signals {
    pub fn new() -> Result<Self> {
        let register = |kind| {
            unix::signal(kind).map_err(|error| Error::failed(format!("could not register a signal handler: {error}")))
        };
        Ok(Self {
            interrupt: register(SignalKind::interrupt())?,
            quit: register(SignalKind::quit())?,
            terminate: register(SignalKind::terminate())?,
            hangup: register(SignalKind::hangup())?,
        })
    }

    pub async fn recv(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.quit.recv() => Signal::Quit,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.hangup.recv() => Signal::Hangup,
        }
    }

    /// Reports whether a SIGINT is pending.
    pub fn is_interrupted(&mut self) -> bool {
        self.interrupt.recv().now_or_never().is_some()
    }
}
