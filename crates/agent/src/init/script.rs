//! The user's scripts, setup and preStop, as processes: how one is started, and how its output is carried to the
//! container's log and a file of its own. When to run one is decided elsewhere; how it is found out what to run in whatever
//! image this is, in [`crate::run_script`].

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use odc_control::Outcome;
use rustix::io::ioctl_fionbio;

use crate::run_script;

/// This executable, even if its file was replaced meanwhile.
const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// The log's file may be kept in memory, and the container's log has everything anyway.
const LONGEST_LOG: usize = 4 << 20;

/// More than any reason takes.
const LONGEST_REPORT: u64 = 64 << 10;

/// A script that is still to be started.
#[derive(Debug)]
pub struct Script {
    pub command: Command,
    /// Waits for its output, and ends when the last process that could write to it does.
    pub carrier: JoinHandle<()>,
    pub report: Report,
}

/// Where it is said if a process did not become the script.
#[derive(Debug)]
pub struct Report(PipeReader);

impl Report {
    /// How it ended, once the process has.
    pub fn outcome(self, ended: Outcome) -> Outcome {
        let mut text = Vec::new();
        // A script that ran leaves nothing to read.
        let _ = self.0.take(LONGEST_REPORT).read_to_end(&mut text);
        serde_json::from_slice(&text).unwrap_or(ended)
    }
}

pub fn prepare(script: &Path, name: &str, log: Option<File>) -> Result<Script, Outcome> {
    let failed = |error: io::Error| Outcome::failed_to_start(&script.display().to_string(), &error);
    let (report, reporter) = io::pipe().map_err(failed)?;
    // Nobody waits for what may never be said.
    ioctl_fionbio(&report, true).map_err(|error| failed(error.into()))?;
    let (output, input) = io::pipe().map_err(failed)?;
    let mut command = starter(script, reporter)?;
    command.stdout(input.try_clone().map_err(failed)?).stderr(input);
    let carrier = thread::Builder::new().name(name.to_owned()).spawn(move || carry(output, log)).map_err(failed)?;
    Ok(Script { command, carrier, report: Report(report) })
}

/// What becomes the script. It touches no file system that may hang before it is a process of its own.
fn starter(script: &Path, reporter: PipeWriter) -> Result<Command, Outcome> {
    // Without /proc we cannot be started again, and what runs the tests is not us; then it is the script itself.
    if cfg!(test) || !Path::new(OWN_EXECUTABLE).exists() {
        let mut command = run_script::command(script)?;
        command.stdin(Stdio::null());
        return Ok(command);
    }
    let mut command = Command::new(OWN_EXECUTABLE);
    command.arg("run-script").arg(script).stdin(reporter);
    Ok(command)
}

/// Until the last writer is gone. If nobody takes what was read, the rest is still read, so that the script can end.
fn carry(mut output: PipeReader, mut log: Option<File>) {
    let mut buffer = [0; 1 << 14];
    let mut room = LONGEST_LOG;
    loop {
        let some = match output.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if let Some(file) = &mut log {
            let kept = &some[..some.len().min(room)];
            room -= kept.len();
            // A full disk must not stop the script.
            let _ = file.write_all(kept);
            if room == 0 {
                let _ = file.write_all(b"\n[the rest is in the container's log]\n");
                log = None;
            }
        }
        let mut container = io::stdout().lock();
        let _ = container.write_all(some).and_then(|()| container.flush());
    }
}
