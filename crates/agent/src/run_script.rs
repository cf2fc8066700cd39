//! `odc-agent run-script`: becomes a script of the user, in the user's home. A process of its own looks at the home, at the
//! script and at what the script asks for, because any of these may lie on a file system that hangs, and process 1 must
//! not hang with it.

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
use crate::shell;

/// As much of a script's first line as the kernel reads.
const FIRST_LINE: u64 = 256;

/// Returns only if the script cannot be started. Why is said on the standard input, which is a pipe to whoever started
/// us; it closes when we become the script.
pub fn run(args: &args::RunScript) -> anyhow::Result<ExitCode> {
    let mut report = File::from(stdin().as_fd().try_clone_to_owned()?);
    let outcome = become_script(&args.script);
    report.write_all(&serde_json::to_vec(&outcome)?)?;
    Ok(ExitCode::from(outcome.exit_code()))
}

fn become_script(script: &Path) -> Outcome {
    let mut command = match command(script) {
        Ok(command) => command,
        Err(outcome) => return outcome,
    };
    let error = command.stdin(Stdio::null()).exec();
    Outcome::failed_to_start(&script.display().to_string(), &error)
}

/// The interpreter is started by us and not by the kernel, because the script lies in a mounted file that is often not
/// executable.
pub fn command(script: &Path) -> Result<Command, Outcome> {
    let mut head = Vec::new();
    File::open(script)
        .and_then(|file| file.take(FIRST_LINE).read_to_end(&mut head))
        .map_err(|error| Outcome::failed_to_start(&script.display().to_string(), &error))?;
    let mut command = match interpreter(&head) {
        Some((program, _)) if !Path::new(&program).exists() => {
            let program = program.display();
            return Err(Outcome::not_found(format!(
                "its first line asks for {program}, which this image does not have"
            )));
        }
        Some((program, argument)) => {
            let mut command = Command::new(program);
            command.args(argument);
            command
        }
        None => Command::new(shell::for_scripts(Path::new("/")).ok_or_else(|| {
            Outcome::not_found(
                "this image has no shell; use an image with /bin/sh, or start the script with #!INTERPRETER",
            )
        })?),
    };
    command.arg(script);
    // Not `home_dir`, which would ask the image's account database through libraries we do not have.
    if let Some(home) = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()) {
        command.current_dir(home);
    }
    Ok(command)
}

/// The program a script asks for in its first line and the one argument that may follow, by the rules of the kernel.
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
    fn the_first_line_is_read_as_the_kernel_does() {
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
    fn a_script_that_cannot_run_says_why() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let why = || command(&script).unwrap_err().to_string();
        assert!(why().contains("No such file"), "{}", why());
        std::fs::write(&script, "#!/no/such/thing\n").unwrap();
        assert!(why().contains("asks for /no/such/thing"), "{}", why());
    }
}
