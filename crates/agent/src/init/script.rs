//! The user's scripts: setup and preStop. Here it is found out how to run one in whatever image this is, and its output is
//! carried to the container's log and a file of its own. When to run one is decided elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

use odc_control::Outcome;

use crate::init::children::Children;
use crate::init::life::Role;
use crate::shell;

/// As much of a script's first line as the kernel reads.
const FIRST_LINE: u64 = 256;

/// The log's file may be kept in memory, and the container's log has everything anyway.
const LONGEST_LOG: usize = 4 << 20;

/// Starts the script in the user's home directory, if there is one. The thread that carries its output ends when the last
/// process that could write to it does.
pub fn start(children: &mut Children, role: Role, script: &Path, log: Option<File>) -> Result<JoinHandle<()>, Outcome> {
    let failed = |error: io::Error| Outcome::failed_to_start(&script.display().to_string(), &error);
    let name = format!("{role:?}").to_lowercase();
    let (mut command, carrier) = prepare(script, &name, log)?;
    children.start(role, &mut command).map_err(failed)?;
    Ok(carrier)
}

/// The command, still to be started, and the thread that waits for its output.
pub fn prepare(script: &Path, name: &str, log: Option<File>) -> Result<(Command, JoinHandle<()>), Outcome> {
    let failed = |error: io::Error| Outcome::failed_to_start(&script.display().to_string(), &error);
    let mut command = command(script)?;
    let (output, input) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(input.try_clone().map_err(failed)?).stderr(input);
    // Not `home_dir`, which would ask the image's account database through libraries we do not have.
    if let Some(home) = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()) {
        command.current_dir(home);
    }
    let carrier = thread::Builder::new().name(name.to_owned()).spawn(move || carry(output, log)).map_err(failed)?;
    Ok((command, carrier))
}

/// The interpreter is started by us and not by the kernel, because the script lies in a mounted file that is often not
/// executable.
fn command(script: &Path) -> Result<Command, Outcome> {
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
