//! Starts what people run. What it is to be is decided purely; then it is a process of its own session, which outlives us.

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

use crate::serve::session::Wanted;

/// This executable, even if its file was replaced meanwhile.
const SELF: &str = "/proc/self/exe";

/// The first process of a session, whose number is also that of its process group.
#[derive(Debug, Default)]
pub struct Leader(Mutex<Option<Pid>>);

impl Leader {
    pub fn started(&self, child: &Child) {
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }

    pub fn ended(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn signal(&self, foreground: Option<Pid>, signal: Signal) {
        let leader = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = leader.map(|leader| foreground.unwrap_or(leader)) {
            // It may just have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

/// All that run on one connection.
#[derive(Clone, Debug, Default)]
pub struct Leaders(Arc<Mutex<Vec<Weak<Leader>>>>);

impl Leaders {
    pub fn add(&self, leader: &Arc<Leader>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|leader| leader.strong_count() > 0);
        all.push(Arc::downgrade(leader));
    }

    /// What a terminal does to its processes when its line is cut. Those without one would not notice.
    pub fn hang_up(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).for_each(|leader| leader.signal(None, Signal::HUP));
    }
}

/// Program, the name it is called by, and arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    program: OsString,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Line {
    /// A name with a dash makes it a login shell.
    pub fn new(shell: &Path, wanted: &Wanted) -> Self {
        let name = shell.file_name().unwrap_or(shell.as_os_str());
        match wanted {
            Wanted::Shell => {
                let name = [b"-", name.as_bytes()].concat();
                Self { program: shell.into(), name: OsString::from_vec(name), arguments: Vec::new() }
            }
            Wanted::Command(command) => Self {
                program: shell.into(),
                name: name.to_owned(),
                arguments: vec!["-c".into(), OsStr::from_bytes(command).to_owned()],
            },
        }
    }
}

/// What the process reads and writes.
pub enum Ends {
    Pipes,
    Terminal(OwnedFd),
}

pub fn start(line: &Line, environment: Vec<(OsString, OsString)>, directory: &Path, ends: Ends) -> io::Result<Child> {
    let mut command = Command::new(SELF);
    command.arg("session");
    match ends {
        Ends::Pipes => {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Ends::Terminal(terminal) => {
            command.arg("--terminal").stdin(terminal.try_clone()?).stdout(terminal.try_clone()?).stderr(terminal);
        }
    }
    let mut name = OsString::from("--name=");
    name.push(&line.name);
    command.arg("--directory").arg(directory).arg(name).arg("--").arg(&line.program).args(&line.arguments);
    command.env_clear().envs(environment);
    command.spawn()
}

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
    fn a_shell_is_a_login_shell_and_a_command_is_not() {
        let shell = Line::new(Path::new("/usr/bin/zsh"), &Wanted::Shell);
        assert_eq!(shell, Line { program: "/usr/bin/zsh".into(), name: "-zsh".into(), arguments: vec![] });
        let command = Line::new(Path::new("/bin/sh"), &Wanted::Command(b"exit \xff".to_vec()));
        let arguments = vec!["-c".into(), OsString::from_vec(b"exit \xff".to_vec())];
        assert_eq!(command, Line { program: "/bin/sh".into(), name: "sh".into(), arguments });
    }
}
