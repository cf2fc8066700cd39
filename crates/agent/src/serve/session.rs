//! What people run: a shell, a command or a subsystem, with or without a terminal.

pub mod carry;
pub mod environment;
pub mod leader;
pub mod modes;
pub mod process;
pub mod terminal;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use russh::server::Msg;
use russh::{ChannelWriteHalf, Sig};

use crate::serve::forward::agent::Door;
use crate::serve::session::environment::Asked;
use crate::serve::session::process::Leader;
use crate::serve::session::terminal::Terminal;

/// A session channel, from its opening to its end.
pub struct Session {
    /// Absent once something runs.
    pub channel: Option<ChannelWriteHalf<Msg>>,
    pub asked: Asked,
    pub terminal: Option<Arc<Terminal>>,
    /// The process's side of the terminal, until there is a process.
    pub line: Option<OwnedFd>,
    pub agent: Option<Door>,
    pub leader: Arc<Leader>,
}

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Shell,
    Command(Vec<u8>),
}

impl Session {
    pub fn new(channel: ChannelWriteHalf<Msg>) -> Self {
        Self {
            channel: Some(channel),
            asked: Asked::default(),
            terminal: None,
            line: None,
            agent: None,
            leader: Arc::default(),
        }
    }

    /// To whoever is in the foreground of the terminal, or else to all that the command started.
    pub fn signal(&self, signal: &Sig) {
        let Some(signal) = process::signal(signal) else { return };
        let foreground = self.terminal.as_ref().and_then(|terminal| terminal.foreground());
        self.leader.signal(foreground, signal);
    }
}
