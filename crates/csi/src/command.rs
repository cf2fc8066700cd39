//! Runs external commands with a time limit and bounded output.

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// A snapshot first writes the dirty pages of its source, which can take minutes on a slow disk.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(300);
const MAX_OUTPUT_BYTES: u64 = 16 << 20;
/// Part of the error output that is shown in messages.
const MAX_MESSAGE_CHARS: usize = 400;
const MAX_CONCURRENT_COMMANDS: usize = 8;

static RUNNING: Semaphore = Semaphore::const_new(MAX_CONCURRENT_COMMANDS);

/// Output of a command that succeeded.
#[derive(Debug, Default)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the command {program} is not installed")]
    NotInstalled { program: String },
    #[error("running {program}")]
    Run { program: String, source: io::Error },
    #[error("{command} did not finish within {limit}s", limit = COMMAND_TIMEOUT.as_secs())]
    Timeout { command: String },
    #[error("{command} printed more than {MAX_OUTPUT_BYTES} bytes")]
    Output { command: String },
    #[error("{command} failed ({status}): {message}")]
    Failed { command: String, status: ExitStatus, message: String },
}

impl Error {
    /// Reports whether the command failed because the file system is full.
    pub fn is_no_space(&self) -> bool {
        self.message_contains("No space left on device")
    }

    pub fn message_contains(&self, text: &str) -> bool {
        matches!(self, Self::Failed { message, .. } if message.contains(text))
    }
}

/// Runs a command to its end and returns what it printed.
pub async fn run<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> Result<Output, Error> {
    let run_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => Error::NotInstalled { program: program.to_owned() },
        _ => Error::Run { program: program.to_owned(), source },
    };
    let command = describe(program, arguments);
    // The semaphore is never closed, so an error cannot occur; without a permit the command would run all the same.
    let _permit = RUNNING.acquire().await.ok();
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(run_error)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let finish = async { tokio::try_join!(child.wait(), read(stdout), read(stderr)) };
    let Ok(result) = tokio::time::timeout(COMMAND_TIMEOUT, finish).await else {
        return Err(Error::Timeout { command });
    };
    let (status, stdout, stderr) = result.map_err(run_error)?;
    let (Some(stdout), Some(stderr)) = (stdout, stderr) else { return Err(Error::Output { command }) };
    if !status.success() {
        return Err(Error::Failed { command, status, message: shorten(&stderr) });
    }
    Ok(Output { stdout, stderr })
}

/// Reads a stream to its end, or returns `None` if it is too long.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Option<String>> {
    let Some(stream) = stream else { return Ok(Some(String::new())) };
    let mut bytes = Vec::new();
    stream.take(MAX_OUTPUT_BYTES + 1).read_to_end(&mut bytes).await?;
    let fits = bytes.len() as u64 <= MAX_OUTPUT_BYTES;
    Ok(fits.then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the command with its subcommand, without paths.
fn describe<A: AsRef<OsStr>>(program: &str, arguments: &[A]) -> String {
    let words = arguments.iter().filter_map(|argument| argument.as_ref().to_str());
    let words = words.take_while(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'));
    std::iter::once(program).chain(words.filter(|word| !word.starts_with('-'))).collect::<Vec<_>>().join(" ")
}

/// Joins the lines of an error output, without the prefix of btrfs-progs.
fn shorten(stderr: &str) -> String {
    let lines = stderr.lines().map(|line| line.trim().trim_start_matches("ERROR: ")).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ").chars().take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_of_a_command_is_returned() {
        let output = run("sh", &["-c", "echo out; echo problem >&2"]).await.unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "problem\n"));
    }

    #[tokio::test]
    async fn failed_command_is_reported_with_its_message() {
        let script = "echo 'ERROR: cannot do it: No space left on device' >&2; exit 3";
        let error = run("sh", &["-c", script]).await.unwrap_err();
        assert!(error.is_no_space());
        assert_eq!(error.to_string(), "sh failed (exit status: 3): cannot do it: No space left on device");
    }

    #[tokio::test]
    async fn missing_command_is_named() {
        let error = run("odc-no-such-command", &["x"]).await.unwrap_err();
        assert_eq!(error.to_string(), "the command odc-no-such-command is not installed");
    }

    #[test]
    fn description_contains_subcommands_only() {
        assert_eq!(
            describe("btrfs", &["subvolume", "snapshot", "-r", "/pool/a", "/pool/b"]),
            "btrfs subvolume snapshot"
        );
        assert_eq!(describe("losetup", &["-c", "/dev/loop1"]), "losetup");
    }
}
