//! How interactive shells show what people should read and find our commands, without a change to anybody's files.
//!
//! bash runs what the variable `PROMPT_COMMAND` says before each prompt, also if it was inherited. Other shells have no
//! such variable; `docs/activity.md` has lines for their start-up files.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::serve::board::PROMPT;
use crate::serve::session::environment::TOOLS;

pub const VARIABLE: &str = "PROMPT_COMMAND";

/// The variable for sessions, after the one they would inherit.
pub fn variable(state: &Path, inherited: Option<&OsStr>) -> Option<(OsString, OsString)> {
    Some((VARIABLE.into(), command(state, inherited)?))
}

/// The user's own command comes first, and sees the exit status it expects. Ours does nothing while there is nothing to
/// read. Login shells read `/etc/profile`, which in many images sets `PATH` anew.
fn command(state: &Path, inherited: Option<&OsStr>) -> Option<OsString> {
    // A path that needs quoting is one that nobody uses.
    let file = state.join(PROMPT).into_os_string().into_string().ok()?;
    let harmless = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    if !file.chars().all(harmless) {
        return None;
    }
    let ours = format!(
        "if [ -s {file} ]; then while IFS= read -r __odc; do printf '\\033[1;33m[odc] %s\\033[0m\\n' \"$__odc\"; done <{file} 2>/dev/null; unset __odc; fi; case :${{PATH-}}: in *:{TOOLS}:*) ;; *) export PATH=\"${{PATH-}}:{TOOLS}\" 2>/dev/null ;; esac"
    );
    let mut command = inherited.filter(|inherited| !inherited.is_empty()).map(OsStr::to_owned).unwrap_or_default();
    if !command.is_empty() {
        command.push("\n");
    }
    command.push(ours);
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    /// What an interactive bash prints before its prompts.
    fn prompts(state: &Path, inherited: Option<&str>, input: &str) -> Option<String> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "--noprofile", "-i"]).env("PS1", "$ ").env("HISTFILE", "/dev/null");
        bash.env(VARIABLE, command(state, inherited.map(OsStr::new)).unwrap());
        bash.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = bash.spawn().ok()?;
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Some(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
    }

    #[test]
    fn bash_shows_it_before_every_prompt_while_there_is_something() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(PROMPT);
        fs::write(&file, "ends in 5 min; $(touch /nothing) `x`\n").unwrap();
        let input = format!("echo one\nrm {}\necho two\n", file.display());
        let Some(shown) = prompts(state.path(), Some("echo mine"), &input) else { return };
        let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        let warning = "\x1b[1;33m[odc] ends in 5 min; $(touch /nothing) `x`\x1b[0m";
        assert_eq!(shown, ["mine", warning, "one", "mine", warning, "mine", "two", "mine"]);
    }

    #[test]
    fn bash_finds_our_commands_whatever_a_profile_made_of_its_path() {
        let state = tempfile::tempdir().unwrap();
        let Some(shown) = prompts(state.path(), None, "PATH=/usr/bin:/bin\necho $PATH\necho $PATH\n") else { return };
        let shown: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, ["/usr/bin:/bin:/odc/bin"; 2]);
        // Who forbids that goes without, and still reads what there is.
        fs::write(state.path().join(PROMPT), "ends\n").unwrap();
        let Some(shown) = prompts(state.path(), None, "PATH=/usr/bin:/bin\nreadonly PATH\n") else { return };
        assert_eq!(shown.matches("ends").count(), 3, "{shown}");
    }

    #[test]
    fn an_odd_place_for_state_is_left_alone() {
        assert_eq!(command(Path::new("/a b"), None), None);
        assert!(command(Path::new("/run/odc"), Some(OsStr::new(""))).is_some());
    }
}
