//! Session channels: shells and commands, with or without a terminal.

pub mod account;
pub mod env;
pub mod exec_session;
pub mod io;
pub mod motd;
pub mod process;
pub mod prompt_command;
pub mod pty;
pub mod termios;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use russh::server::Msg;
use russh::{ChannelWriteHalf, Sig};

use crate::serve::forward::agent_socket::AgentSocket;
use crate::serve::session::env::ClientEnv;
use crate::serve::session::process::SessionProcess;
use crate::serve::session::pty::Pty;

/// A session channel, from its opening until it is closed.
pub struct SessionChannel {
    /// Absent once a shell, command or subsystem was started.
    pub writer: Option<ChannelWriteHalf<Msg>>,
    pub client_env: ClientEnv,
    pub pty: Option<Arc<Pty>>,
    /// The process's side of the terminal, until the process is started.
    pub pty_slave: Option<OwnedFd>,
    pub agent_socket: Option<AgentSocket>,
    pub process: Arc<SessionProcess>,
}

/// What a client requests to run (RFC 4254, section 6.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRequest {
    Shell,
    Exec(Vec<u8>),
}

impl SessionChannel {
    pub fn new(writer: ChannelWriteHalf<Msg>) -> Self {
        Self {
            writer: Some(writer),
            client_env: ClientEnv::default(),
            pty: None,
            pty_slave: None,
            agent_socket: None,
            process: Arc::default(),
        }
    }

    /// Sends a signal to the foreground process group of the terminal, or else to the process group of the command.
    pub fn signal(&self, signal: &Sig) {
        let Some(signal) = process::signal(signal) else { return };
        let foreground = self.pty.as_ref().and_then(|pty| pty.foreground());
        self.process.signal(foreground, signal);
    }
}
