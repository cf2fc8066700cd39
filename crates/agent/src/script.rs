//! The user's scripts, setup and preStop, as processes: how one is started, and how its output is copied to the
//! container's log and to a log file. [`run_script`] selects the interpreter.

pub mod run_script;

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use odc_control::Outcome;
use rustix::io::ioctl_fionbio;

use crate::process_id::SELF_EXE;

/// The log file may be on a tmpfs; the container's log has the full output.
const MAX_LOG_BYTES: usize = 4 << 20;

const MAX_EXEC_ERROR_BYTES: u64 = 64 << 10;

/// A script that is ready to be started.
#[derive(Debug)]
pub struct Script {
    pub command: Command,
    /// Copies the output; finishes when the last process that has the output open exits.
    pub output_thread: JoinHandle<()>,
    pub exec_error: ExecErrorPipe,
}

/// Receives the reason if the launched process could not execute the script.
#[derive(Debug)]
pub struct ExecErrorPipe(PipeReader);

impl ExecErrorPipe {
    /// Returns the outcome of the script, given the outcome of the process that was to execute it.
    pub fn outcome(self, process: Outcome) -> Outcome {
        let mut text = Vec::new();
        // Empty if the script was executed.
        let _ = self.0.take(MAX_EXEC_ERROR_BYTES).read_to_end(&mut text);
        serde_json::from_slice(&text).unwrap_or(process)
    }
}

pub fn prepare(script: &Path, name: &str, log: Option<File>) -> Result<Script, Outcome> {
    let failed = |error: io::Error| Outcome::failed_to_start(&script.display().to_string(), &error);
    let (exec_error, exec_error_writer) = io::pipe().map_err(failed)?;
    // The read after the exit of the process must not block, because a background process may hold the other end.
    ioctl_fionbio(&exec_error, true).map_err(|error| failed(error.into()))?;
    let (output, input) = io::pipe().map_err(failed)?;
    let mut command = launcher(script, exec_error_writer)?;
    command.stdout(input.try_clone().map_err(failed)?).stderr(input);
    let copy = move || copy_output(output, log);
    let output_thread = thread::Builder::new().name(name.to_owned()).spawn(copy).map_err(failed)?;
    Ok(Script { command, output_thread, exec_error: ExecErrorPipe(exec_error) })
}

/// Returns the command that executes the script. The file system of the script may hang, so it is accessed only in the
/// new process.
fn launcher(script: &Path, exec_error: PipeWriter) -> Result<Command, Outcome> {
    // Without /proc this executable cannot be started again, and unit tests run in another one. Then the script is
    // started directly.
    if cfg!(test) || !Path::new(SELF_EXE).exists() {
        let mut command = run_script::command(script)?;
        command.stdin(Stdio::null());
        return Ok(command);
    }
    let mut command = Command::new(SELF_EXE);
    command.arg("run-script").arg(script).stdin(exec_error);
    Ok(command)
}

/// Copies until the last writer has closed its end. Continues to read if writing fails, so that the script is not
/// blocked.
fn copy_output(mut output: PipeReader, mut log: Option<File>) {
    let mut buffer = [0; 1 << 14];
    let mut remaining = MAX_LOG_BYTES;
    loop {
        let chunk = match output.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if let Some(file) = &mut log {
            let logged = &chunk[..chunk.len().min(remaining)];
            remaining -= logged.len();
            // A full disk must not stop the script.
            let _ = file.write_all(logged);
            if remaining == 0 {
                let _ = file.write_all(b"\n[truncated; see the container's log]\n");
                log = None;
            }
        }
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(chunk).and_then(|()| stdout.flush());
    }
}
