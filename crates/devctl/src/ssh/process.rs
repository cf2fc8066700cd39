//! Runs OpenSSH and other programs.

use std::io::IsTerminal as _;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, kill_process};
use tokio::process::{Child, Command};

use crate::error::{Error, Result};
use crate::signals::{Signal, Signals};

/// Runs a program with the standard streams of devctl.
///
/// The terminal sends SIGINT and SIGQUIT to the program directly; devctl survives them to report its exit status. Other
/// signals are forwarded.
pub async fn run(mut command: Command) -> Result<ExitStatus> {
    let child = command.kill_on_drop(true).spawn().map_err(|error| spawn_error(&command, &error))?;
    wait_forwarding_signals(child).await
}

/// Waits for a child process, forwarding signals as described in [`run`].
pub async fn wait_forwarding_signals(mut child: Child) -> Result<ExitStatus> {
    use rustix::process::Signal as KillSignal;
    let mut signals = Signals::new()?;
    let has_terminal = std::io::stdin().is_terminal();
    loop {
        let forwarded = tokio::select! {
            status = child.wait() => {
                return status.map_err(|error| Error::failed(format!("could not wait for the command: {error}")));
            }
            signal = signals.recv() => match signal {
                Signal::Interrupt => (!has_terminal).then_some(KillSignal::INT),
                Signal::Quit => (!has_terminal).then_some(KillSignal::QUIT),
                Signal::Terminate => Some(KillSignal::TERM),
                Signal::Hangup => Some(KillSignal::HUP),
            },
        };
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let (Some(signal), Some(pid)) = (forwarded, pid) {
            // The process may have exited already.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Converts the error of starting a program.
pub fn spawn_error(command: &Command, error: &std::io::Error) -> Error {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let hint = match (error.kind(), program.as_str()) {
        (std::io::ErrorKind::NotFound, "ssh" | "scp") => {
            "install the OpenSSH client (on Debian: `apt install openssh-client`)"
        }
        (std::io::ErrorKind::NotFound, _) => "install it, or add it to PATH",
        _ => "try again",
    };
    Error::failed(format!("could not start {program}: {error}")).with_hint(hint)
}

/// Returns the exit code as a shell reports it: 128 plus the signal number after a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

/// Runs a program without input and captures its output.
pub async fn output(mut command: Command) -> Result<std::process::Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.output().await.map_err(|error| spawn_error(&command, &error))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn dropped_run_kills_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000"]).arg(&file);
        let started = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            status = run(command) => panic!("{status:?}"),
            () = started => {}
        }
        let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
        let is_running =
            || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        let killed = async {
            while is_running() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), killed).await.unwrap();
    }

    #[test]
    fn exit_code_of_a_signal_is_that_of_a_shell() {
        let code = |script: &str| exit_code(std::process::Command::new("sh").args(["-c", script]).status().unwrap());
        assert_eq!((code("exit 7"), code("kill -TERM $$"), code("true")), (7, 143, 0));
    }
}
