//! Processes of sessions. Each is the leader of its own session (setsid(2)) and outlives `serve`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use russh::Sig;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use crate::process_id::SELF_EXE;
use crate::serve::session::SessionRequest;

/// The session leader while it runs. Its PID is also the ID of its process group.
#[derive(Debug, Default)]
pub struct SessionProcess(Mutex<Option<Pid>>);

impl SessionProcess {
    pub fn set_started(&self, child: &Child) {
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }

    pub fn set_exited(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn signal(&self, foreground: Option<Pid>, signal: Signal) {
        let leader = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = leader.map(|leader| foreground.unwrap_or(leader)) {
            // Fails if it has just exited.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// The session processes of one connection.
#[derive(Clone, Debug, Default)]
pub struct SessionProcesses(Arc<Mutex<Vec<Weak<SessionProcess>>>>);

impl SessionProcesses {
    pub fn add(&self, process: &Arc<SessionProcess>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|process| process.strong_count() > 0);
        all.push(Arc::downgrade(process));
    }

    /// Sends SIGHUP, as the kernel does when a terminal is closed. Processes without a terminal need it too.
    pub fn hang_up(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).for_each(|process| process.signal(None, Signal::HUP));
    }
}

/// A program, its argv[0], and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine {
    program: OsString,
    name: OsString,
    arguments: Vec<OsString>,
}

impl CommandLine {
    /// A dash before the name makes the shell a login shell.
    pub fn new(shell: &Path, request: &SessionRequest) -> Self {
        let name = shell.file_name().unwrap_or(shell.as_os_str());
        match request {
            SessionRequest::Shell => {
                let name = [b"-", name.as_bytes()].concat();
                Self { program: shell.into(), name: OsString::from_vec(name), arguments: Vec::new() }
            }
            SessionRequest::Exec(command) => Self {
                program: shell.into(),
                name: name.to_owned(),
                arguments: vec!["-c".into(), OsStr::from_bytes(command).to_owned()],
            },
        }
    }
}

pub enum SessionStdio {
    Pipes,
    /// The process's side of a terminal.
    Pty(OwnedFd),
}

/// Starts the command through [`crate::serve::session::exec_session`].
pub fn start(
    command_line: &CommandLine,
    env: Vec<(OsString, OsString)>,
    directory: &Path,
    stdio: SessionStdio,
) -> io::Result<Child> {
    let mut command = Command::new(SELF_EXE);
    command.arg("exec-session");
    match stdio {
        SessionStdio::Pipes => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        SessionStdio::Pty(slave) => {
            command.arg("--terminal").stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        }
    }
    let mut name = OsString::from("--name=");
    name.push(&command_line.name);
    command
        .arg("--directory")
        .arg(directory)
        .arg(name)
        .arg("--")
        .arg(&command_line.program)
        .args(&command_line.arguments);
    command.env_clear().envs(env);
    command.spawn()
}

/// Converts a signal name of RFC 4254, section 6.10, or of OpenSSH.
pub fn signal(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(name) if name == "USR2" => Signal::USR2,
        Sig::Custom(name) if name == "WINCH" => Signal::WINCH,
        Sig::Custom(name) if name == "INFO@openssh.com" => Signal::USR1,
        Sig::Custom(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_request_starts_a_login_shell_and_exec_does_not() {
        let shell = CommandLine::new(Path::new("/usr/bin/zsh"), &SessionRequest::Shell);
        assert_eq!(shell, CommandLine { program: "/usr/bin/zsh".into(), name: "-zsh".into(), arguments: vec![] });
        let command = CommandLine::new(Path::new("/bin/sh"), &SessionRequest::Exec(b"exit \xff".to_vec()));
        let arguments = vec!["-c".into(), OsString::from_vec(b"exit \xff".to_vec())];
        assert_eq!(command, CommandLine { program: "/bin/sh".into(), name: "sh".into(), arguments });
    }
}
