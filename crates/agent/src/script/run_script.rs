//! `odc-agent run-script`: executes a script of the user in the user's home. This is a separate process because the
//! home, the script and its interpreter may be on a file system that hangs, and PID 1 must not hang with it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _, stdin};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use odc_control::Outcome;

use crate::args;
use crate::image_programs;

/// The kernel reads as much of a script, see execve(2).
const MAX_INTERPRETER_LINE: u64 = 256;

/// Returns only if the script cannot be executed. Writes the reason to standard input, which is a pipe to the parent
/// and is replaced when the script is executed.
pub fn run(args: &args::RunScript) -> anyhow::Result<ExitCode> {
    let mut exec_error = File::from(stdin().as_fd().try_clone_to_owned()?);
    let outcome = execute(&args.script);
    exec_error.write_all(&serde_json::to_vec(&outcome)?)?;
    Ok(ExitCode::from(outcome.exit_code()))
}

fn execute(script: &Path) -> Outcome {
    let mut command = match command(script) {
        Ok(command) => command,
        Err(outcome) => return outcome,
    };
    let error = command.stdin(Stdio::null()).exec();
    Outcome::failed_to_start(&script.display().to_string(), &error)
}

/// Returns the command that runs the script. It names the interpreter explicitly, because the script is a mounted file
/// that is often not executable.
pub fn command(script: &Path) -> Result<Command, Outcome> {
    let mut head = Vec::new();
    File::open(script)
        .and_then(|file| file.take(MAX_INTERPRETER_LINE).read_to_end(&mut head))
        .map_err(|error| Outcome::failed_to_start(&script.display().to_string(), &error))?;
    let mut command = match interpreter(&head) {
        Some((program, _)) if !Path::new(&program).exists() => {
            let program = program.display();
            return Err(Outcome::not_found(format!("interpreter {program} of the script not found in this image")));
        }
        Some((program, argument)) => {
            let mut command = Command::new(program);
            command.args(argument);
            command
        }
        None => Command::new(image_programs::script_shell(Path::new("/")).ok_or_else(|| {
            Outcome::not_found(
                "this image has no shell; use an image with /bin/sh, or add an interpreter line (#!) to the script",
            )
        })?),
    };
    command.arg(script);
    // `home_dir` would query the image's account database through libraries that a static executable cannot load.
    if let Some(home) = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()) {
        command.current_dir(home);
    }
    Ok(command)
}

/// Parses the interpreter line as the kernel does: a program and at most one argument.
fn interpreter(head: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (program, argument) = line.split_at(end);
    let word = |bytes: &[u8]| (!bytes.is_empty()).then(|| OsStr::from_bytes(bytes).to_owned());
    Some((word(program)?, word(argument.trim_ascii())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreter_line_is_parsed_as_the_kernel_does() {
        for (head, expect) in [
            ("echo hi\n", None),
            ("", None),
            ("#!", None),
            ("#! \n/bin/sh", None),
            ("# !/bin/sh\n", None),
            ("#!/bin/sh", Some(("/bin/sh", None))),
            ("#!/bin/bash -e\necho", Some(("/bin/bash", Some("-e")))),
            ("#! \t/usr/bin/env \t python3 -u \r\n", Some(("/usr/bin/env", Some("python3 -u")))),
        ] {
            let expect =
                expect.map(|(program, argument): (&str, Option<&str>)| (program.into(), argument.map(Into::into)));
            assert_eq!(interpreter(head.as_bytes()), expect, "{head:?}");
        }
    }

    #[test]
    fn script_that_cannot_run_reports_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let reason = || command(&script).unwrap_err().to_string();
        assert!(reason().contains("No such file"), "{}", reason());
        std::fs::write(&script, "#!/no/such/thing\n").unwrap();
        assert!(reason().contains("interpreter /no/such/thing"), "{}", reason());
    }
}
